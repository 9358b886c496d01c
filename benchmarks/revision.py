"""The same undisturbed runs by this working copy and by another revision of it, interleaved."""

import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bench
import measure
import reporting
from reporting import Must, ratio, spread

REPOSITORY = Path(__file__).parent.parent
LIMIT = 1.03
WORKERS = {"dray, one process": 0, "dray, 2 workers": 2}


@dataclass(frozen=True)
class Compared:
    table: str
    musts: list[Must]
    seconds: dict[str, list[float]]


def compare(
    revision: str, dray: str, train: Path, rounds: int, repeats: int, env: dict[str, str], scratch: Path
) -> Compared:
    """Train undisturbed with both; the order changes from repeat to repeat."""
    taken: dict[tuple[str, str], list[float]] = {(name, side): [] for name in WORKERS for side in ("then", "now")}
    with worktree(revision, scratch / "worktree") as source:
        for repeat in range(repeats):
            for name, workers in WORKERS.items():
                for side in ("then", "now") if repeat % 2 else ("now", "then"):
                    # Before the path that the editable installation adds; Ray's workers inherit it.
                    own = env if side == "now" else {**env, "PYTHONPATH": str(source)}
                    which = revision if side == "then" else "here"
                    print(f"[{repeat + 1}/{repeats}] {name}, {which} ... ", end="", flush=True)
                    command = bench.dray_train(dray, train, scratch / "run", rounds, workers=workers)
                    measured = measure.run(command, own, scratch / "logs")
                    taken[name, side].append(measured.seconds)
                    print(f"{measured.seconds:.1f} s", flush=True)
                    shutil.rmtree(scratch / "run")
    middle = {key: statistics.median(values) for key, values in taken.items()}
    rows = [
        [
            name,
            spread(taken[name, "then"]),
            spread(taken[name, "now"]),
            ratio(middle[name, "now"], middle[name, "then"]),
        ]
        for name in WORKERS
    ]
    return Compared(
        reporting.table(["undisturbed", f"{revision} s (min-max)", "here s", "ratio"], rows),
        [
            Must(f"{name}, undisturbed, against {revision}", middle[name, "now"] / middle[name, "then"], LIMIT)
            for name in WORKERS
        ],
        {f"{name}, {revision if side == 'then' else 'here'}": values for (name, side), values in taken.items()},
    )


@contextmanager
def worktree(revision: str, place: Path) -> Iterator[Path]:
    """Check the revision out beside; give the directory of its sources."""
    git = ["git", "-C", str(REPOSITORY)]
    added = subprocess.run(
        [*git, "worktree", "add", "--quiet", "--detach", str(place), revision],
        capture_output=True,
        text=True,
        check=False,
    )
    if added.returncode:
        raise measure.CommandFailedError(f"git has no worktree for {revision}:\n{added.stderr}")
    try:
        yield place / "src"
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(place)], check=False)
