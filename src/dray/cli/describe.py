"""`dray data describe`: describe data before training on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from dray.cli.options import output_options, source_options, storage_options
from dray.cli.output import print_json, progress
from dray.events.format import duration, many, size
from dray.events.visible import visible

if TYPE_CHECKING:
    from rich.text import Text

    from dray.data.describing.figures import ColumnProfile, Description, Figure, Histogram, Layout

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_VALUES = 4
_SHOWN_CHARACTERS = 20
_SHOWN_REJECTS = 3
_NAME_CHARACTERS = 32
_TYPE_CHARACTERS = 14


@click.command("describe")
@click.argument("data", nargs=-1, required=True)
@click.option("--label", metavar="COLUMN", help="The column to predict: warns about columns that alone decide it.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Say whether the row groups can be assigned evenly to so many workers.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=100_000,
    show_default=True,
    help="Rows to sample, spread over all the data, for what the footers lack; 0 reads every row.",
)
@source_options
@storage_options
@output_options
def describe(
    data: Sequence[str],
    label: str | None,
    workers: int | None,
    sample: int,
    source: dict[str, Any],
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
) -> None:
    """Describe DATA: rows, columns, row groups, and warnings before training on it.

    DATA is Parquet, CSV, JSON, Arrow, a Delta Lake table or a database; local or s3://. Rows, nulls and ranges come
    from Parquet's footers, anything else from a sample. A ~ marks what comes from the sample.
    """
    from dray.data.describe import describe as describe_source
    from dray.data.open_source import open_source
    from dray.storage import StorageOptions

    opened = open_source(list(data), StorageOptions(**storage), **source)
    with nullcontext(_silent) if quiet else progress("Reading", "places") as report:
        found = describe_source(opened, label=label, workers=workers, sample=sample, progress=report)
    if as_json:
        print_json(found.to_json(), show=str)
    else:
        _print(found)


def _silent(done: int, total: int) -> None:
    """Report nothing."""


def _print(found: Description) -> None:
    from rich.text import Text

    from dray.events.sinks.console import SafeConsole

    console = SafeConsole(highlight=False, soft_wrap=True)
    console.print(Text(_headline(found), style="bold"))
    console.print(Text(_layout_line(found.layout)))
    if not _is_exact(found):
        console.print(Text(_sample_line(found)))
    console.print()
    # A pipe has no width: lines are not cut.
    for line in _lines(found, console.width if console.is_terminal else None):
        console.print(line)
    if found.rejects:
        console.print()
        console.print(Text(_rejected_line(found), style="red"))
        for row in found.rejects[:_SHOWN_REJECTS]:
            console.print(Text(f"  {row.place}: {row.reason}: {_short(row.text, 60)}"))
    concerns = [warning for warning in found.warnings if warning.kind != "rejects"]
    if concerns or found.layout.advice:
        console.print()
        console.print(Text("Warnings", style="bold yellow"))
        for concern in concerns:
            console.print(Text(f"  {concern.column}: {concern.message}" if concern.column else f"  {concern.message}"))
        if found.layout.advice:
            console.print(Text(f"  {found.layout.advice}"))


def _headline(found: Description) -> str:
    rows = "unknown rows" if found.rows.value is None else _marked(found.rows, many(found.rows.value, "rows"))
    files = found.layout.files
    place = "" if files is None else f" in {many(files, 'files')}"
    stored = f"{size(found.bytes)} of {found.format}" if found.bytes else found.format
    return f"{_short(found.name, 60)}: {rows}, {many(len(found.columns), 'columns')}, {stored}{place}"


def _layout_line(layout: Layout) -> str:
    if layout.row_groups is None or layout.rows_per_group is None:
        return "No row groups."
    least, middle, most = layout.rows_per_group
    spread = many(most, "rows") if least == most else f"{least:,} to {most:,} rows (median {middle:,})"
    words = f"{many(layout.row_groups, 'row groups')} of {spread}"
    even = [str(assignment.workers) for assignment in layout.dealings if assignment.even]
    if even:
        words += f"; even for {', '.join(even)} workers"
    return words + "."


def _is_exact(found: Description) -> bool:
    return found.complete and found.sample_rows == found.rows.value


def _sample_line(found: Description) -> str:
    return f"~ from a sample of {found.sample_rows:,} rows, in {duration(found.seconds)}; without ~ exact for all rows."


def _rejected_line(found: Description) -> str:
    where = "" if found.complete else " of the sample"
    return f"{found.rejected.value:,} row{'s' * (found.rejected.value != 1)}{where} cannot be read:"


def _lines(found: Description, width: int | None) -> Iterator[Text]:
    """Yield a line for each column of the data; the last cell is cut where the terminal ends."""
    from rich.text import Text

    rows = [("column", "type", "missing", "distinct", "histogram", "range or values")]
    rows += [_cells(column) for column in found.columns]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    concerned = {warning.column for warning in found.warnings}
    names = [None, *(column.name for column in found.columns)]
    for name, (title, type_, missing, distinct, histogram, content) in zip(names, rows, strict=True):
        cells = [
            title.ljust(widths[0]),
            type_.ljust(widths[1]),
            missing.rjust(widths[2]),
            distinct.rjust(widths[3]),
            histogram.ljust(widths[4]),
        ]
        line = "  ".join([*cells, content]).rstrip()
        text = Text(line if width is None else _short(line, width), style="bold" if name in (None, found.label) else "")
        if name in concerned:
            text.stylize("yellow", 0, widths[0])
        yield text


def _cells(column: ColumnProfile) -> tuple[str, str, str, str, str, str]:
    return (
        _short(column.name, _NAME_CHARACTERS),
        _short(_type(column.type), _TYPE_CHARACTERS),
        _missing(column.missing),
        "" if column.distinct is None else _marked(column.distinct, _count(column.distinct.value)),
        bars(column.histogram),
        _content(column),
    )


def bars(histogram: Histogram | None) -> str:
    """Return a bar for each bin: only empty bins are blank, so that one row in a million still shows."""
    if histogram is None:
        return ""
    most = max(histogram.counts)
    return "".join(_BARS[math.ceil(8 * count / most) - 1] if count else " " for count in histogram.counts)


def _missing(figure: Figure) -> str:
    value = figure.value
    words = "0%" if value == 0 else "<0.1%" if value < 0.001 else f"{value:.1%}"
    return _marked(figure, words)


def _content(column: ColumnProfile) -> str:
    if column.values:
        shown = [f"{_value(found.value)} {_percent(found.share)}" for found in column.values[:_SHOWN_VALUES]]
        more = column.distinct is not None and column.distinct.value > len(shown)
        mark = "" if column.values_basis == "exact" else "~"
        return mark + ", ".join(shown) + (", …" if more else "")
    if column.low is None or column.high is None:
        return ""
    return f"{_marked(column.low, _value(column.low.value))} … {_marked(column.high, _value(column.high.value))}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if abs(value) < 10_000 else f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.5g}"
    text = str(value)
    return _short(text, _SHOWN_CHARACTERS) if text.strip() else repr(text)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _count(value: int) -> str:
    return f"{value:,}" if value < 1_000_000 else f"{value / 1e6:,.1f} M" if value < 10**9 else f"{value / 1e9:,.1f} G"


def _marked(figure: Figure, text: str) -> str:
    return text if figure.basis == "exact" else f"~{text}"


def _type(name: str) -> str:
    return "dictionary" if name.startswith("dictionary<") else name.replace("timestamp", "time").replace(" ", "")


def _short(text: str, most: int) -> str:
    text = visible(text.replace("\n", "⏎").replace("\r", ""))  # before it is measured
    return text if len(text) <= most else text[: most - 1] + "…"
