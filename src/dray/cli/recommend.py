"""`dray recommend`: the best items of users, similar items, vectors for another index."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli.options import model_options, overwrite_option
from dray.cli.output import human, print_json, shown_on_stderr
from dray.errors import ConfigError
from dray.events.format import duration, many, size

if TYPE_CHECKING:
    from dray.recommending.recommend import RecommendResult
    from dray.storage import StorageOptions

MOST_SHOWN = 20


@click.command()
@click.argument("model", metavar="RUN")
@click.option("--users", metavar="FILE|ID,ID,...", help="Users to recommend to. [default: all that the model knows]")
@click.option("--top", type=int, default=10, show_default=True, help="Items of each user.")
@click.option(
    "--exclude-seen/--include-seen",
    default=True,
    show_default=True,
    help="Leave out what the user had in the training data, or recommend that as well.",
)
@click.option("--items", metavar="FILE|ID,ID,...", help="Items to choose from. [default: all]")
@click.option(
    "--events",
    metavar="FILE",
    multiple=True,
    help="Events of new users, with the run's columns: they get vectors of their own without training again. "
    "[without --users: answers the users in FILE]",
)
@click.option(
    "--similar-to", metavar="ITEM", multiple=True, help="Find items similar to ITEM instead; may be repeated."
)
@click.option(
    "--export",
    "export_to",
    metavar="DIR",
    help="Write vectors (users.parquet, items.parquet: id, bias, vector) for an index of nearest neighbours instead.",
)
@click.option(
    "--bias-in-vector",
    is_flag=True,
    help="With --export: one more coordinate, so that the inner product alone has the order of the scores.",
)
@click.option(
    "--out",
    metavar="FILE|DIR",
    help="Where the lists go: one file by its ending (.csv, .json, .jsonl, .parquet), or a directory of Parquet.",
)
@overwrite_option
@model_options("--events")
def recommend(
    model: str,
    similar_to: Sequence[str],
    export_to: str | None,
    bias_in_vector: bool,
    events: Sequence[str],
    out: str | None,
    overwrite: bool,
    top: int,
    source: dict[str, Any],
    cache: str | None,
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Recommend items to users with RUN, a run of model factorization (or its model directory).

    \b
    dray recommend runs/shop --users ann,bob               shows their ten best items
    dray recommend runs/shop --top 20 --out lists.csv      writes the lists of all users
    dray recommend runs/shop --events today.jsonl          answers new users by their events
    dray recommend runs/shop --similar-to lamp             shows items like that one

    A FILE of ids is Parquet, CSV or JSON with a column named as in the run (or a single column), or text with an id on
    each line. OUT has the columns user, rank, item, score and by: "factors"; "fold-in" for new users with --events;
    "popularity" for users that the model does not know. New items are folded in from Python: fold_in_item of
    dray.load(RUN).

    With --cluster http://head:8265 or the name of a cluster, a job there makes the lists, followed from here: RUN and
    all files must be locations that both sides see, such as s3://.
    """
    from dray.storage import StorageOptions

    where = StorageOptions(**storage)
    if similar_to or export_to is not None:
        model, out, export_to = _meant(model, out, export_to, where)
    _require_one_question(options, events, similar_to, export_to, bias_in_vector, out)
    if export_to is not None:
        _export(model, export_to, bias_in_vector, overwrite, where, as_json, quiet)
    elif similar_to:
        _similar(model, similar_to, top, out, overwrite, where, as_json, quiet)
    else:
        from dray.jobs.anywhere import run
        from dray.jobs.commands.recommending import Recommend

        command = Recommend(
            model=model,
            top=top,
            events=list(events) or None,
            out=out,
            overwrite=overwrite,
            format=source.pop("format", None),
            read=source,
            cache=cache,
            storage=where,
            most_users=None if out else MOST_SHOWN,
            **options,
        )
        result = run(command, shown_on_stderr(quiet))
        if not quiet:
            _tell(result, asked=options["users"] is not None or bool(events))
        if as_json:
            print_json(result.to_json(), show=str)
        elif result.table is not None:
            _show(result.table, "user")


def _require_one_question(
    options: dict[str, Any],
    events: Sequence[str],
    similar_to: Sequence[str],
    export_to: str | None,
    bias_in_vector: bool,
    out: str | None,
) -> None:
    """Refuse flags that mean nothing together."""
    if bias_in_vector and export_to is None:
        raise ConfigError("--bias-in-vector is for --export.", fix="Add --export DIR, or leave it out.")
    other = "--export" if export_to is not None else "--similar-to" if similar_to else None
    if other is None:
        return
    from dray.clusters.resolve import Remote, resolve

    if isinstance(resolve(options["cluster"]), Remote):
        raise ConfigError(
            f"{other} reads the model in this process, and --cluster is {options['cluster']}.",
            fix="Leave out --cluster: the model is read from where it is.",
        )
    given = {"--users": options["users"], "--items": options["items"], "--events": events}
    given |= {"--similar-to": similar_to, "--out": out} if other == "--export" else {}
    for flag, value in given.items():
        if value:
            raise ConfigError(f"{flag} cannot be used with {other}.", fix=f"Leave out {flag} or {other}.")


def _tell(result: RecommendResult, *, asked: bool) -> None:
    """`asked`: the command names the users; else they are the model's own."""
    if result.output is not None:
        human(
            f"{result.output}: {many(result.rows, 'rows')} for {many(result.users, 'users')} "
            f"in {many(result.files, 'files')}, {duration(result.seconds)}, {result.users_per_second:,.0f} users/s, "
            f"peak memory {size(result.peak_memory_bytes)}"
        )
    if result.users_folded:
        are = "is" if result.users_folded == 1 else "are"
        human(f"{many(result.users_folded, 'users')} {are} new: their lists were made from their events.")
    if result.users_unknown:
        number, have = many(result.users_unknown, "users"), "has" if result.users_unknown == 1 else "have"
        if asked:
            human(f"Warning: the model knows no training event of {number}: they get popular items.")
        else:
            human(f"{number} {have} no training event: they get popular items.")
    if result.items_unknown:
        human(f"Warning: the model does not know {result.items_unknown:,} of the items; they were left out.")


def _meant(
    model: str, out: str | None, export_to: str | None, storage: StorageOptions
) -> tuple[str, str | None, str | None]:
    """Return what the names mean, of what runs in this process."""
    from dray.runs.naming import Names

    names = Names(storage, lambda name, location: human(f"{name} is {location}"))
    return names.finished(model), names.output(out), names.output(export_to)


def _similar(
    model: str,
    items: Sequence[str],
    top: int,
    out: str | None,
    overwrite: bool,
    storage: StorageOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    from dray.recommending.similar import similar_items, write_table

    table = similar_items(model, items, top, storage)
    if not quiet and "popularity" in table["by"].to_pylist():
        human("Warning: the model does not know some of the items; popular items are shown for them.")
    if out is not None:
        document = {"output": write_table(table, out, storage, overwrite=overwrite), "rows": table.num_rows}
        if not quiet:
            human(f"{document['output']}: {many(table.num_rows, 'rows')} for {many(len(items), 'items')}")
        if as_json:
            print_json(document)
    elif as_json:
        print_json({"similar": table.to_pylist()}, show=str)
    else:
        _show(table, "item")


def _export(
    model: str,
    out: str,
    bias_in_vector: bool,
    overwrite: bool,
    storage: StorageOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    from dray.recommending.similar import export_vectors

    files = export_vectors(model, out, bias_in_vector=bias_in_vector, storage=storage, overwrite=overwrite)
    if not quiet:
        human("\n".join(files))
    if as_json:
        print_json({"files": files})


def _show(table: Any, key: str) -> None:
    """Print lists as people read them, each under the name of its user or item."""
    from rich.table import Table

    from dray.events.sinks.console import SafeConsole

    shown = Table(box=None, pad_edge=False)
    for name in table.column_names:
        shown.add_column(name, justify="right" if name in ("rank", "score") else "left")
    before = None
    for row in table.to_pylist():
        first = str(row[key]) if row[key] != before else ""
        before = row[key]
        shown.add_row(*(first if name == key else _word(row[name]) for name in table.column_names))
    SafeConsole(file=sys.stdout, markup=False, highlight=False).print(shown)


def _word(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
