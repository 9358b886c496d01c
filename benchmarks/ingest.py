"""CSV to Parquet: `dray data ingest` beside pyarrow's own reader and writer, and beside the skiprows way on Ray.

python benchmarks/ingest.py            2 GB against pyarrow, 200 MB against skiprows; 3 repeats
python benchmarks/ingest.py --quick    a tenth of that, once

The skiprows way reads every row before its chunk: its time grows with the square of the size, so that it is measured on
a tenth of the data, which favours it.
"""

import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import bench
import data
import measure
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import reporting
from reporting import Must, ratio, spread

DRAY = "dray data ingest"
PYARROW = "pyarrow open_csv + ParquetWriter"
SKIPROWS = "pandas skiprows, Ray tasks"
LARGE_BYTES, SMALL_BYTES = 2_000_000_000, 200_000_000
MOST_MEMORY_GB = 1.0


def main() -> int:
    asked = bench.options("Turn CSV into Parquet with dray and with others.").parse_args()
    scale, repeats = (10, 1) if asked.quick else (1, 3)
    measured: dict[str, dict[str, list[measure.Measured]]] = {}
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        for size, other in ((LARGE_BYTES // scale, PYARROW), (SMALL_BYTES // scale, SKIPROWS)):
            source = csv_file(asked.data, size)
            out = scratch / "out"
            script = "pyarrow_ingest.py" if other == PYARROW else "skiprows_ingest.py"
            commands = {
                other: bench.contender(script, source, out),
                DRAY: [asked.dray, "data", "ingest", str(source), str(out), "--quiet", "--json"],
            }
            label = f"{size / 1e6:,.0f} MB"
            measured[label] = {name: [] for name in commands}
            rows = set()
            for repeat in range(repeats):
                for name, command in commands.items():
                    print(f"[{repeat + 1}/{repeats}] {label}, {name} ... ", end="", flush=True)
                    result = measure.run(command, env, scratch / "logs")
                    print(f"{result.seconds:.1f} s, {result.peak_memory_bytes / 1e9:.2f} GB", flush=True)
                    measured[label][name].append(result)
                    rows.add(rows_in(out))
                    shutil.rmtree(out) if out.is_dir() else out.unlink()
            if len(rows) > 1:
                raise measure.CommandFailedError(f"not all wrote the same rows: {sorted(rows)}")

    table_rows, musts = [], []
    for label, contenders in measured.items():
        seconds = {name: statistics.median(r.seconds for r in runs) for name, runs in contenders.items()}
        peak = {name: max(r.peak_memory_bytes for r in runs) for name, runs in contenders.items()}
        other = next(name for name in contenders if name != DRAY)
        table_rows += [
            [
                f"{label}, {name}",
                spread([r.seconds for r in runs]),
                ratio(seconds[other], seconds[name]),
                f"{peak[name] / 1e9:.2f} GB",
            ]
            for name, runs in contenders.items()
        ]
        must = 1.0 if other == PYARROW else 5.0
        musts.append(Must(f"speed of {other}, {label}", seconds[other] / seconds[DRAY], must, at_least=True))
        if other == PYARROW:
            musts.append(Must(f"peak memory of {DRAY}, {label}", peak[DRAY] / 1e9, MOST_MEMORY_GB, " GB"))
    table = reporting.table(["contender", "total s (min-max)", "speed", "peak memory"], table_rows)
    figures = {
        label: {name: [reporting.figures(r) for r in runs] for name, runs in contenders.items()}
        for label, contenders in measured.items()
    }
    title = f"CSV to Parquet, {asked.cores} cores"
    reporting.publish("ingest", title, machine, [table], musts, figures, save=not asked.quick)
    return 0


def csv_file(cache: Path, size: int) -> Path:
    """Return a CSV file of about that size, made once: the training data's numbers, an id, a time, a word, a text."""
    path = cache / f"ingest-{size}.csv"
    if path.exists():
        return path
    partial = path.with_suffix(".partial")
    with partial.open("wb") as sink:
        rows = 0
        for batch in _endless(data.training_data(cache, 2_000_000)):
            options = pyarrow.csv.WriteOptions(include_header=rows == 0)
            pyarrow.csv.write_csv(_with_other_kinds(batch, rows), sink, options)
            rows += batch.num_rows
            if sink.tell() >= size:
                break
    partial.rename(path)
    return path


def _endless(source: Path) -> Iterator[pa.RecordBatch]:
    while True:
        for file in sorted(source.rglob("*.parquet")):
            yield from pq.ParquetFile(file).iter_batches(batch_size=20_000)


def _with_other_kinds(batch: pa.RecordBatch, first: int) -> pa.Table:
    ids = np.arange(first, first + batch.num_rows)
    random = np.random.default_rng(first)
    words = np.array(["red", "green", "blue", "yellow", "dark grey", ""])[random.integers(0, 6, len(ids))]
    notes = np.array(["", "called, will call again", 'said "no"', "two\nlines", "plain"])[
        random.integers(0, 5, len(ids))
    ]
    others = {
        "id": pa.array(ids),
        "at": pa.array(ids * 1000 + 1_700_000_000_000, pa.timestamp("ms")),
        "colour": pa.array(words),
        "note": pa.array(notes),
    }
    numbers = {name: batch.column(name) for name in batch.schema.names}
    return pa.table(others | numbers)


def rows_in(out: Path) -> int:
    files = sorted(out.rglob("*.parquet")) if out.is_dir() else [out]
    return sum(pq.read_metadata(file).num_rows for file in files)


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
