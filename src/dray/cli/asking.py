"""Ask before something is removed; without a terminal, only --yes removes."""

from __future__ import annotations

import sys

import click

from dray.cli.output import human
from dray.errors import ConfigError


def is_terminal() -> bool:
    return sys.stdin.isatty()


def require_yes(what: str, *, yes: bool) -> None:
    """Return if `what` ("3 runs, 12 MB") may be removed; end the command if not."""
    if yes:
        return
    if not is_terminal():
        raise ConfigError(
            f"{what} would be removed, and there is no terminal to ask on.",
            fix="Add --yes to remove without a question.",
        )
    human(f"{what} will be removed for good.")
    if not click.confirm("Remove?", err=True):
        raise click.Abort
