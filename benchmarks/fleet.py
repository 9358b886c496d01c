"""How long a fleet of 3 hosts x 2 workers takes to come up and to go: `python benchmarks/fleet.py`.

The hosts are network namespaces with an SSH server each, all on this machine's cores. Beside dray the same nodes are
started as scripts do it: one SSH command after another, each with a `ray start` to its end. Both take turns.

`ray start` returns when its node has joined, which Ray delays till the node's two agents (Python programs, for metrics
and runtime environments) are up. dray's nodes join at once and their agents follow: when all are there is measured too.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bench
import reporting
from reporting import Must

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.layout import Machine, nodes_of
from hosts.network import why_not
from hosts.sshd import Machines, why_no_sshd

HOSTS = ["a", "b", "c"]
UP_LIMIT_S, DOWN_LIMIT_S, TIMES_FASTER = 25, 5, 2
UP_WITH_AGENTS = "dray up, and all agents"
_QUIET_S = 120.0


def dray_way(machines: Machines) -> tuple[float, float, float]:
    """Return the seconds of `dray cluster up`, till all agents are up, and of `down`, with the start of Python."""
    begun = time.perf_counter()
    up = machines.call("up", fleet=machines.fleet(HOSTS))
    assert not up.error, up.error
    wait_for_agents(machines)
    agents = time.perf_counter() - begun
    wait_for_quiet()
    down = machines.call("down")
    assert not down.error, down.error
    return up.seconds, agents, down.seconds


def wait_for_agents(machines: Machines) -> None:
    fleet = make_fleet(machines.fleet(HOSTS))
    for name in HOSTS:
        host = machines.machines[name]
        machine = Machine(host.address, cpus=2, memory_bytes=8 << 30, shm_bytes=8 << 30)
        nodes = nodes_of(fleet, fleet.machine(name), machine, host.address)
        ports = {str(port) for node in nodes for port in node.agent_ports.values()}
        while not ports <= {
            line.split()[3].rpartition(":")[2] for line in host.run(["ss", "-Hltn"]).stdout.splitlines()
        }:
            time.sleep(0.1)


def one_after_another(machines: Machines) -> float:
    """Return the seconds until all nodes have joined; each command returns when its own node has."""
    fleet = make_fleet(machines.fleet(HOSTS))
    head = machines.machines["a"].address
    commands = []
    for name in HOSTS:
        host = machines.machines[name]
        machine = Machine(host.address, cpus=2, memory_bytes=8 << 30, shm_bytes=8 << 30)
        for node in nodes_of(fleet, fleet.machine(name), machine, head):
            temp = host.directory / "r" / str(node.index)
            commands.append((name, [*node.arguments, f"--temp-dir={temp}"]))
    token = machines.directory / "token"
    token.write_text("t" * 64)
    settings = f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={token}"
    ray = Path(sys.executable).with_name("ray")
    begun = time.perf_counter()
    for name, arguments in commands:
        line = f"{settings} {ray} start {' '.join(arguments)}"
        ssh = ["ssh", "-i", str(machines.key), "-o", f"UserKnownHostsFile={machines.known_hosts}", f"root@{name}", line]
        done = subprocess.run(
            [*machines.laptop.prefix, *ssh], env=machines.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    seconds = time.perf_counter() - begun
    end_ray(machines)
    return seconds


def end_ray(machines: Machines) -> None:
    """End what runs on the hosts. Not by `ray stop`, which would end every Ray on this machine."""
    for host in machines.machines.values():
        while left := [process for process in host.processes() if not process.name().startswith("sshd")]:
            for process in left:
                process.kill()
            time.sleep(0.05)
        shutil.rmtree(host.directory / "r", ignore_errors=True)


def wait_for_quiet() -> None:
    """Return when Ray's agents, which come up after their nodes, have done so: it is the end that is measured next."""
    deadline = time.monotonic() + _QUIET_S
    busy = True
    while busy and time.monotonic() < deadline:
        before = _busy_seconds()
        time.sleep(2)
        busy = _busy_seconds() - before > 1.0


def _busy_seconds() -> float:
    ticks = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]))
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = bench.options("Time a fleet's start and end.")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    if reason := why_not() or why_no_sshd():
        print(f"Not measured: {reason}.")
        return 0
    repeats = 1 if asked.quick else asked.repeats
    machine = reporting.hardware()
    taken: dict[str, list[float]] = {name: [] for name in ("dray up", UP_WITH_AGENTS, "dray down", "one after another")}
    with Machines(HOSTS) as machines:
        for _ in range(repeats):
            wait_for_quiet()
            up, agents, down = dray_way(machines)
            wait_for_quiet()
            other = one_after_another(machines)
            for name, seconds in zip(taken, (up, agents, down, other), strict=True):
                taken[name].append(seconds)
            print(
                f"up {up:.1f} s, agents {agents:.1f} s, down {down:.1f} s; one after another {other:.1f} s", flush=True
            )
    table = reporting.table(["", "s (min-max)"], [[name, reporting.spread(times)] for name, times in taken.items()])
    medians = {name: statistics.median(times) for name, times in taken.items()}
    ratios = {
        name: statistics.median(other / own for other, own in zip(taken["one after another"], taken[name], strict=True))
        for name in ("dray up", UP_WITH_AGENTS)
    }
    musts = [
        Must("3 hosts x 2 workers up", medians["dray up"], UP_LIMIT_S, " s"),
        Must("and down", medians["dray down"], DOWN_LIMIT_S, " s"),
        Must("all nodes joined, faster than one after another", ratios["dray up"], TIMES_FASTER, at_least=True),
    ]
    title = f"A fleet by SSH: 3 hosts x 2 workers and a head on one machine, median of {repeats}"
    data: dict[str, Any] = {"seconds": taken, "times_faster": ratios}
    reporting.publish("fleet", title, machine, [table], musts, data, save=not asked.quick)
    return 0


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
