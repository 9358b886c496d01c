"""dray beside the alternatives: the same data, the same model, each in its own process.

python benchmarks/training.py            2,000,000 rows x 28 features, 100 rounds, 2 cores, 3 repeats
python benchmarks/training.py --quick    200,000 rows, 20 rounds, once
"""

import shutil
import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import bench
import data
import measure
import numpy as np
import pyarrow.parquet as pq
import reporting
from reporting import Must, ratio, spread
from running_head import running_head

BASELINE = "pandas + DMatrix"
ONE_PROCESS = "dray, one process"
STARTING = "dray, 2 workers, starting a cluster"
JOINING = "dray, 2 workers, joining a cluster"
RAY_TRAIN = "Ray Train XGBoostTrainer"
DASK = "xgboost.dask"
LARGEST_DIFFERENCE = 0.005


@dataclass
class Runs:
    """What one contender did, a value for each repeat."""

    seconds: list[float] = field(default_factory=list)
    peak_memory_bytes: list[int] = field(default_factory=list)
    rss_sum_bytes: list[int] = field(default_factory=list)
    inner_seconds: list[dict[str, float]] = field(default_factory=list)
    auc: list[float] = field(default_factory=list)
    logloss: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """What every contender does, and where."""

    train: Path
    held_out: Path
    out: Path
    rounds: int
    cores: int
    env: dict[str, str]


# A contender makes a command of the job and the address of a running cluster, if there is one for it.
Command = Callable[[Job, str | None], list[str]]


def contenders(dray: str) -> dict[str, Command]:
    def script(name: str, *more: str) -> Command:
        return lambda job, _: bench.contender(name, job.train, job.out / "model.ubj", "--rounds", job.rounds, *more)

    def on_dray(workers: int) -> Command:
        return lambda job, cluster: bench.dray_train(
            dray, job.train, job.out / "run", job.rounds, workers=workers, cluster=cluster
        )

    return {
        BASELINE: script("pandas_xgboost.py", "--matrix", "DMatrix"),
        "pandas + QuantileDMatrix": script("pandas_xgboost.py", "--matrix", "QuantileDMatrix"),
        ONE_PROCESS: on_dray(0),
        STARTING: on_dray(2),
        JOINING: on_dray(2),
        DASK: script("dask_xgboost.py"),
        RAY_TRAIN: script("ray_train.py"),
    }


def main() -> int:
    parser = bench.options("Train the same model with dray and with the alternatives.")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--only", action="append", metavar="NAME", help="a part of a contender's name; may be repeated")
    asked = parser.parse_args()
    size = (200_000, 20, 1) if asked.quick else (2_000_000, 100, 3)
    rows, rounds, repeats = asked.rows or size[0], asked.rounds or size[1], asked.repeats or size[2]
    chosen = {
        name: command
        for name, command in contenders(asked.dray).items()
        if not asked.only or any(part.lower() in name.lower() for part in asked.only)
    }
    if not chosen:
        parser.error(f"--only {asked.only}: no such contender; there are {', '.join(contenders(asked.dray))}")

    train, held_out = data.training_data(asked.data, rows), data.held_out_data(asked.data)
    data.read_into_page_cache(train)
    results = {name: Runs() for name in chosen}
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        job = Job(train, held_out, scratch / "run", rounds, asked.cores, env)
        # Interleaved, so that a slow quarter of an hour does not hit one contender only.
        for repeat in range(repeats):
            for name, command in chosen.items():
                print(f"[{repeat + 1}/{repeats}] {name} ... ", end="", flush=True)
                print(_run_once(name, command, job, results[name]), flush=True)
                shutil.rmtree(job.out, ignore_errors=True)

    title = f"Training: {rows:,} rows x {data.FEATURES} features, {rounds} rounds, depth 6, {asked.cores} cores"
    complete = not asked.only and (rows, rounds) == (2_000_000, 100) and not any(r.failures for r in results.values())
    reporting.publish(
        "training", f"{title}, median of {repeats}", machine, [_table(results)], musts(results),
        {name: asdict(runs) for name, runs in results.items()}, save=complete,
    )  # fmt: skip
    return _complain(results)


def _run_once(name: str, command: Command, job: Job, runs: Runs) -> str:
    job.out.mkdir(parents=True)
    try:
        with running_head(job.cores, job.env, job.out) if name == JOINING else nullcontext() as address:
            measured = measure.run(command(job, address), job.env, job.out)
        # The shallowest: checkpoints lie deeper.
        model = min(job.out.rglob("model.ubj"), key=lambda path: len(path.parts), default=job.out / "model.ubj")
        auc, logloss = quality(model, job.held_out)
    except (measure.CommandFailedError, OSError, ValueError) as problem:
        runs.failures.append(str(problem))
        return f"failed: {runs.failures[-1]}"
    memory = measured.peak_memory_bytes
    if name == JOINING:
        # Its workers are the running cluster's children, so only dray can tell what they used.
        memory = max(memory, measured.report.get("peak_memory_bytes", 0))
    runs.seconds.append(measured.seconds)
    runs.peak_memory_bytes.append(memory)
    runs.rss_sum_bytes.append(measured.rss_sum_bytes)
    runs.inner_seconds.append(measured.report.get("seconds", {}))
    runs.auc.append(auc)
    runs.logloss.append(logloss)
    left = f", left {measured.left_behind} processes behind" if measured.left_behind else ""
    return f"{measured.seconds:.1f} s, {memory / 1e9:.2f} GB, AUC {auc:.4f}{left}"


def quality(model: Path, held_out: Path) -> tuple[float, float]:
    """Return AUC and log loss of a saved model on the rows that nobody trained on."""
    import xgboost as xgb

    table = pq.read_table(held_out)
    label = table[data.LABEL].to_numpy()
    booster = xgb.Booster(model_file=model)
    p = booster.predict(xgb.DMatrix(table.select(booster.feature_names)))
    p = np.clip(p.astype(float), 1e-7, 1 - 1e-7)
    _, place, count = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = int(label.sum())
    auc = (rank[label == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))
    return float(auc), float(-np.mean(np.where(label == 1, np.log(p), np.log(1 - p))))


def musts(results: dict[str, Runs]) -> list[Must]:
    def over(name: str, base: str, what: str = "seconds") -> float | None:
        above, below = (getattr(results.get(key, Runs()), what) for key in (name, base))
        return statistics.median(above) / statistics.median(below) if above and below else None

    return [
        Must("dray in one process, time against pandas + DMatrix", over(ONE_PROCESS, BASELINE), 0.9),
        Must("the same, peak memory", over(ONE_PROCESS, BASELINE, "peak_memory_bytes"), 0.5),
        Must("dray on 2 workers, cluster start included, against pandas + DMatrix", over(STARTING, BASELINE), 1.25),
        Must("dray on 2 workers, cluster running, against pandas + DMatrix", over(JOINING, BASELINE), 1.0),
        Must("faster than Ray Train, both starting their cluster", over(RAY_TRAIN, STARTING), 2.5, at_least=True),
        Must("faster than xgboost.dask, both starting their cluster", over(DASK, STARTING), 1.15, at_least=True),
    ]


def _table(results: dict[str, Runs]) -> str:
    def middle(runs: Runs, what: str) -> float | None:
        values = getattr(runs, what)
        return statistics.median(values) if values else None

    def inner(runs: Runs, phase: str) -> str:
        values = [seconds[phase] for seconds in runs.inner_seconds if phase in seconds]
        return f"{statistics.median(values):.1f}" if values else "-"

    base = results.get(BASELINE, Runs())
    rows = []
    for name, runs in results.items():
        if not runs.seconds:
            rows.append([name, "failed", *["-"] * 7])
            continue
        memory = statistics.median(runs.peak_memory_bytes)
        rows.append([
            name, spread(runs.seconds), ratio(middle(runs, "seconds"), middle(base, "seconds")),
            inner(runs, "load"), inner(runs, "train"),
            f"{memory / 1e9:.2f} GB", ratio(memory, middle(base, "peak_memory_bytes")),
            f"{statistics.median(runs.auc):.4f}", f"{statistics.median(runs.logloss):.4f}",
        ])  # fmt: skip
    header = ["contender", "total s (min-max)", "ratio", "load s", "train s", "peak memory", "ratio", "AUC", "log loss"]
    return reporting.table(header, rows)


def _complain(results: dict[str, Runs]) -> int:
    """Return the exit code: a contender that failed, or trained another model, makes the comparison void."""
    problems = [f"{name} failed: {runs.failures[0].splitlines()[0]}" for name, runs in results.items() if runs.failures]
    done = {name: runs for name, runs in results.items() if runs.seconds}
    for metric in ("auc", "logloss"):
        expected = next((getattr(runs, metric)[0] for runs in done.values()), 0.0)
        problems += [
            f"{name} trained another model: {metric} {value:.4f}, not {expected:.4f}"
            for name, runs in done.items()
            for value in getattr(runs, metric)
            if abs(value - expected) > LARGEST_DIFFERENCE
        ]
    for problem in problems:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
