"""How long `dray --help` takes to answer: `python benchmarks/startup.py`."""

import statistics
import subprocess
import sys
import time

import bench
import measure
import reporting
from reporting import Must

COMMANDS = (["--help"], ["train", "--help"])
LIMIT_MS = 300


def main() -> int:
    parser = bench.options("Time dray's help.")
    parser.add_argument("--repeats", type=int, default=10)
    asked = parser.parse_args()
    machine, env = reporting.hardware(), measure.clean_environment()
    taken: dict[str, list[float]] = {" ".join(["dray", *arguments]): [] for arguments in COMMANDS}
    # The first one of each fills the page cache and is not counted.
    for repeat in range(asked.repeats + 1):
        for name, arguments in zip(taken, COMMANDS, strict=True):
            started = time.perf_counter()
            done = subprocess.run([asked.dray, *arguments], env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise measure.CommandFailedError(f"{name}: exit code {done.returncode}\n{done.stderr[-1000:]}")
            if repeat:
                taken[name].append((time.perf_counter() - started) * 1000)
    table = reporting.table(
        ["command", "ms (min-max)"], [[name, reporting.spread(times)] for name, times in taken.items()]
    )
    musts = [Must(name, statistics.median(times), LIMIT_MS, " ms") for name, times in taken.items()]
    title = f"Start of the command, median of {asked.repeats}"
    reporting.publish("startup", title, machine, [table], musts, {"milliseconds": taken}, save=not asked.quick)
    return 0


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
