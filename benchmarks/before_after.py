"""What this working copy takes against another revision of it: the same commands, interleaved, each in a clean process.

python benchmarks/before_after.py REVISION               trees, recommenders, a killed worker: about 12 minutes
python benchmarks/before_after.py REVISION --quick       a tenth of the size
"""

import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import bench
import data
import measure
import ratings
import reporting
from killing import killing, victim_of_dray
from reporting import ratio, spread
from revision import worktree


@dataclass(frozen=True)
class Job:
    """A command, and what may happen to it; its run directory is `out`."""

    name: str
    command: Callable[[Path], list[str]]
    kills: bool = False


def jobs(dray: str, cache: Path, quick: bool) -> list[Job]:
    size = 10 if quick else 1
    rows = data.training_data(cache, 1_000_000 // size)
    pairs = ratings.made(cache, ratings.ml_20m(5_000_000 // size))
    events = ratings.made(cache, ratings.events(2_000_000 // size, 50_000, 20_000))

    def trees(workers: int, rounds: int = 60) -> Callable[[Path], list[str]]:
        return lambda out: bench.dray_train(dray, rows, out, rounds, workers=workers)

    def factors(where: Path, workers: int, *keys: str) -> Callable[[Path], list[str]]:
        command = [dray, "train", str(where), "--model", "factorization", "--user", "user", "--item", "item", *keys]
        return lambda out: [*command, "--workers", str(workers), "--rounds", "5", "--out", str(out), "--json"]

    return [
        Job("trees, one process", trees(0)),
        Job("trees, 2 workers", trees(2)),
        Job("trees, 2 workers, one killed", trees(2, 200), kills=True),
        Job("ratings, one process", factors(pairs, 0, "--rating", "rating", "--param", "factors=50")),
        Job("ratings, 2 workers", factors(pairs, 2, "--rating", "rating", "--param", "factors=50")),
        Job("events, one process", factors(events, 0, "--param", "factors=32")),
        Job("events, 2 workers", factors(events, 2, "--param", "factors=32")),
    ]


def main() -> int:
    parser = bench.options(__doc__ or "")
    parser.add_argument("revision", help="what to compare with")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    machine = reporting.hardware()
    taken: dict[tuple[str, str], list[float]] = {}
    with bench.session(asked.cores) as (env, scratch), worktree(asked.revision, scratch / "worktree") as source:
        todo = jobs(asked.dray, asked.data, asked.quick)
        for repeat in range(asked.repeats):
            for job in todo:
                digests = set()
                for side in ("then", "now") if repeat % 2 else ("now", "then"):
                    # Before the path that the editable installation adds; Ray's workers inherit it.
                    own = env if side == "now" else {**env, "PYTHONPATH": str(source)}
                    seconds, digest = run(job, own, scratch)
                    taken.setdefault((job.name, side), []).append(seconds)
                    digests.add(digest)
                    print(f"[{repeat + 1}/{asked.repeats}] {job.name}, {side}: {seconds:.2f} s", flush=True)
                assert len(digests) == 1, f"{job.name}: the models differ: {digests}"
    table = reporting.table(
        ["", f"{asked.revision} s (min-max)", "here s (min-max)", "ratio of medians"],
        [
            [
                job.name,
                spread(taken[job.name, "then"]),
                spread(taken[job.name, "now"]),
                ratio(statistics.median(taken[job.name, "now"]), statistics.median(taken[job.name, "then"])),
            ]
            for job in todo
        ],
    )
    title = f"{asked.revision} and this working copy, interleaved; one model digest for both in every pair"
    seconds = {f"{name}, {side}": values for (name, side), values in taken.items()}
    reporting.publish("before-after", title, machine, [table], [], seconds, save=not asked.quick)
    return 0


def run(job: Job, env: dict[str, str], scratch: Path) -> tuple[float, str]:
    """Return the seconds of a run, and the digest of its model."""
    out = scratch / "run"
    with killing(out / "events.jsonl", victim_of_dray(20) if job.kills else None):
        measured = measure.run(job.command(out), env, scratch / "logs")
    shutil.rmtree(out)
    return measured.seconds, measured.report["model_digest"]


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
