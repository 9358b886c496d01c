"""Training on nodes that crash, are cut off, are slow, come and go: it goes on, to the same model.

Three hosts with a CPU each beside the head, where `dray` runs and no worker does. A run is slow until its story is
told, then fast.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray_process import DrayProcess, Event, start_dray
from hosts.pace import Pace
from hosts.ray_nodes import Hosts, RayHost

ROWS, ROW_GROUP_ROWS, FEATURES = 240_000, 10_000, 8
ROUNDS = 100
SLOW_S = 0.3
FLAGS = ["--label", "label", "--rounds", str(ROUNDS), "--eval-fraction", "0.2", "--param", "max_depth=4"]
NOTICED_S = 10.0
STANDSTILL_S = 60.0
"""No training stands still for longer, whatever is cut."""
FREED_S = 3.0
"""Time for those who survive to get out of a broken ring: tenths of a second, if the cores are not busy otherwise."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    random = np.random.default_rng(7)
    values = random.normal(size=(FEATURES, ROWS)).astype(np.float32)
    signal = values[0] * values[1] + np.sin(2 * values[2]) + 0.3 * values[3:].sum(axis=0) + random.normal(size=ROWS)
    table = pa.table({f"f{index}": column for index, column in enumerate(values)} | {"label": (signal > 0).astype(int)})
    place = tmp_path_factory.mktemp("data")
    pq.write_table(table, place / "rows.parquet", row_group_size=ROW_GROUP_ROWS)
    return str(place)


@pytest.fixture(scope="module")
def undisturbed(data: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model that every run must come to."""
    with start_dray(["train", data, *FLAGS, "--workers", "0"], cwd=tmp_path_factory.mktemp("alone")) as alone:
        return str(alone.finish()["model_digest"])


@pytest.fixture(scope="module")
def pace(tmp_path_factory: pytest.TempPathFactory) -> Pace:
    return Pace(tmp_path_factory.mktemp("pace"))


@pytest.fixture(scope="module")
def cluster(can_have_hosts: None, pace: Pace) -> Iterator[Hosts]:
    with Hosts(pace.environment) as hosts:
        hosts.start_head(cpus=0)
        hosts.start_node()
        hosts.start_node()
        yield hosts
    assert [process for host in hosts.hosts for process in host.processes()] == []


class Stage:
    """The hosts, as a test finds them, and runs on them."""

    def __init__(self, hosts: Hosts, pace: Pace, data: str, undisturbed: str, cwd: Path) -> None:
        self.hosts = hosts
        self.pace = pace
        self._data = data
        self._undisturbed = undisturbed
        self._cwd = cwd

    @property
    def nodes(self) -> list[RayHost]:
        return [host for host in self.hosts.hosts if isinstance(host, RayHost) and host is not self.hosts.head]

    def set(self, nodes: int) -> None:
        """Have so many nodes, with nothing on them, and Ray know it."""
        while len(self.nodes) < nodes:
            self.hosts.start_node()
        for node in self.nodes:
            node.restore()
            node.fast()
            if not node.has_ray:
                self.hosts.start_ray(node)
        assert len(self.nodes) == nodes
        self.hosts.wait_for_view(cpus=nodes)

    def train(self, workers: str) -> DrayProcess:
        self.pace.begin(SLOW_S)
        flags = [*FLAGS, "--workers", workers, "--threads", "1", "--cluster", self.hosts.address]
        driver = {name: value for name, value in self.hosts.environment.items() if name not in self.pace.environment}
        return start_dray(["train", self._data, *flags], cwd=self._cwd, env=driver, prefix=self.hosts.head.prefix)

    def node_of(self, run: DrayProcess, worker: int) -> RayHost:
        [node] = [node for node in self.nodes if node.name == run.hosts()[worker]]
        return node

    def finish(self, run: DrayProcess, *, lost: int = 0) -> dict[str, Any]:
        """Have the run end, and see that it came to the right model in the right way."""
        self.pace.lift()
        result = run.finish()
        assert result["model_digest"] == self._undisturbed
        assert [event["round"] for event in run.events("round")] == list(range(1, ROUNDS + 1))
        assert result["failures"] == lost == len(run.events("worker_lost"))
        assert result["rows_reloaded"] == sum(reloaded(run).values())
        if not lost:
            assert self.pace.rounds() == list(range(1, ROUNDS + 1)), "a round was begun twice, or left out"
        return result


@pytest.fixture
def stage(cluster: Hosts, pace: Pace, data: str, undisturbed: str, tmp_path: Path) -> Stage:
    return Stage(cluster, pace, data, undisturbed, tmp_path)


def reloaded(run: DrayProcess) -> dict[int, int]:
    """Rows that workers were sent for once everything had been loaded."""
    rows: dict[int, int] = {}
    for event in run.events("reload"):
        rows[event["worker"]] = rows.get(event["worker"], 0) + event["rows"]
    return rows


def check_survivors(run: DrayProcess, pids: dict[int, int]) -> None:
    """Who was not lost is the process that it was: a broken ring ends nobody, on no host."""
    assert {worker: run.workers()[worker] for worker in pids} == pids
    assert all(psutil.pid_exists(pid) for pid in pids.values())


def seconds_between(first: Event, second: Event) -> float:
    return float(second["time"] - first["time"])


def wait_gone(pid: int, timeout_s: float = 30) -> float:
    begun = time.monotonic()
    while psutil.pid_exists(pid):
        assert time.monotonic() - begun < timeout_s, f"{pid} lives on"
        time.sleep(0.05)
    return time.monotonic() - begun


def note(what: str, **figures: float) -> None:
    print(what, {name: round(value, 2) for name, value in figures.items()})


def test_a_node_that_is_added_takes_over_rows_at_a_rounds_end(stage: Stage) -> None:
    stage.set(nodes=2)
    with stage.train("2-3") as run:
        run.wait_round(4)
        assert len(run.workers()) == 2
        before = run.workers()
        new = stage.hosts.start_node()
        joined = run.wait_event("joined")
        check_survivors(run, before)
        stage.finish(run)
    assert (joined["host"], joined["worker"]) == (new.name, 2)
    assert reloaded(run) == {2: ROWS // 3}
    assert [event["why"] for event in run.events("reload")] == ["joining"]
    assert [event["workers"] for event in run.events("ring")] == [2, 3]
    assert run.events("ring")[1]["round"] == joined["round"] - 1


def test_a_crashed_node_is_replaced_by_another(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("2") as run:
        run.wait_round(4)
        gone, before = stage.node_of(run, 0), run.workers()
        killed_at = time.time()
        gone.kill_raylet()
        lost = run.wait_event("worker_lost")
        waiting = run.wait_event("waiting", after=lost["time"])
        ring = run.wait_event("ring", after=lost["time"])
        recovered = run.wait_event("recovered")
        check_survivors(run, {1: before[1]})
        stage.finish(run, lost=1)
    note(
        "crash, room elsewhere",
        lost=lost["time"] - killed_at,
        noticed_after=lost["noticed_after_s"],
        freed=seconds_between(lost, waiting),
        ring=seconds_between(lost, ring),
        recovery=recovered["seconds"],
    )
    assert (lost["worker"], lost["host"], lost["phase"]) == (0, gone.name, "train")
    assert lost["noticed_after_s"] <= NOTICED_S
    assert seconds_between(lost, waiting) <= FREED_S
    assert reloaded(run) == {0: ROWS // 2}
    assert run.hosts()[0] not in {gone.name, run.hosts()[1]}
    assert (ring["workers"], recovered["rows_reloaded"]) == (2, ROWS // 2)


def test_without_room_the_others_take_over_and_a_later_node_joins(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("1-3") as run:
        run.wait_round(4)
        gone, before = stage.node_of(run, 2), run.workers()
        gone.kill_raylet()
        lost = run.wait_event("worker_lost")
        shrunk = run.wait_event("ring", after=lost["time"])
        recovered = run.wait_event("recovered")
        survivors = {0: before[0], 1: before[1]}
        check_survivors(run, survivors)
        assert reloaded(run) == {0: ROWS // 6, 1: ROWS // 6}
        wait_gone(before[2])
        stage.hosts.start_ray(gone)
        joined = run.wait_event("joined")
        check_survivors(run, survivors)
        stage.finish(run, lost=1)
    note("crash, no room", ring=seconds_between(lost, shrunk), recovery=recovered["seconds"])
    assert (shrunk["workers"], shrunk["members"]) == (2, 4)
    assert (joined["worker"], joined["host"]) == (2, gone.name)
    assert reloaded(run)[2] == ROWS // 3
    assert run.events("ring")[-1]["workers"] == 3


def test_two_nodes_at_once_and_the_first_member_among_them(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("1-3") as run:
        run.wait_round(4)
        before = run.workers()
        for worker in (0, 1):
            stage.node_of(run, worker).kill_raylet()
        run.wait_event("recovered", lambda event: event["workers"] == 1)
        check_survivors(run, {2: before[2]})
        stage.finish(run, lost=2)
    assert {event["worker"] for event in run.events("worker_lost")} == {0, 1}
    assert reloaded(run) == {2: 2 * ROWS // 3}
    assert run.events("ring")[-1]["workers"] == 1


def test_two_nodes_that_cannot_reach_each_other_are_named_and_training_goes_on_without_one(stage: Stage) -> None:
    """Both reach the driver, so that nobody counts as lost: without a deadline they would wait for each other."""
    stage.set(nodes=3)
    with stage.train("1-3") as run:
        run.wait_round(4)
        one, other = stage.node_of(run, 0), stage.node_of(run, 2)
        parted_at = time.time()
        one.cut_from(other)
        try:
            warning = run.wait_event("warning", lambda event: "No connection" in event["message"])
            lost = run.wait_event("worker_lost")
            ring = run.wait_event("ring", after=lost["time"])
            stage.finish(run, lost=1)
        finally:
            one.reach_again(other)
    note("parted", told=warning["time"] - parted_at, gone_on=ring["time"] - parted_at)
    assert f"worker 0 on {one.name}" in warning["message"]
    assert f"worker 2 on {other.name}" in warning["message"]
    assert (lost["worker"], ring["workers"]) == (2, 2)
    assert ring["time"] - parted_at < STANDSTILL_S


def test_a_cut_is_noticed_the_others_go_on_and_who_was_cut_off_does_no_harm(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("1-3") as run:
        run.wait_round(4)
        cut, before = stage.node_of(run, 1), run.workers()
        cut_at = time.time()
        cut.cut()
        lost = run.wait_event("worker_lost")
        waiting = run.wait_event("waiting", after=lost["time"])
        ring = run.wait_event("ring", after=lost["time"])
        recovered = run.wait_event("recovered")
        assert psutil.pid_exists(before[1])
        cut.restore()
        gone_s = wait_gone(before[1])
        check_survivors(run, {0: before[0], 2: before[2]})
        after = run.wait_round(run.events("round")[-1]["round"] + 2)
        stage.finish(run, lost=1)
    note(
        "cut",
        lost=lost["time"] - cut_at,
        noticed_after=lost["noticed_after_s"],
        freed=seconds_between(lost, waiting),
        ring=seconds_between(lost, ring),
        recovery=recovered["seconds"],
        gone_after_restore=gone_s,
    )
    assert (lost["worker"], lost["host"]) == (1, cut.name)
    assert lost["noticed_after_s"] <= NOTICED_S
    assert lost["time"] - cut_at <= NOTICED_S
    assert seconds_between(lost, waiting) <= FREED_S
    assert {0: ROWS // 6, 2: ROWS // 6}.items() <= reloaded(run).items()
    assert after["round"] > ring["round"]


def test_a_short_cut_costs_nobody(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("3") as run:
        run.wait_round(4)
        before = run.workers()
        stage.node_of(run, 1).cut()
        time.sleep(3)  # the cut itself
        stage.node_of(run, 1).restore()
        restored_at = time.time()
        after = run.wait_event("round", after=restored_at)
        note("cut for 3 s", next_round=after["time"] - restored_at)
        check_survivors(run, before)
        stage.finish(run)
    assert len(run.events("ring")) == 1


def test_a_slow_link_is_no_failure(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("3") as run:
        run.wait_round(2)
        slow = stage.node_of(run, 1)
        slow.slow(delay_ms=20, rate="20mbit")
        begun = run.events("round")[-1]["round"] + 2  # the first that all of is slow
        stage.pace.lift()
        run.wait_round(begun + 10)
        slow.fast()
        stage.finish(run)
    seconds = [event["seconds"] for event in run.events("round")][begun : begun + 8]
    note("slow link", round=min(seconds))
    assert min(seconds) > 0.1, "a round is several messages, and each takes 20 ms from there"
    assert len(run.events("ring")) == 1


def test_a_drained_node_hands_over_to_another(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("2") as run:
        run.wait_round(4)
        drained, before = stage.node_of(run, 1), run.workers()
        stage.hosts.drain(drained, deadline_s=60)
        leaving = run.wait_event("leaving")
        joined = run.wait_event("joined")
        left = run.wait_event("left")
        wait_gone(before[1])
        check_survivors(run, {0: before[0]})
        stage.finish(run)
    note("drained, room elsewhere", joined=seconds_between(leaving, joined))
    assert (leaving["worker"], leaving["host"]) == (left["worker"], left["host"]) == (1, drained.name)
    assert joined["host"] not in {drained.name, run.hosts()[0]}
    assert reloaded(run) == {joined["worker"]: ROWS // 2}
    assert [event["why"] for event in run.events("reload")] == ["handing over"]
    assert [event["workers"] for event in run.events("ring")] == [2, 2]


def test_without_room_the_others_take_over_from_a_drained_node_beside_the_training(stage: Stage) -> None:
    stage.set(nodes=3)
    with stage.train("1-3") as run:
        run.wait_round(4)
        drained, before = stage.node_of(run, 0), run.workers()
        stage.hosts.drain(drained, deadline_s=60)
        leaving = run.wait_event("leaving")
        left = run.wait_event("left")
        wait_gone(before[0])
        check_survivors(run, {1: before[1], 2: before[2]})
        stage.finish(run)
    note("drained, no room", left=seconds_between(leaving, left))
    assert (leaving["worker"], left["worker"]) == (0, 0)
    assert reloaded(run) == {1: ROWS // 6, 2: ROWS // 6}
    assert [event["workers"] for event in run.events("ring")] == [3, 2]
