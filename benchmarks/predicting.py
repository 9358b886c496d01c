"""`dray predict` beside pandas + Booster.predict + to_parquet, files to files.

python benchmarks/predicting.py            2,000,000 and 20,000,000 rows, 100 rounds, 3 repeats
python benchmarks/predicting.py --quick    200,000 and 2,000,000 rows, 20 rounds, once
"""

import shutil
import statistics
import sys
from pathlib import Path

import bench
import data
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import reporting
from reporting import Must, ratio, spread

PANDAS = "pandas + Booster.predict + to_parquet"
DRAY = "dray predict"
LARGEST_DIFFERENCE = 1e-5


def main() -> int:
    asked = bench.options("Predict with dray and with pandas.").parse_args()
    small, rounds, repeats = (200_000, 20, 1) if asked.quick else (2_000_000, 100, 3)
    measured: dict[int, dict[str, list[measure.Measured]]] = {}
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        run = scratch / "run"
        train = data.training_data(asked.data, small)
        measure.run(bench.dray_train(asked.dray, train, run, rounds, workers=0), env, scratch / "logs")
        for rows in (small, 10 * small):
            source = data.training_data(asked.data, rows)
            data.read_into_page_cache(source)
            outputs = {PANDAS: scratch / "pandas.parquet", DRAY: scratch / "dray"}
            commands = {
                PANDAS: bench.contender("pandas_predict.py", source, outputs[PANDAS], "--model", run / "model.ubj"),
                DRAY: [asked.dray, "predict", str(run), str(source), str(outputs[DRAY]), "--json"],
            }
            measured[rows] = {name: [] for name in commands}
            for repeat in range(repeats):
                for name, command in commands.items():
                    print(f"[{repeat + 1}/{repeats}] {rows:,} rows, {name} ... ", end="", flush=True)
                    result = measure.run(command, env, scratch / "logs")
                    print(f"{result.seconds:.1f} s, {result.peak_memory_bytes / 1e9:.2f} GB", flush=True)
                    measured[rows][name].append(result)
                _require_the_same(outputs[PANDAS], outputs[DRAY])
                shutil.rmtree(outputs[DRAY])

    table_rows, musts = [], []
    for rows, contenders in measured.items():
        seconds = {name: statistics.median(r.seconds for r in runs) for name, runs in contenders.items()}
        peak = {name: max(r.peak_memory_bytes for r in runs) for name, runs in contenders.items()}
        table_rows += [
            [
                f"{rows:,} rows, {name}",
                spread([r.seconds for r in runs]),
                ratio(seconds[name], seconds[PANDAS]),
                f"{rows / seconds[name] / 1e6:.2f}",
                f"{peak[name] / 1e9:.2f} GB",
            ]
            for name, runs in contenders.items()
        ]
        musts += [
            Must(f"faster than pandas, {rows:,} rows", seconds[PANDAS] / seconds[DRAY], 1.0, at_least=True),
            Must(f"peak memory of dray predict, {rows:,} rows", peak[DRAY] / 1e9, 1.0, " GB"),
        ]
    table = reporting.table(["contender", "total s (min-max)", "ratio", "million rows/s", "peak memory"], table_rows)
    title = f"Predicting: {data.FEATURES} features, {rounds} rounds, depth 6, {asked.cores} cores"
    figures = {
        str(rows): {name: [reporting.figures(r) for r in runs] for name, runs in contenders.items()}
        for rows, contenders in measured.items()
    }
    reporting.publish("predicting", title, machine, [table], musts, figures, save=not asked.quick)
    return 0


def _require_the_same(one: Path, other: Path) -> None:
    """Two contenders that predict something else, or in another order, are not doing the same work."""
    expected, got = (_predictions(path) for path in (one, other))
    if len(expected) != len(got):
        raise measure.CommandFailedError(f"{len(got):,} predictions instead of {len(expected):,}")
    difference = float(np.abs(expected - got).max())
    if difference > LARGEST_DIFFERENCE:
        raise measure.CommandFailedError(f"the predictions differ by up to {difference:g}")


def _predictions(path: Path) -> np.ndarray:
    schema = pq.read_schema(next(iter(sorted(path.rglob("*.parquet"))), path))
    column = next(field.name for field in schema if pa.types.is_floating(field.type))
    return pq.read_table(path, columns=[column])[column].to_numpy()


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
