"""`dray cache`: what dray keeps on this machine besides runs and outputs, and how it goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from dray.cli.asking import require_yes
from dray.cli.options import storage_options
from dray.cli.output import human, print_json

if TYPE_CHECKING:
    from dray.runs.kept import Kept
    from dray.storage import StorageOptions

_json = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
_cache = click.option("--cache", metavar="DIR", help="Another cache, local or s3://. [default: ~/.cache/dray]")


@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@_cache
@_json
@storage_options
@click.pass_context
def cache(ctx: click.Context, cache: str | None, as_json: bool, storage: dict[str, str]) -> None:
    """List what dray keeps on this machine: copies of data, compiled kernels, temporary files, clusters.

    Runs and outputs are where you put them: dray runs lists runs, and dray runs rm removes them. Copies that were not
    used for 30 days go by themselves when another one is made.
    """
    if ctx.invoked_subcommand is None:
        _list(cache, as_json, storage)
    elif cache is not None or as_json or storage:
        raise click.UsageError(f"Options of dray cache {ctx.invoked_subcommand} go behind its name.", ctx)


@cache.command("list")
@_cache
@_json
@storage_options
def list_command(cache: str | None, as_json: bool, storage: dict[str, str]) -> None:
    """List what dray keeps, as dray cache does."""
    _list(cache, as_json, storage)


def _list(cache: str | None, as_json: bool, storage: dict[str, str]) -> None:
    from dataclasses import asdict

    from dray.storage import StorageOptions

    found = _find(cache, StorageOptions(**storage))
    if as_json:
        print_json({"kept": [asdict(one) for one in found], "bytes": sum(one.bytes for one in found)})
    else:
        _print(found)


@cache.command()
@click.option(
    "--older",
    metavar="AGE",
    help="Only what was not used for so long: 7d, 12h, 30m. [default: 1h for copies, which may be read just now]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@_cache
@_json
@storage_options
def clear(older: str | None, yes: bool, cache: str | None, as_json: bool, storage: dict[str, str]) -> None:
    """Remove copies, kernels and temporary files that nothing needs.

    What is in use stays: the copies of runs that are not finished, the files of processes that run, known clusters
    (dray cluster down). The next command makes copies and kernels again.
    """
    from dataclasses import asdict

    from dray.clusters.leftovers import remove_leftover
    from dray.events.format import size
    from dray.ingesting.copies import remove_copy
    from dray.runs.kept import JUST_USED_S, clearable, parse_age
    from dray.storage import StorageOptions

    options = StorageOptions(**storage)
    least = None if older is None else parse_age(older)
    found, now = _find(cache, options), time.time()
    copies = [one for one in found if one.kind == "copy"]
    others = [one for one in found if one.kind != "copy"]
    going = clearable(copies, JUST_USED_S if least is None else least, now) + clearable(others, least or 0, now)
    stays = [one for one in found if one not in going]
    if going:
        require_yes(f"{_entries(len(going))}, {size(sum(one.bytes for one in going))},", yes=yes)
    for one in going:
        if one.kind == "copy":
            remove_copy(one, options)
        else:
            remove_leftover(one)
    freed = sum(one.bytes for one in going)
    human(f"Removed {_entries(len(going))}, {size(freed)}; {_entries(len(stays))} kept (dray cache).")
    if as_json:
        removed, kept = ([asdict(one) for one in some] for some in (going, stays))
        print_json({"removed": removed, "kept": kept, "bytes": freed})


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number:,} entries"


def _find(cache: str | None, storage: StorageOptions) -> list[Kept]:
    from dray.clusters.leftovers import leftovers
    from dray.ingesting.cache import default_cache
    from dray.ingesting.copies import copies_in
    from dray.storage import absolute

    now = time.time()
    copies = sorted(copies_in(absolute(cache or default_cache()), storage, now), key=lambda one: -one.used)
    return [*copies, *leftovers(now)]


def _print(found: list[Kept]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dray.events.format import duration, size
    from dray.events.sinks.console import SafeConsole

    if not found:
        human("dray keeps nothing here.")
        return
    console, now = SafeConsole(highlight=False), time.time()
    if not console.is_terminal:
        console.width = 10_000
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, options in _COLUMNS.items():
        table.add_column(name, **options)
    for one in found:
        table.add_row(
            one.kind,
            Text(f"{one.what}\n{one.location}" if console.is_terminal else f"{one.what}  {one.location}"),
            size(one.bytes),
            "" if one.made is None else duration(now - one.made),
            duration(now - one.used),
            Text(one.kept_for or ""),
        )
    console.print(table)
    human(f"{size(sum(one.bytes for one in found))} in all; dray cache clear removes what nothing needs.")


_COLUMNS: dict[str, dict[str, Any]] = {
    "kind": {"no_wrap": True},
    "what, and where": {"overflow": "fold"},
    "size": {"justify": "right", "no_wrap": True},
    "age": {"justify": "right", "no_wrap": True},
    "unused for": {"justify": "right", "no_wrap": True},
    "kept for": {"overflow": "fold"},
}
