"""From submitting a script to its first line of output, beside `ray job submit`: `python benchmarks/jobs.py`."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import bench
import measure
import psutil
import reporting
from reporting import Must
from running_head import free_port

LIMIT = 1.3
SCRIPT = "import time\nprint('first line', flush=True)\ntime.sleep(0.5)\nprint('last line', flush=True)\n"


def main() -> int:
    parser = bench.options("Time jobs: submitted, first line, end.")
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    repeats = 2 if asked.quick else asked.repeats
    machine = reporting.hardware()
    with bench.session(asked.cores) as (env, scratch):
        place = scratch / "code"
        place.mkdir()
        (place / "script.py").write_text(SCRIPT)
        env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}
        head, url = _start_head(env, scratch, asked.cores)
        try:
            ray = str(Path(sys.executable).with_name("ray"))
            contenders = {
                "ray job submit": [ray, "job", "submit", "--working-dir", str(place), "--", "python", "script.py"],
                "dray job submit": [asked.dray, "job", "submit", str(place / "script.py")],
            }
            # Python would keep lines for a pipe till there are many of them.
            client = env | {"RAY_API_SERVER_ADDRESS": url, "PYTHONUNBUFFERED": "1"}
            first: dict[str, list[float]] = {name: [] for name in contenders}
            whole: dict[str, list[float]] = {name: [] for name in contenders}
            # The first of each uploads the files, which the others find there, and is not counted.
            for repeat in range(repeats + 1):
                for name in sorted(contenders, reverse=repeat % 2 == 1):
                    to_first, to_end = _time(name, contenders[name], client)
                    if repeat:
                        first[name].append(to_first)
                        whole[name].append(to_end)
        finally:
            _end(head, env["RAY_TMPDIR"])
    table = reporting.table(
        ["command", "s to the first line (min-max)", "s to the end (min-max)"],
        [[name, reporting.spread(first[name]), reporting.spread(whole[name])] for name in contenders],
    )
    ratio = statistics.median(first["dray job submit"]) / statistics.median(first["ray job submit"])
    musts = [Must("first line, against ray job submit", ratio, LIMIT)]
    title = f"Jobs: from the command to its first line, median of {repeats}"
    data = {"first_line_seconds": first, "end_seconds": whole}
    reporting.publish("jobs", title, machine, [table], musts, data, save=not asked.quick)
    return 0


def _time(name: str, command: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    started = time.perf_counter()
    with subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        assert job.stdout is not None
        first = 0.0
        for line in job.stdout:
            if line.rstrip() == "first line":
                first = time.perf_counter() - started
        if job.wait() or not first:
            raise measure.CommandFailedError(f"{name}: exit code {job.returncode}")
    return first, time.perf_counter() - started


def _start_head(env: Mapping[str, str], scratch: Path, cpus: int) -> tuple[subprocess.Popen[bytes], str]:
    """Start a head with a dashboard, and wait till it takes jobs and has come to rest."""
    dashboard = free_port()
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--port={free_port()}", f"--num-cpus={cpus}"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--temp-dir={env['RAY_TMPDIR']}"),
        f"--dashboard-agent-listen-port={free_port()}",
    ]
    log = scratch / "head.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    url, deadline = f"http://127.0.0.1:{dashboard}", time.monotonic() + 90
    listing = [str(Path(sys.executable).with_name("ray")), "job", "list", "--address", url]
    while subprocess.run(listing, env=dict(env), capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            _end(process, env["RAY_TMPDIR"])
            raise measure.CommandFailedError(f"the Ray head did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.5)
    time.sleep(5)
    return process, url


def _end(head: subprocess.Popen[bytes], directory: str) -> None:
    """End the head and every process of its session, which carry its directory in their commands."""
    processes = measure.tree(head.pid)
    for process in psutil.process_iter(["cmdline"]):
        if any(directory in word for word in process.info["cmdline"] or ()):
            processes.add(process)
    head.terminate()
    measure.end(processes, grace_s=10)


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
