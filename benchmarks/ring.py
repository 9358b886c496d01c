"""What it costs that members of a ring prove a secret to each other: dray's ring beside XGBoost's own.

python benchmarks/ring.py              2 members of 1 thread, 500,000 rows x 28 each, 100 rounds, 9 pairs interleaved
python benchmarks/ring.py --quick      50,000 rows, 40 rounds, 3 pairs
"""

import json
import statistics
import subprocess
import sys
from typing import Any

import bench
import measure
import reporting
from reporting import Must
from xgboost.tracker import RabitTracker

from dray.rings.rendezvous import Rendezvous

MEMBERS = 2
KINDS = ("native", "dray")
LIMIT = 1.03


def one_ring(kind: str, rows: int, rounds: int, env: dict[str, str]) -> dict[str, float]:
    """Form a ring of new processes and train in it; return the slowest member's times."""
    script = bench.contender("ring_member.py")
    members = [
        subprocess.Popen(
            [*script, kind, str(member), str(rows), str(rounds)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for member in range(MEMBERS)
    ]
    try:
        for member in members:
            assert member.stdout is not None
            assert member.stdout.readline() == "ready\n", "the member did not start"
        return _trained(kind, members)
    finally:
        for member in members:
            member.kill()
            member.communicate()


def _trained(kind: str, members: list[Any]) -> dict[str, float]:
    if kind == "native":
        tracker = RabitTracker(n_workers=MEMBERS, host_ip="127.0.0.1")
        tracker.start()
        told = _tell(members, tracker.worker_args())
        tracker.wait_for(60)
        return told
    with Rendezvous(MEMBERS, "127.0.0.1") as meeting:
        address = meeting.address
        return _tell(members, {"host": address.host, "port": address.port, "secret": address.secret.hex()})


def _tell(members: list[Any], address: dict[str, Any]) -> dict[str, float]:
    for member in members:
        member.stdin.write(json.dumps(address) + "\n")
        member.stdin.flush()
    told = [json.loads([line for line in member.stdout if line.startswith("{")][-1]) for member in members]
    return {name: max(figures[name] for figures in told) for name in told[0]}


def main() -> int:
    asked = bench.options("Time dray's rings beside XGBoost's own.").parse_args()
    rows, rounds, pairs = (50_000, 40, 3) if asked.quick else (500_000, 100, 9)
    machine, env = reporting.hardware(), measure.clean_environment()
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for pair in range(pairs):
        for kind in KINDS if pair % 2 else reversed(KINDS):
            taken[kind].append(one_ring(kind, rows, rounds, env))
            print(kind, {name: round(value, 3) for name, value in taken[kind][-1].items()}, flush=True)
    medians = {
        kind: {name: statistics.median(one[name] for one in ones) for name in ones[0]} for kind, ones in taken.items()
    }
    table = reporting.table(
        ["ring", "forming, ms", "training, s", "CPU, s"],
        [
            [kind, f"{m['form_s'] * 1000:.0f}", f"{m['train_s']:.2f}", f"{m['cpu_s']:.2f}"]
            for kind, m in medians.items()
        ],
    )
    pairs_of = list(zip(taken["dray"], taken["native"], strict=True))
    ratios = {
        name: statistics.median(own[name] / native[name] for own, native in pairs_of) for name in ("train_s", "cpu_s")
    }
    musts = [
        Must("training in dray's ring against XGBoost's own, wall time, median of pairs", ratios["train_s"], LIMIT),
        Must("the same, CPU time of the busiest member", ratios["cpu_s"], LIMIT),
    ]
    title = f"Rings: {MEMBERS} members of 1 thread, {rows:,} rows x 28 each, {rounds} rounds, {pairs} pairs"
    reporting.publish("ring", title, machine, [table], musts, taken, save=not asked.quick)
    return 0


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
