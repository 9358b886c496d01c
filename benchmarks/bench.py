"""What the benchmarks share: their options, the dray command, and a place for the files of a run."""

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import data
import measure

CONTENDERS = Path(__file__).parent / "contenders"


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=data.CACHE, help="where the data is made once (%(default)s)")
    parser.add_argument("--dray", default=str(Path(sys.executable).with_name("dray")), help="the dray command")
    parser.add_argument("--cores", type=int, default=2, help="cores to run on (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, to see that everything runs")
    return parser


@contextmanager
def session(cores: int) -> Iterator[tuple[dict[str, str], Path]]:
    """Give the environment of every contender and a directory that is removed at the end."""
    measure.adopt_orphans()
    measure.use_cores(cores)
    # Short and in /tmp: the paths of Ray's sockets may have 107 characters.
    scratch = Path(tempfile.mkdtemp(prefix="dray-bench-", dir="/tmp"))
    env = measure.clean_environment(
        # Given, or Ray would write a token into the home directory and a second cluster could not be joined.
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(32),
        RAY_TMPDIR=str(scratch / "ray"),
    )
    try:
        yield env, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def contender(script: str, *arguments: object) -> list[str]:
    return [sys.executable, str(CONTENDERS / script), *map(str, arguments)]


def dray_train(dray: str, rows: Path, out: Path, rounds: int, workers: int, cluster: str | None = None) -> list[str]:
    command = [dray, "train", str(rows), "--label", data.LABEL, "--rounds", str(rounds), "--param", "max_depth=6"]
    command += ["--workers", str(workers), "--out", str(out), "--json"]
    return [*command, "--cluster", cluster] if cluster else command


def exit_code(main: Callable[[], int]) -> int:
    """Return what main does; a command that failed is told without a traceback."""
    try:
        return main()
    except measure.CommandFailedError as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
