"""Explicit ratings: speed against scikit-surprise, workers against threads, accuracy in folds, growth and memory."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import ratings
import reporting
from factorization_job import (
    Job,
    Part,
    Runs,
    above,
    epochs_of_run,
    over,
    rmse_of_factors,
    rmse_of_run,
    run_in,
    table_of,
    train_explicit,
)
from measure import run
from reporting import Must

RATINGS = 20_000_000
EPOCHS = 5
SURPRISE = "scikit-surprise SVD"
ONE_PROCESS = "dray, one process"
ONE_WORKER = "dray, 1 worker with all threads"
TWO_WORKERS = "dray, 2 workers with half of them"
FOLDS = 5
# What scikit-surprise's SVD has on the real data, by the number of ratings.
REAL = {100_000: 0.934, 1_000_209: 0.873}


def speed(job: Job) -> Part:
    """An epoch on 20M ratings by dray in one process and on workers, and by scikit-surprise: interleaved."""
    made = ratings.made(job.cache, ratings.ml_20m(RATINGS // job.scale))
    test = ratings.read(made / "test")
    names = [ONE_PROCESS, SURPRISE] if job.learner_alone else [ONE_PROCESS, ONE_WORKER, TWO_WORKERS, SURPRISE]
    runs = {name: Runs() for name in names}
    for repeat in range(job.repeats):
        for name in names:
            print(f"[{repeat + 1}/{job.repeats}] {name} ... ", end="", flush=True)
            if name == SURPRISE:
                out = job.scratch / "factors.npz"
                arguments = (made / "train", "--out", out, "--epochs", EPOCHS)
                measured = run_in(job, job.surprise, "surprise_svd.py", *arguments)
                runs[name].add(measured, measured.report["epoch_seconds"], rmse_of_factors(out, test))
            else:
                workers, threads = {
                    ONE_PROCESS: (0, job.threads), ONE_WORKER: (1, job.threads), TWO_WORKERS: (2, job.threads // 2)
                }[name]  # fmt: skip
                _train(job, made / "train", EPOCHS, workers, threads, runs[name], lambda rmse: rmse(test))
            one = runs[name]
            print(f"{one.epoch_seconds[-1]:.3f} s an epoch, RMSE {one.quality[-1]:.4f}", flush=True)
    epoch = {name: one.middle("epoch_seconds") for name, one in runs.items()}
    quality = {name: one.middle("quality") for name, one in runs.items()}
    count = f"{RATINGS // job.scale / 1e6:g}M ratings"
    two = over(epoch.get(ONE_WORKER), epoch.get(TWO_WORKERS))
    return Part(
        [f"{count} x 100 factors, {EPOCHS} epochs, {job.threads} cores", table_of(runs, SURPRISE, "test RMSE")],
        [
            Must(f"speed of an epoch against {SURPRISE}", over(epoch[SURPRISE], epoch[ONE_PROCESS]), 12, at_least=True),
            Must("test RMSE above its, after as many epochs", above(quality[ONE_PROCESS], quality[SURPRISE]), 0, " %"),
            Must("2 workers x 1 thread, speed against 1 worker x 2 threads", two, 0.9, at_least=True),
        ],
        {name: asdict(one) for name, one in runs.items()},
    )


def accuracy(job: Job) -> Part:
    """RMSE in 5 folds, both with their defaults: 20 epochs, 100 factors."""
    sources = {"made, shape of ML-100K": ratings.read(ratings.made(job.cache, ratings.ml_100k()) / "train")}
    if job.scale == 1:
        sources["made, shape of ML-1M"] = ratings.read(ratings.made(job.cache, ratings.ml_1m()) / "train")
    sources |= {path.name: ratings.read_file(path) for path in job.files}
    rows, musts, figures = [], [], {}
    for name, pairs in sources.items():
        print(f"{name}, {FOLDS} folds ... ", end="", flush=True)
        file = job.scratch / "folds.npz"
        fold = np.random.default_rng(0).permutation(len(pairs)) % FOLDS
        np.savez(file, users=pairs.users, items=pairs.items, ratings=pairs.ratings, fold=fold)
        theirs = run_in(job, job.surprise, "surprise_svd.py", file).report["rmse"]
        ours = run_in(job, sys.executable, "learner_explicit.py", file, "--threads", job.threads).report["rmse"]
        print(f"dray {np.mean(ours):.4f}, {SURPRISE} {np.mean(theirs):.4f}", flush=True)
        rows.append([f"{name}, {len(pairs):,} ratings", f"{np.mean(ours):.4f}", f"{np.mean(theirs):.4f}"])
        musts.append(Must(f"RMSE above {SURPRISE}'s, {name}", above(np.mean(ours), np.mean(theirs)), 0, " %"))
        if len(pairs) in REAL:
            musts.append(Must(f"RMSE, {name}", float(np.mean(ours)), REAL[len(pairs)], ""))
        figures[name] = {"dray": ours, SURPRISE: theirs}
    header = ["5 folds, 20 epochs, defaults", "dray RMSE", f"{SURPRISE} RMSE"]
    return Part([reporting.table(header, rows)], musts, figures)


def growth(job: Job) -> Part:
    """Time and memory of a whole training in one process: of few ratings, of 13.3M, and of 1.5 times as many."""
    most = RATINGS // job.scale
    sizes = {"few": 10_000, "two thirds": most * 2 // 3, "all": most}
    made = {name: ratings.made(job.cache, ratings.ml_20m(size)) for name, size in sizes.items()}
    counts = {name: len(ratings.read(path / "train")) for name, path in made.items()}
    runs = {name: Runs() for name in sizes}
    for repeat in range(job.repeats):
        for name in sizes:
            print(f"[{repeat + 1}/{job.repeats}] {counts[name]:,} ratings ... ", end="", flush=True)
            _train(job, made[name] / "train", EPOCHS, 0, job.threads, runs[name], lambda _: 0.0)
            print(f"{runs[name].seconds[-1]:.1f} s, {runs[name].peak_memory_bytes[-1] / 1e9:.2f} GB", flush=True)
    seconds = {name: one.middle("seconds") for name, one in runs.items()}
    memory = {name: one.middle("peak_memory_bytes") for name, one in runs.items()}
    # To start takes as long, and as much memory, whatever the data: without it, growth would look better than it is.
    work = {name: seconds[name] - seconds["few"] for name in ("two thirds", "all")}
    bytes_a_rating = (memory["all"] - memory["few"]) / counts["all"]
    more = counts["all"] / counts["two thirds"]
    rows = [
        [
            f"{counts[name]:,} ratings",
            reporting.spread(one.seconds),
            f"{one.middle('epoch_seconds'):.3f}",
            f"{memory[name] / 1e9:.2f} GB",
        ]
        for name, one in runs.items()
    ]
    header = ["one process, start to end", "total s (min-max)", "an epoch s", "peak memory"]
    return Part(
        [reporting.table(header, rows)],
        [
            Must(f"time for {more:.2f}x the ratings, without the start", over(work["all"], work["two thirds"]), 1.6),
            Must("peak memory beyond that of few ratings", bytes_a_rating, 24, " bytes a rating"),
        ],
        {name: {**asdict(one), "ratings": counts[name]} for name, one in runs.items()},
    )


Judge = Callable[[Callable[[ratings.Pairs], float]], float]


def _train(job: Job, train: Path, epochs: int, workers: int, threads: int, runs: Runs, judge: Judge) -> None:
    """Train with dray, by the command or by the learner alone; `judge` may ask for the RMSE of some pairs."""
    if job.learner_alone:
        out = job.scratch / "factors.npz"
        arguments = (train, "--out", out, "--epochs", epochs, "--threads", threads)
        measured = run_in(job, sys.executable, "learner_explicit.py", *arguments)
        runs.add(measured, measured.report["epoch_seconds"], judge(lambda test: rmse_of_factors(out, test)))
        return
    out = job.scratch / "run"
    measured = run(train_explicit(job, train, out, epochs, workers, threads), job.env, job.scratch / "logs")
    runs.add(measured, epochs_of_run(out), judge(lambda test: rmse_of_run(out, test)))
    shutil.rmtree(out)
