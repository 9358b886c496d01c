"""Keep Ray's own messages off the terminal: the run's events tell the same, and standard output may be JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dray.clusters.ray_private import listener_replacements, replaced

OPTIONS: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
"""What `ray.init()` itself offers."""


@contextmanager
def quiet() -> Iterator[None]:
    """Let a `ray.init()` inside start without the thread that prints lost workers to standard output."""
    with replaced(listener_replacements()):
        yield
