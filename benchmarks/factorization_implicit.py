"""Implicit feedback beside `implicit`: an iteration of alternating least squares, and the best items of all users."""

import statistics
import sys
from dataclasses import asdict
from pathlib import Path

import measure
import numpy as np
import ratings
import reporting
from factorization_job import DRAY, Job, Part, Runs, above, over, run_in, table_of
from reporting import Must

EVENTS, USERS, ITEMS = 5_000_000, 100_000, 100_000
FACTORS = 64
ITERATIONS = 15
IMPLICIT = "implicit"
IMPLICIT_ALPHA = "implicit, dray's alpha"
IMPLICIT_BOTH = "implicit, dray's alpha and regularization"
THEIRS = (IMPLICIT, IMPLICIT_ALPHA, IMPLICIT_BOTH)
"""With its defaults it finds less than it can: it is also given what dray has."""
# It asks for this itself: its threads are its own.
ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
MOST_MEMORY_GB = 2.0


def speed(job: Job) -> Part:
    """An iteration, and what the factors are worth after 15."""
    made = _made(job)
    train, test = ratings.read(made / "train"), ratings.read(made / "test")
    runs = {name: Runs() for name in (DRAY, *THEIRS)}
    for repeat in range(job.repeats):
        for name in runs:
            if repeat and name in (IMPLICIT_ALPHA, IMPLICIT_BOTH):
                continue  # run for the quality; once is enough for that
            print(f"[{repeat + 1}/{job.repeats}] {name} ... ", end="", flush=True)
            measured = _train(job, name, made / "train", job.scratch / "factors.npz", ITERATIONS)
            found = _ndcg(job.scratch / "factors.npz", train, test, job.threads)
            runs[name].add(measured, measured.report["epoch_seconds"], found)
            print(f"{runs[name].epoch_seconds[-1]:.3f} s an iteration, NDCG@10 {found:.4f}", flush=True)
    best = max(runs[name].middle("quality") for name in THEIRS)
    title = f"{len(train):,} events, {FACTORS} factors, {ITERATIONS} iterations, {job.threads} threads"
    ours = runs[DRAY]
    fastest = min(runs[name].middle("epoch_seconds") for name in THEIRS)
    speed_up = over(fastest, ours.middle("epoch_seconds"))
    return Part(
        [title, table_of(runs, IMPLICIT, "NDCG@10")],
        [
            Must("speed of an iteration against the fastest of implicit's", speed_up, 0.9, at_least=True),
            Must("NDCG@10 above the best of implicit's", above(ours.middle("quality"), best), -1, " %", at_least=True),
        ],
        {name: asdict(one) for name, one in runs.items()},
    )


def top(job: Job) -> Part:
    """The 10 best items of every user, without those that the user had: of trained factors, and of random ones."""
    made = _made(job)
    rows, musts, figures = [], [], {}
    for kind, factors in (("trained", _trained(job, made)), ("random", _random(job, made))):
        seconds: dict[str, list[float]] = {DRAY: [], "implicit": []}
        memory: dict[str, list[int]] = {DRAY: [], "implicit": []}
        repeats = job.repeats if kind == "trained" else 1
        for repeat in range(repeats):
            lists = {}
            for name in seconds:
                print(f"[{repeat + 1}/{repeats}] top 10, {kind} factors, {name} ... ", end="", flush=True)
                python, script = (
                    (sys.executable, "learner_top.py") if name == DRAY else (job.implicit, "implicit_top.py")
                )
                out = job.scratch / "lists.npy"
                arguments = (factors, made / "train", out, "--threads", job.threads)
                measured = run_in(job, python, script, *arguments, **ONE_BLAS_THREAD)
                seconds[name].append(measured.report["top_seconds"])
                memory[name].append(measured.peak_memory_bytes)
                lists[name] = np.sort(np.load(out), axis=1)
                print(f"{seconds[name][-1]:.2f} s, {memory[name][-1] / 1e9:.2f} GB", flush=True)
        same = float(np.mean(lists[DRAY] == lists["implicit"]))
        middle = {name: statistics.median(values) for name, values in seconds.items()}
        rows += [
            [
                f"{kind} factors, {name}",
                reporting.spread(seconds[name]),
                reporting.ratio(middle["implicit"], middle[name]),
                f"{max(memory[name]) / 1e9:.2f} GB",
                f"{same:.4f}",
            ]
            for name in seconds
        ]
        speed_up = over(middle["implicit"], middle[DRAY])
        musts.append(Must(f"top 10 of all, {kind} factors, speed against implicit", speed_up, 1.0, at_least=True))
        musts.append(Must(f"the same, peak memory of {DRAY}", max(memory[DRAY]) / 1e9, MOST_MEMORY_GB, " GB"))
        figures[kind] = {"seconds": seconds, "peak_memory_bytes": memory, "same_items": same}
    users, items = USERS // job.scale, ITEMS // job.scale
    header = [f"top 10, {users:,} users x {items:,} items", "s (min-max)", "speed", "peak memory", "items in both"]
    return Part([reporting.table(header, rows)], musts, figures)


def one_user(job: Job) -> Part:
    """Milliseconds till one user's ten best of a million items are there: random vectors are the hardest case."""
    rows, musts, figures = [], [], {}
    items = 1_000_000 // job.scale
    for kind in ("random", "falling"):
        for factors in (64, 100):
            print(f"one user's top 10 of {items:,}, {kind} vectors, {factors} factors ... ", end="", flush=True)
            arguments = (kind, "--items", items, "--factors", factors)
            found = run_in(job, sys.executable, "learner_one_user.py", *arguments).report
            print(f"{found['ms']:.2f} ms", flush=True)
            rows.append(
                [
                    f"{kind}, {factors} factors",
                    f"{found['ms']:.2f}",
                    f"{found['p90_ms']:.2f}",
                    f"{found['first_ms']:.0f}",
                ]
            )
            musts.append(Must(f"one user's top 10, {kind} vectors, {factors} factors", found["ms"], 5.0, " ms"))
            figures[f"{kind}-{factors}"] = found
    header = [f"one user's top 10 of {items:,} items", "median ms", "90 % ms", "first ms"]
    return Part([reporting.table(header, rows)], musts, figures)


def _made(job: Job) -> Path:
    return ratings.made(job.cache, ratings.events(EVENTS // job.scale, USERS // job.scale, ITEMS // job.scale))


def _train(job: Job, name: str, train: Path, out: Path, iterations: int) -> measure.Measured:
    common = (train, "--out", out, "--factors", FACTORS, "--iterations", iterations, "--threads", job.threads)
    if name == DRAY:
        return run_in(job, sys.executable, "learner_implicit.py", *common)
    # Its confidence of an event is alpha, dray's 1 + alpha. dray's regularization grows with the confidence of a row,
    # which is that of all items, nearly: 0.003 times their number.
    alpha = 1.0 if name == IMPLICIT else 1 + 10.0
    regularization = 0.003 * ITEMS / job.scale if name == IMPLICIT_BOTH else 0.01
    settings = ("--alpha", alpha, "--regularization", regularization)
    return run_in(job, job.implicit, "implicit_als.py", *common, *settings, **ONE_BLAS_THREAD)


def _ndcg(factors: Path, train: ratings.Pairs, test: ratings.Pairs, threads: int) -> float:
    """Return the NDCG@10 of any contender's factors, over all items that a user has not had."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from dray.learners.factorization.factors import Factors, Seen
    from whole_evaluation import ranking_quality

    held = np.load(factors)
    known = (test.users < len(held["users"])) & (test.items < len(held["items"]))
    seen = Seen.of(train.users, train.items, len(held["users"]))
    pairs = test.of(known)
    return (
        ranking_quality(Factors.of(held["users"], held["items"]), seen, pairs.users, pairs.items, threads=threads)
        .at[0]
        .ndcg
    )


def _trained(job: Job, made: Path) -> Path:
    """Return factors of the events, trained once by dray."""
    path = made / "factors.npz"
    if not path.exists():
        print("Training factors to recommend from", flush=True)
        _train(job, DRAY, made / "train", job.scratch / "trained.npz", 5)
        path.write_bytes((job.scratch / "trained.npz").read_bytes())
    return path


def _random(job: Job, made: Path) -> Path:
    """Return factors of the same shape without any pattern, in which no item stands out: the most work there can be."""
    held = np.load(_trained(job, made))
    random = np.random.default_rng(0)
    path = job.scratch / "random.npz"
    shapes = {side: held[side].shape for side in ("users", "items")}
    np.savez(path, **{side: random.standard_normal(shape, dtype=np.float32) for side, shape in shapes.items()})
    return path
