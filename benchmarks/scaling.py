"""Ten times the rows in one process: the time and the memory that a row costs.

python benchmarks/scaling.py            2,000,000 and 20,000,000 rows (2.6 GB of data), 100 rounds
python benchmarks/scaling.py --quick    200,000 and 2,000,000 rows, 20 rounds
"""

import shutil
import sys

import bench
import data
import measure
import reporting
from reporting import Must

BASE_ROWS = 10_000


def main() -> int:
    asked = bench.options("Train with dray in one process on ten times the rows.").parse_args()
    small, rounds = (200_000, 20) if asked.quick else (2_000_000, 100)
    measured = {}
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        # The smallest run's memory is that of Python and the libraries: the base that no row is charged with.
        for rows in (BASE_ROWS, small, 10 * small):
            train = data.training_data(asked.data, rows)
            data.read_into_page_cache(train)
            print(f"{rows:,} rows ... ", end="", flush=True)
            command = bench.dray_train(asked.dray, train, scratch / "run", rounds, workers=0)
            measured[rows] = measure.run(command, env, scratch / "logs", timeout_s=3600)
            print(f"{measured[rows].seconds:.1f} s, {measured[rows].peak_memory_bytes / 1e9:.2f} GB", flush=True)
            shutil.rmtree(scratch / "run")

    base = measured[BASE_ROWS]
    per_row = {
        rows: (run.seconds / rows, (run.peak_memory_bytes - base.peak_memory_bytes) / rows)
        for rows, run in measured.items()
    }
    table = reporting.table(
        ["rows", "total s", "microseconds a row", "peak memory", "bytes a row above the base"],
        [
            [
                f"{rows:,}",
                f"{run.seconds:.1f}",
                f"{per_row[rows][0] * 1e6:.1f}",
                f"{run.peak_memory_bytes / 1e9:.2f} GB",
                f"{per_row[rows][1]:.0f}",
            ]
            for rows, run in measured.items()
        ],
    )
    musts = [
        Must(f"time a row, {10 * small:,} against {small:,} rows", per_row[10 * small][0] / per_row[small][0], 1.2),
        Must(
            f"peak memory a row above the base, {10 * small:,} rows",
            per_row[10 * small][1],
            2 * data.FEATURES + 60,
            " bytes",
        ),
    ]
    title = f"Ten times the rows, dray in one process: {data.FEATURES} features, {rounds} rounds, depth 6"
    figures = {str(rows): reporting.figures(run) for rows, run in measured.items()}
    reporting.publish("scaling", title, machine, [table], musts, figures, save=not asked.quick)
    return 0


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
