"""One run of a soak: a real `dray train`, disturbed as planned, and looked after when it is over."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import psutil
from soak_cluster import Node, SoakCluster
from soak_plan import Disturbance, FreedCpu, NodeVisit, Plan
from soak_settings import Settings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dray_process import DrayProcess, start_dray

LOOK_EVERY_S = 0.03
REAP_EVERY_S = 0.3
GRACE_S = 8
"""How long after dray's end its processes may take to go; those of a joined cluster end on their own."""
ACTOR = "ray::WorkerActor"


@dataclass
class Outcome:
    plan: Plan
    seconds: float = 0.0
    problem: str = ""
    """Empty when all went well."""
    finished: bool = False
    same_digest: bool = False
    strays: int = 0
    directories_left: int = 0
    injected: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    joined: int = 0
    rows_reloaded: int = 0

    def count(self, kind: str, times: int = 1) -> None:
        if times:
            self.injected[kind] = self.injected.get(kind, 0) + times


class SoakRun:
    """Made for one call of `run`."""

    def __init__(
        self, plan: Plan, settings: Settings, cluster: SoakCluster, env: Mapping[str, str], scratch: Path, kept: Path
    ) -> None:
        self.plan = plan
        self._settings = settings
        self._cluster = cluster
        self._env = env
        self._scratch = scratch
        self._kept = kept
        self._rng = random.Random(-1 - plan.seed)
        self._outcome = Outcome(plan)
        self._asleep: list[tuple[float, int]] = []
        self._stopped: set[int] = set()
        self._on_node: set[int] = set()

    def run(self, limit_s: float) -> Outcome:
        """Run it to its end, or to the limit, which counts as a hang."""
        expected = self._settings.digest(self.plan.setting)
        with self._cluster.one_cpu() if self.plan.room else contextlib.nullcontext() as node:
            before = {process.pid for process in psutil.Process().children(recursive=True)}
            if isinstance(self.plan.room, NodeVisit) and self.plan.room.comes_s < 0:
                self._start_node(node)
                time.sleep(-self.plan.room.comes_s)
            began = time.monotonic()
            with start_dray(self._arguments(), cwd=self._scratch, env=self._env) as dray:
                ended = self._disturb(dray, node, began, limit_s)
                self._outcome.seconds = time.monotonic() - began
                if not ended:
                    self._complain(f"did not end within {limit_s:g} s")
                    self._keep_stacks(dray)
                else:
                    self._judge(dray, expected)
                self._tidy_up(dray, before)
                if self._outcome.problem:
                    self._keep(dray)
        shutil.rmtree(self._scratch / "run", ignore_errors=True)
        return self._outcome

    def _arguments(self) -> list[str]:
        plan = self.plan
        arguments = [*self._settings.arguments(plan.setting), "--workers", plan.workers, "--on-failure", plan.level]
        if plan.heartbeat_s:
            arguments += ["--heartbeat", str(plan.heartbeat_s)]
        return [*arguments, "--cluster", self._cluster.address] if plan.room else arguments

    # Disturbing

    def _disturb(self, dray: DrayProcess, node: Node | None, began: float, limit_s: float) -> bool:
        """Do what is planned till dray ends; return whether it did."""
        pending = list(self.plan.disturbances)
        due: dict[Disturbance, float] = {}
        reaped = began
        while dray.process.poll() is None:
            now = time.monotonic()
            if now - began > limit_s:
                return False
            for disturbance in list(pending):
                if disturbance not in due and self._is_triggered(disturbance, dray):
                    due[disturbance] = (began if disturbance.when == "start" else now) + disturbance.delay_s
                if now >= due.get(disturbance, now + 1):
                    pending.remove(disturbance)
                    self._strike(disturbance, dray)
            if node is not None:
                self._make_room(node, dray, now - began)
            self._wake(now)
            if now - reaped > REAP_EVERY_S:
                reaped = now
                _reap(dray.process.pid)
            time.sleep(LOOK_EVERY_S)
        return True

    def _is_triggered(self, disturbance: Disturbance, dray: DrayProcess) -> bool:
        match disturbance.when:
            case "start":
                return True
            case "load":
                return any(event["name"] == "load" for event in dray.events("phase"))
            case "round":
                return self._share_done(dray) >= disturbance.share
            case "recovery":
                return bool(dray.events("worker_lost"))

    def _share_done(self, dray: DrayProcess) -> float:
        """Return the share of the rounds; below 0 as long as training has not begun."""
        rounds = dray.events("round")
        begun = any(event["name"] == "train" for event in dray.events("phase"))
        return rounds[-1]["round"] / self._settings.rounds[self.plan.setting] if rounds else 0.0 if begun else -1.0

    def _strike(self, disturbance: Disturbance, dray: DrayProcess) -> None:
        pool = self._victims(disturbance, dray)
        for pid in self._rng.sample(pool, min(disturbance.victims, len(pool))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if disturbance.kind == "kill" else signal.SIGSTOP)
                self._outcome.count(disturbance.kind)
                if disturbance.kind != "kill":
                    self._stopped.add(pid)
                if disturbance.kind == "nap":
                    self._asleep.append((time.monotonic() + disturbance.nap_s, pid))

    def _victims(self, disturbance: Disturbance, dray: DrayProcess) -> list[int]:
        """Return the workers' pids: those that dray has told of, or, from early on, those that the system knows."""
        if disturbance.kind == "freeze":
            told = {pid for pid in dray.workers().values() if psutil.pid_exists(pid)}
            return sorted(told & {process.pid for process in self._actors(dray)})
        actors = self._actors(dray)
        if not actors and disturbance.when == "start" and self.plan.room is None:
            actors = [process for process in measure.tree(dray.pid) if _title(process).startswith("ray::")]
        return sorted(process.pid for process in actors)

    def _actors(self, dray: DrayProcess) -> list[psutil.Process]:
        where = measure.tree(dray.pid) if self.plan.room is None else self._cluster.processes()
        return [process for process in where if _title(process).startswith(ACTOR)]

    def _make_room(self, node: Node, dray: DrayProcess, passed_s: float) -> None:
        """Have the second worker's place come or go, when it is time."""
        match self.plan.room:
            case FreedCpu(share) if "CPU freed" not in self._outcome.injected and self._share_done(dray) >= share:
                self._cluster.free_cpu()
                self._outcome.count("CPU freed")
            case NodeVisit(comes_s=comes_s) if not node.started and passed_s >= comes_s:
                self._start_node(node)
            case NodeVisit(goes=goes, share=share) if goes != "stays" and node.started:
                if "node went" not in self._outcome.injected and self._share_done(dray) >= share:
                    self._on_node = {process.pid for process in node.processes()}
                    gone = node.kill() if goes == "killed" else node.terminate()
                    self._outcome.count("node went", int(gone))

    def _start_node(self, node: Node) -> None:
        node.start()
        self._outcome.count("node came")

    def _wake(self, now: float) -> None:
        for moment, pid in list(self._asleep):
            if now >= moment:
                self._asleep.remove((moment, pid))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    # Afterwards

    def _judge(self, dray: DrayProcess, expected: str) -> None:
        outcome = self._outcome
        events = dray.events()
        outcome.lost = sum(event["kind"] == "worker_lost" for event in events)
        outcome.joined = sum(event["kind"] == "joined" for event in events)
        if dray.process.returncode:
            self._complain(f"ended with {dray.process.returncode}: {_last_line(dray.stderr)}")
            return
        outcome.finished = True
        result: dict[str, Any] = json.loads(dray.stdout)
        outcome.rows_reloaded = result["rows_reloaded"]
        outcome.same_digest = result["model_digest"] == expected
        if not outcome.same_digest:
            self._complain(f"has the digest {result['model_digest'][:12]}, not {expected[:12]}")

    def _tidy_up(self, dray: DrayProcess, before: set[int]) -> None:
        """Count what is left of a run, and end it."""
        own = self._cluster.processes()
        left = {
            process
            for process in psutil.Process().children(recursive=True)
            if process not in own and process.pid not in before and process.pid != dray.pid
        } | {process for process in own if _title(process).startswith(ACTOR)}
        if "node went" in self._outcome.injected:
            # Stopped by us on a node whose raylet is gone: nobody is left there who could end it.
            left = {process for process in left if process.pid not in self._stopped & self._on_node}
        ended = dray.process.poll() is not None
        if not ended:
            dray.stop()
            measure.end(left)
        else:
            titles = {process.pid: _title(process) for process in left}
            _, alive = psutil.wait_procs(left, timeout=GRACE_S if self.plan.room else 1)
            self._outcome.strays = len(alive)
            if alive:
                told = ", ".join(f"{process.pid} {titles[process.pid][:60]}" for process in alive)
                self._complain(f"left processes behind: {told}")
            measure.end(set(alive))
        for place in self._scratch.glob("dray-*"):
            if not place.is_dir():  # a traceback, to be kept
                self._kept.mkdir(parents=True, exist_ok=True)
                shutil.move(place, self._kept / "traceback.txt")
                continue
            if ended:
                self._outcome.directories_left += 1
                self._complain(f"left {place} behind")
            shutil.rmtree(place, ignore_errors=True)

    def _complain(self, problem: str) -> None:
        self._outcome.problem += f"{'; ' if self._outcome.problem else ''}{problem}"

    def _keep(self, dray: DrayProcess) -> None:
        self._kept.mkdir(parents=True, exist_ok=True)
        (self._kept / "plan.txt").write_text(f"seed {self.plan.seed}\n{self.plan}\n{self._outcome.problem}\n")
        (self._kept / "stderr.txt").write_text(dray.stderr)
        for name in ("events.jsonl", "run.json"):
            with contextlib.suppress(OSError):
                shutil.copy(self._scratch / "run" / name, self._kept / name)

    def _keep_stacks(self, dray: DrayProcess) -> None:
        """Write down where everybody is, if py-spy is there to tell."""
        spy = Path(sys.executable).with_name("py-spy")
        found = str(spy) if spy.exists() else shutil.which("py-spy")
        self._kept.mkdir(parents=True, exist_ok=True)
        with (self._kept / "stacks.txt").open("wb") as file:
            for pid in [dray.pid, *(process.pid for process in self._actors(dray))] if found else []:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command = [found, "dump", "--nonblocking", "--pid", str(pid)]
                    subprocess.run(command, stdout=file, stderr=file, timeout=20, check=False)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _reap(*spared: int) -> None:
    """Bury orphans that were adopted: as zombies they would look alive to dray, which waits for them to be gone."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if child.pid not in spared and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
