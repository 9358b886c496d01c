"""Loading: what an ingest wrote beside pandas + QuantileDMatrix, and thousands of small files beside pyarrow.

python benchmarks/loading.py            400,000 rows from CSV; 10,000 files of 100 rows; 5 repeats
python benchmarks/loading.py --quick    40,000 rows; 1,000 files; once

Loading is what passes until training could begin, without starting Python or a cluster: the footers, the sample for the
cuts, reading, encoding and binning. pyarrow only reads.
"""

import json
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench
import data
import measure
import pyarrow.csv
import pyarrow.parquet as pq
import reporting
from reporting import Must, ratio, spread

PANDAS = "pandas + QuantileDMatrix"
ONE_PROCESS, WORKERS = "dray, one process", "dray, 2 workers"
BY_FILE, AS_DATASET = "pyarrow, file by file, 2 threads", "pyarrow.parquet.read_table(directory)"
ROWS_PER_FILE = 100

Command = Callable[[Path], list[str]]
"""Of the directory that a run may write to."""


def main() -> int:
    parser = bench.options("Load data with dray, with pandas and with pyarrow.")
    parser.add_argument("--repeats", type=int)
    asked = parser.parse_args()
    rows, files, repeats = (40_000, 1_000, 1) if asked.quick else (400_000, 10_000, 5)
    repeats = asked.repeats or repeats
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        ingested = _ingested(asked.dray, data.training_data(asked.data, rows), scratch / "data", env)
        small = data.small_files(asked.data, files, ROWS_PER_FILE)
        data.read_into_page_cache(small)
        subjects: dict[str, dict[str, Command]] = {
            f"{rows:,} rows that an ingest wrote": {
                PANDAS: lambda out: _pandas(ingested, out),
                ONE_PROCESS: lambda out: _dray(asked.dray, ingested, out, 0),
            },
            f"{files:,} files of {ROWS_PER_FILE} rows": {
                BY_FILE: lambda _: bench.contender("pyarrow_files.py", small, "--threads", asked.cores),
                AS_DATASET: lambda _: bench.contender("pyarrow_files.py", small),
                ONE_PROCESS: lambda out: _dray(asked.dray, small, out, 0),
                WORKERS: lambda out: _dray(asked.dray, small, out, 2),
            },
        }
        found = {subject: _interleaved(contenders, repeats, env, scratch) for subject, contenders in subjects.items()}

    table_rows, musts = [], []
    for subject, contenders in found.items():
        baseline = next(iter(contenders))
        most = 1.0 if baseline == PANDAS else 2.0
        for name, runs in contenders.items():
            ratios = [run["load"] / other["load"] for run, other in zip(runs, contenders[baseline], strict=True)]
            middle = statistics.median(ratios)
            table_rows.append(
                [f"{subject}, {name}", spread([run["load"] for run in runs]), ratio(middle, 1), spread(ratios)]
            )
            if name.startswith("dray"):
                musts.append(Must(f"{subject}, {name}, by {baseline}", middle, most))
    table = reporting.table(["contender", "load s (min-max)", "ratio", "ratios (min-max)"], table_rows)
    title = f"Loading: {data.FEATURES} features, {asked.cores} cores, median of {repeats} ratios of neighbouring runs"
    reporting.publish("loading", title, machine, [table], musts, found, save=not asked.quick)
    return 0


def _ingested(dray: str, train: Path, place: Path, env: dict[str, str]) -> Path:
    """Write the rows as CSV, and have dray make Parquet of it."""
    place.mkdir()
    pyarrow.csv.write_csv(pq.read_table(train), place / "rows.csv")
    out = place / "ingested"
    measure.run([dray, "data", "ingest", str(place / "rows.csv"), str(out), "--json"], env, place / "logs")
    data.read_into_page_cache(out)
    return out


def _interleaved(
    contenders: dict[str, Command], repeats: int, env: dict[str, str], scratch: Path
) -> dict[str, list[dict[str, float]]]:
    """Run the contenders in turn, so that a slow quarter of an hour does not hit one only; return their seconds."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        for name, command in contenders.items():
            print(f"[{repeat + 1}/{repeats}] {name} ... ", end="", flush=True)
            out = scratch / "run"
            result = measure.run(command(out), env, scratch / "logs")
            load = _load_s(out) if name.startswith("dray") else result.report["seconds"]["load"]
            print(f"{load:.2f} s", flush=True)
            found[name].append({"load": load, "total": result.seconds, "peak_memory_bytes": result.peak_memory_bytes})
            shutil.rmtree(out, ignore_errors=True)
    return found


def _pandas(source: Path, out: Path) -> list[str]:
    out.mkdir()
    return bench.contender("pandas_xgboost.py", source, out / "model.ubj", "--rounds", 1, "--matrix", "QuantileDMatrix")


def _dray(dray: str, source: Path, out: Path, workers: int) -> list[str]:
    return bench.dray_train(dray, source, out, 1, workers)


def _load_s(run: Path) -> float:
    """Return the seconds of a run in which it looked at the data and loaded it, without the start of the workers."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return _between(events, "prepare", "start") + _between(events, "load", "train")


def _between(events: Sequence[dict[str, Any]], phase: str, following: str) -> float:
    began = {event["name"]: float(event["time"]) for event in events if event["kind"] == "phase"}
    return began[following] - began[phase]


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
