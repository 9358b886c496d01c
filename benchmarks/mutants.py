"""Do the tests notice? Small changes to the pure modules at random places, each with the nearest unit tests.

python benchmarks/mutants.py                          60 changes, of a random seed
python benchmarks/mutants.py --sample 10 --seed 7     ten, of seed 7
python benchmarks/mutants.py --only 'data/*'          in some modules
python benchmarks/mutants.py --all                    in all modules that tests know, not only in the pure ones

Which changes there are, and which tests are near: mutations.py. All happens to a copy of the tree, in namespaces of its
own (Linux, `unshare`): a mutant may end processes and remove files that are not its own, so it sees none but its own
processes, and can write nowhere but beside the copy. Exits with 1 when less than 85 % of the changes were noticed.
"""

import argparse
import fnmatch
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mutations import Mutation, count, is_pure, mutate, nearest_tests

REPOSITORY = Path(__file__).parent.parent
COPIED = ("src", "tests", "docs", "examples", "benchmarks", "pyproject.toml", "README.md")
ENOUGH = 0.85
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0")
LEAST_LIMIT_S = 60.0
# Inside, /tmp is the scratch directory and everything else is read-only. The shell is the first process of the
# namespace: it reaps what loses its parent, and its end ends all.
ENTER = """
mounts=$(cat /proc/self/mounts)
mount --bind "$1" /tmp && mount -t tmpfs tmpfs /dev/shm && cd /tmp/tree || exit 97
while read -r _ place kind options _; do
    case "$place $kind $options" in
        "/tmp"*|"/dev/shm "*|*" proc "*|*" sysfs "*|*" devtmpfs "*|*" devpts "*|*" cgroup"*|*" ro"|*" ro,"*) ;;
        *) [ ! -e "$place" ] || mount -o remount,bind,ro "$place" || exit 97;;
    esac
done << end
$mounts
end
shift
"$@"
exit $?
"""
NO_NAMESPACE = 97


@dataclass(frozen=True)
class Result:
    module: Path
    mutation: Mutation
    seconds: float
    how: str
    """How it was noticed; empty when it was not."""


class Workshop:
    """A copy of the tree in a scratch directory, where tests run on changed modules, one at a time."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._tree = scratch / "tree"
        self._writes = 0
        self._runs = 0
        scratch.chmod(0o1777)  # it is to be a /tmp: a database that tests start runs as another user
        for name in COPIED:
            place = REPOSITORY / name
            if place.is_dir():
                shutil.copytree(place, self._tree / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            elif place.exists():
                shutil.copy2(place, self._tree / name)
        self._prefix = ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if os.getuid():
            self._prefix += ["--user", "--map-root-user"]

    def run(
        self, tests: Sequence[Path], limit_s: float, *, compiles: bool = False, options: Sequence[str] = ()
    ) -> tuple[int | None, str]:
        """Return pytest's exit code, None when the time is over, and what it said."""
        self._runs += 1
        # numba does not see that a kernel calls another one that has changed: what a mutant compiles is its own.
        cache = f"/tmp/numba-{self._runs}" if compiles else "/tmp/numba"
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp"}
        env |= {"PYTHONPATH": "/tmp/tree/src", "NUMBA_CACHE_DIR": cache}
        files = [str(test.relative_to(REPOSITORY)) for test in tests]
        command = [
            *self._prefix,
            "sh",
            "-c",
            ENTER,
            "sh",
            str(self._scratch),
            sys.executable,
            *PYTEST,
            *options,
            *files,
        ]
        process = subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if process.poll() is None:
                process.kill()  # with all that runs in its namespace
                process.communicate()
            self._tidy()
        if process.returncode == NO_NAMESPACE or said.startswith("unshare:"):
            sys.exit(f"Mutants need namespaces, which cannot be made here: {said.strip()}\nFix: run this as root.")
        return process.returncode, said

    def write(self, module: Path, code: str) -> None:
        path = self._tree / module.relative_to(REPOSITORY)
        path.write_text(code, encoding="utf-8")
        # Python takes compiled code for current by the second of the change and the size: no two are the same.
        self._writes += 1
        os.utime(path, (self._writes * 10, self._writes * 10))

    def _tidy(self) -> None:
        for place in self._scratch.iterdir():
            if place.name not in ("tree", "numba"):
                shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink()


def main() -> int:
    asked = _options()
    signal.signal(signal.SIGTERM, _end)
    near = {
        module: tests
        for module, tests in nearest_tests(REPOSITORY / "src" / "dray", REPOSITORY / "tests" / "unit").items()
        if fnmatch.fnmatch(_name(module), asked.only) and (asked.all or is_pure(module))
    }
    code = {module: module.read_text(encoding="utf-8") for module in near}
    places = [(module, index) for module in near for index in range(count(code[module]))]
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    chosen = random.Random(seed).sample(places, min(asked.sample, len(places)))
    print(f"seed {seed}: {len(chosen)} of {len(places):,} changes to {len(near)} modules", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        workshop = Workshop(Path(scratch))
        usual_s = _unchanged(workshop, sorted({test for module, _ in chosen for test in near[module]}))
        results = []
        for number, (module, index) in enumerate(chosen, start=1):
            mutation = mutate(code[module], index)
            workshop.write(module, mutation.code)
            limit_s = LEAST_LIMIT_S + 3 * sum(usual_s[test] for test in near[module])
            began = time.monotonic()
            ended, said = workshop.run(near[module], limit_s, compiles="compiling import" in code[module])
            workshop.write(module, code[module])
            results.append(Result(module, mutation, time.monotonic() - began, _how(ended, said)))
            print(f"{number:3} {_row(results[-1])}", flush=True)
    return _report(results, seed)


def _unchanged(workshop: Workshop, tests: Sequence[Path]) -> dict[Path, float]:
    """Return the seconds that each file of tests takes on unchanged code; end when one fails."""
    began = time.monotonic()
    ended, said = workshop.run(tests, 3600, options=("--durations=0",))
    if ended != 0:
        sys.exit(f"The tests fail on unchanged code:\n{said.partition('slowest durations')[0][-5000:]}")
    seconds = dict.fromkeys(tests, 0.0)
    for taken, file in re.findall(r"^([\d.]+)s (?:setup|call|teardown) +([^:]+)::", said, re.MULTILINE):
        seconds[REPOSITORY / file] += float(taken)
    print(f"{len(tests)} files of tests pass on unchanged code, in {time.monotonic() - began:.0f} s", flush=True)
    return seconds


def _how(ended: int | None, said: str) -> str:
    if ended is None:
        return "hangs"
    if ended == 0:
        return ""
    if ended in (3, 4, 5):  # pytest's own trouble: nothing was tested
        sys.exit(f"pytest ended with {ended}:\n{said[-3000:]}")
    failed = [
        line.split(" - ")[0].split("::")[-1] for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))
    ]
    if ended == 1 and not failed:
        sys.exit(f"The tests fail, and pytest does not say which:\n{said[-3000:]}")
    return failed[0][:70] if failed else "does not load" if ended == 2 else f"ends with {ended}"


def _row(result: Result) -> str:
    where = f"{_name(result.module)}:{result.mutation.line}"
    noticed = f"noticed ({result.how})" if result.how else "SURVIVED"
    return f"{where:42} {result.mutation.change:60} {noticed} {result.seconds:.0f} s"


def _report(results: Sequence[Result], seed: int) -> int:
    survivors = [result for result in results if not result.how]
    share = 1 - len(survivors) / max(1, len(results))
    print(f"\nseed {seed}: {len(results) - len(survivors)} of {len(results)} noticed, {share:.0%}")
    for result in sorted(survivors, key=lambda result: (result.module, result.mutation.line)):
        print(f"    {_row(result)}")
    if share < ENOUGH:
        print(f"That is less than {ENOUGH:.0%}: have a test notice some of these.")
    return int(share < ENOUGH)


def _name(module: Path) -> str:
    return str(module.relative_to(REPOSITORY / "src" / "dray"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make small changes and see whether the nearest tests notice.")
    parser.add_argument("--sample", type=int, default=60, help="how many changes (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the choice; a random one if not given")
    parser.add_argument("--only", default="*", help="modules, as a pattern of their path in src/dray")
    parser.add_argument("--all", action="store_true", help="not only in modules that say that they are pure")
    return parser.parse_args()


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
