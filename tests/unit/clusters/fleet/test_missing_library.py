"""Without asyncssh there is no fleet, and the extra that brings it is named."""

from __future__ import annotations

import sys

import pytest

from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.up import up
from dray.errors import ConfigError


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(ConfigError, match=r"pip install 'dray\[fleet\]'"):
        up(make_fleet({"name": "lab", "hosts": ["a"]}))
