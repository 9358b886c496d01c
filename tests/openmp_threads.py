"""Train in a process of its own and count the threads that really worked: `python openmp_threads.py CONFIG.json`.

CPU time by thread tells it also on a busy machine: the threads of one OpenMP team share the work, however slowly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.learners.configs import make_config
from dray.training.train import train


class ThreadTimes:
    """A sink that notes the CPU time of a worker's threads before and after the rounds."""

    def __init__(self) -> None:
        self.pid = 0
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}

    def event(self, event: Event) -> None:
        if event.kind == "worker_started":
            self.pid = event.data["pid"]
        if event.kind == "phase" and event.data["name"] == "train":
            self.before = ticks_by_thread(self.pid)
        if event.kind == "phase" and event.data["name"] == "save":
            self.after = ticks_by_thread(self.pid)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass

    def busy(self) -> int:
        """How many threads did at least a quarter of what the busiest one did."""
        used = [ticks - self.before.get(thread, 0) for thread, ticks in self.after.items()]
        return sum(ticks >= max(used) / 4 for ticks in used)


def ticks_by_thread(pid: int) -> dict[str, int]:
    times = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        times[thread.name] = int(fields[11]) + int(fields[12])
    return times


def main(path: str) -> None:
    values: dict[str, Any] = json.loads(Path(path).read_text())
    sink = ThreadTimes()
    result = train(make_config(values), sinks=[sink])
    [proof] = result.threads
    print(json.dumps({"decided": proof.decided, "used": proof.used, "busy": sink.busy()}))


if __name__ == "__main__":
    main(sys.argv[1])
