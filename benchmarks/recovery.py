"""What one killed worker costs: dray, Ray Train and xgboost.dask, each against its own undisturbed run.

python benchmarks/recovery.py                  2,000,000 rows x 28 features, 100 rounds, 2 workers, 3 repeats
python benchmarks/recovery.py --quick          200,000 rows, 40 rounds, once
python benchmarks/recovery.py --against REV    also: what the undisturbed run costs, beside another revision's

At half of the rounds one of the two workers is killed (SIGKILL). Ray Train has checkpoints every 5 rounds and
max_failures. xgboost.dask knows no recovery, so its user's loop has: the same checkpoints, and another attempt.
"""

import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bench
import data
import killing
import measure
import reporting
import revision
from killing import Line
from reporting import Must, spread
from training import quality

DRAY = "dray, 2 workers"
RAY_TRAIN = "Ray Train XGBoostTrainer"
DASK = "xgboost.dask"
FULL = (2_000_000, 100, 3)
QUICK = (200_000, 40, 1)
LIMIT_S = 600
"""A disturbed run that takes longer hangs."""
LARGEST_DIFFERENCE = {True: 0.005, False: 0.02}
"""Of the AUC at full size, or at a smaller one, where it still climbs; a larger one is another model."""


@dataclass(frozen=True)
class Job:
    train: Path
    held_out: Path
    out: Path
    rounds: int
    env: dict[str, str]


@dataclass(frozen=True)
class Contender:
    command: Callable[[Job], list[str]]
    written: str
    """The file below the job's directory that tells about rounds and pids."""
    victim: Callable[[int], killing.Victim]
    story: Callable[[list[Line]], dict[str, Any]]
    """Makes of that file what is worth keeping of a disturbed run; "happened" is for the table."""


@dataclass
class Runs:
    """What one contender did, a value for each repeat; None for one that failed."""

    undisturbed: list[float | None] = field(default_factory=list)
    disturbed: list[float | None] = field(default_factory=list)
    stories: list[dict[str, Any]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    auc: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Of undisturbed runs: these make the comparison void."""

    @property
    def extra(self) -> list[float]:
        """Of each repeat, so that a slow quarter of an hour is in both."""
        pairs = zip(self.disturbed, self.undisturbed, strict=False)
        return [late - early for late, early in pairs if late is not None and early is not None]


def contenders(dray: str) -> dict[str, Contender]:
    def script(name: str) -> Contender:
        def command(job: Job) -> list[str]:
            progress = ("--progress", job.out / "progress.jsonl")
            return bench.contender(name, job.train, job.out / "model.ubj", "--rounds", job.rounds, *progress)

        return Contender(command, "progress.jsonl", killing.victim_of_callback, story_of_callback)

    def on_dray(job: Job) -> list[str]:
        return bench.dray_train(dray, job.train, job.out / "run", job.rounds, workers=2)

    return {
        DRAY: Contender(on_dray, "run/events.jsonl", killing.victim_of_dray, story_of_dray),
        RAY_TRAIN: script("ray_train_resuming.py"),
        DASK: script("dask_resuming.py"),
    }


def story_of_dray(events: list[Line]) -> dict[str, Any]:
    """Return what the events tell about the loss."""
    lost = next(event for event in events if event["kind"] == "worker_lost")
    after = [event for event in events if event["time"] >= lost["time"]]
    reloads = [event for event in after if event["kind"] == "reload"]
    replaced = {event["worker"] for event in after if event["kind"] == "worker_started"}
    loads = [event for event in after if event["kind"] == "worker_loaded"]
    recovered = next(event for event in after if event["kind"] == "recovered")
    return {
        "happened": f"worker replaced, went on after round {recovered['round']}",
        "lost_in_round": lost["round"],
        "noticed_after_s": lost["noticed_after_s"],
        "replacement_started_s": _first(after, "worker_started")["time"] - lost["time"] if replaced else None,
        "reload_s": sum(event["seconds"] for event in loads),
        "recovery_s": recovered["seconds"],
        "rows_reloaded": sum(event["rows"] for event in reloads),
        "rows_reloaded_by_survivors": sum(event["rows"] for event in reloads if event["worker"] not in replaced),
    }


def story_of_callback(told: list[Line]) -> dict[str, Any]:
    begun = [line for line in told if line["begun"] and line["rank"] == 0]
    last = begun[-1]
    before = max(line["round"] for line in told[: told.index(last)])
    return {
        "happened": f"everything loaded again, went on after round {last['round']} of {before}"
        + (f", attempt {len(begun)}" if len(begun) > 2 else ""),
        "attempts": len(begun),
        "lost_rounds": before - last["round"],
    }


def _first(events: list[Line], kind: str) -> Line:
    return next(event for event in events if event["kind"] == kind)


def main() -> int:
    parser = bench.options("Kill a worker at half of the rounds, in dray and in the alternatives.")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--only", action="append", metavar="NAME", help="a part of a contender's name; may be repeated")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="of a disturbed run")
    parser.add_argument("--against", metavar="GIT_REV", help="compare undisturbed runs with that revision's")
    asked = parser.parse_args()
    size = QUICK if asked.quick else FULL
    rows, rounds, repeats = asked.rows or size[0], asked.rounds or size[1], asked.repeats or size[2]
    chosen = {
        name: contender
        for name, contender in contenders(asked.dray).items()
        if not asked.only or any(part.lower() in name.lower() for part in asked.only)
    }
    if not chosen and not asked.against:
        parser.error(f"--only {asked.only}: no such contender; there are {', '.join(contenders(asked.dray))}")

    train, held_out = data.training_data(asked.data, rows), data.held_out_data(asked.data)
    data.read_into_page_cache(train)
    results = {name: Runs() for name in chosen}
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        job = Job(train, held_out, scratch / "run", rounds, env)
        for repeat in range(repeats):
            for name, contender in chosen.items():
                for disturbed in (False, True):
                    how = "a worker killed" if disturbed else "undisturbed"
                    print(f"[{repeat + 1}/{repeats}] {name}, {how} ... ", end="", flush=True)
                    print(_run_once(contender, job, results[name], asked.limit, disturbed=disturbed), flush=True)
                    shutil.rmtree(job.out, ignore_errors=True)
        figures: dict[str, Any] = {name: {**asdict(runs), "extra": runs.extra} for name, runs in results.items()}
        tables, wanted = [_table(results)] if chosen else [], musts(results) if chosen else []
        if DRAY in results and results[DRAY].extra:
            tables.append(_dray_table(results[DRAY]))
        if asked.against:
            compared = revision.compare(asked.against, asked.dray, train, rounds, repeats, env, scratch)
            tables.append(compared.table)
            wanted += compared.musts
            figures["undisturbed"] = compared.seconds

    title = f"One worker of 2 killed at half of {rounds} rounds: {rows:,} rows x {data.FEATURES} features"
    full = (rows, rounds) == FULL[:2]
    problems = _problems(results, LARGEST_DIFFERENCE[full])
    complete = full and not asked.only and not problems
    reporting.publish(
        "recovery", f"{title}, {asked.cores} cores, median of {repeats}", machine, tables, wanted,
        figures, save=complete,
    )  # fmt: skip
    for problem in problems:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _run_once(contender: Contender, job: Job, runs: Runs, limit_s: float, *, disturbed: bool) -> str:
    job.out.mkdir(parents=True)
    written = job.out / contender.written
    victim = contender.victim(job.rounds // 2) if disturbed else None
    seconds = runs.disturbed if disturbed else runs.undisturbed
    try:
        with killing.killing(written, victim) as kill:
            measured = measure.run(contender.command(job), job.env, job.out, timeout_s=limit_s)
        # The shallowest: checkpoints lie deeper.
        model = min(job.out.rglob("model.ubj"), key=lambda path: len(path.parts), default=job.out / "model.ubj")
        auc, _ = quality(model, job.held_out)
        if (trained := rounds_of(model)) != job.rounds:
            raise ValueError(f"it trained {trained} rounds, not {job.rounds}")
        if disturbed and kill.pid is None:
            raise ValueError("it ended before anybody was killed")
    except (measure.CommandFailedError, OSError, ValueError) as problem:
        seconds.append(None)
        if disturbed:
            runs.stories.append({"happened": _in_short(str(problem)), "detail": str(problem)})
        else:
            runs.failures.append(str(problem))
        return f"failed: {problem}"
    seconds.append(measured.seconds)
    runs.auc.append(auc)
    if "model_digest" in measured.report:
        runs.digests.append(measured.report["model_digest"])
    if not disturbed:
        return f"{measured.seconds:.1f} s, AUC {auc:.4f}"
    runs.stories.append(contender.story(killing.lines(written)))
    return f"{measured.seconds:.1f} s, AUC {auc:.4f}: {runs.stories[-1]['happened']}"


def rounds_of(model: Path) -> int:
    import xgboost as xgb

    return int(xgb.Booster(model_file=model).num_boosted_rounds())


def _in_short(problem: str) -> str:
    """Return how a contender failed, for the table: its exit and the last thing that it said."""
    first, *rest = problem.splitlines()
    said = next((line.strip() for line in reversed(rest) if line.strip()), "")
    return f"{first}: {said[:80]}" if said and not first.startswith("timed out") else first


def musts(results: dict[str, Runs]) -> list[Must]:
    dray, ray_train = results.get(DRAY, Runs()), results.get(RAY_TRAIN, Runs())
    extra = statistics.median(dray.extra) if dray.extra else None
    reloads = [story["reload_s"] for story in dray.stories if "reload_s" in story]
    beyond = [more - reload for more, reload in zip(dray.extra, reloads, strict=False)]
    by_survivors = [story["rows_reloaded_by_survivors"] for story in dray.stories if "reload_s" in story]
    theirs = statistics.median(ray_train.extra) if ray_train.extra else None
    return [
        Must("dray's extra time beyond the reload", statistics.median(beyond) if beyond else None, 2.0, " s"),
        Must("dray's extra time against Ray Train's", extra / theirs if extra and theirs else None, 0.25),
        Must("rows that dray's survivor reloaded", max(by_survivors) if by_survivors else None, 0, " rows"),
        Must("digests of dray's runs, disturbed or not", len(set(dray.digests)) if dray.digests else None, 1, ""),
    ]


def _table(results: dict[str, Runs]) -> str:
    def middle(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        return spread(known) if known else "failed"

    def happened(runs: Runs) -> str:
        told = [story["happened"] for story in runs.stories]
        return max(set(told), key=told.count) if told else "-"

    rows = [
        [
            name,
            middle(runs.undisturbed),
            middle(runs.disturbed),
            spread(runs.extra) if runs.extra else "-",
            f"{statistics.median(runs.auc):.4f}" if runs.auc else "-",
            happened(runs),
        ]
        for name, runs in results.items()
    ]
    return reporting.table(
        ["contender", "undisturbed s (min-max)", "a worker killed s", "extra s", "AUC", "what happened"], rows
    )


def _dray_table(runs: Runs) -> str:
    stories = [story for story in runs.stories if "reload_s" in story]
    names = {
        "noticed after s": "noticed_after_s",
        "replacement ready s": "replacement_started_s",
        "reload s": "reload_s",
        "lost to training going on s": "recovery_s",
    }
    rows = [
        [name, spread(values) if (values := [s[key] for s in stories if s[key] is not None]) else "-"]
        for name, key in names.items()
    ]
    rows.append(["rows reloaded", f"{stories[0]['rows_reloaded']:,}" if stories else "-"])
    return reporting.table(["dray, by its events", "median (min-max)"], rows)


def _problems(results: dict[str, Runs], largest_difference: float) -> list[str]:
    """Return what makes the comparison void. That another contender does not survive the kill is a result."""
    failed = {name: runs.failures[0] for name, runs in results.items() if runs.failures}
    problems = [f"{name} failed undisturbed: {_in_short(failure)}" for name, failure in failed.items()]
    if DRAY in results and None in results[DRAY].disturbed:
        problems.append(f"{DRAY} did not survive: {results[DRAY].stories[0]['happened']}")
    expected = next((runs.auc[0] for runs in results.values() if runs.auc), 0.0)
    problems += [
        f"{name} trained another model: AUC {auc:.4f}, not {expected:.4f}"
        for name, runs in results.items()
        for auc in runs.auc
        if abs(auc - expected) > largest_difference
    ]
    return problems


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
