"""One status of what the machines say and what Ray says."""

from __future__ import annotations

from typing import Any

import pytest

from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.view import status_of
from dray.clusters.known import Known
from dray.clusters.provider import Status
from unit.clusters.fleet.machines import facts, node

FLEET = make_fleet({"name": "lab", "head": "a", "hosts": [{"host": "a", "workers": 0}, "b", "c"]})
KNOWN = Known("lab", "fleet", "10.0.0.1:6379", "http://127.0.0.1:8265")
ALIVE = {"alive": True, "cpus": 2, "memory": 5, "object_store": 3}
FACTS = {
    "a": facts("a", nodes={"0": ALIVE}),
    "b": facts("b", nodes={"1": ALIVE}),
    "c": facts("c", nodes={"1": ALIVE}),
}
NODES = [node("a/head"), node("b/1"), node("c/1")]
GONE = Problem("c", "unreachable", "timed out")


def status(**changes: Any) -> Status:
    values: dict[str, Any] = {"facts": FACTS, "problems": {}, "view": {"nodes": NODES, "jobs": []}, "warnings": []}
    return status_of(KNOWN, FLEET, **{**values, **changes})


def states(of: Status) -> dict[str, str]:
    return {one.name: one.reason if one.reason else "alive" if one.alive else "dead" for one in of.nodes}


def test_all_is_well() -> None:
    found = status()
    assert states(found) == {"a/head": "alive", "b/1": "alive", "c/1": "alive"}
    assert [one.head for one in found.nodes] == [True, False, False]
    assert found.nodes[1].cpus == 2
    assert found.nodes[1].memory_bytes == 5
    assert found.nodes[1].object_store_bytes == 3
    assert found.nodes[1].ray == "2.60.0"


def test_a_node_whose_processes_ended_is_dead_at_once() -> None:
    died = {**FACTS, "c": facts("c", nodes={"1": {**ALIVE, "alive": False}})}
    found = status(facts=died)
    assert not found.nodes[2].alive
    assert found.nodes[2].reason == "its processes have ended"


def test_a_machine_that_neither_we_nor_the_head_reach() -> None:
    seen = {host: FACTS[host] for host in "ab"}
    found = status(facts=seen, problems={"c": GONE}, cut_off={"c/1": "No route to host"})
    assert not found.nodes[2].alive
    assert found.nodes[2].reason == "unreachable (timed out), by the head too (No route to host)"


def test_a_machine_that_only_the_head_reaches_lives() -> None:
    seen = {host: FACTS[host] for host in "ab"}
    found = status(facts=seen, problems={"c": GONE})
    assert found.nodes[2].alive
    assert found.nodes[2].reason == "SSH: unreachable (timed out)"


def test_without_the_head_nothing_lives() -> None:
    found = status(view=None)
    assert not any(one.alive for one in found.nodes)
    assert set(states(found).values()) == {"the head does not answer"}


def test_the_newest_of_a_repaired_node_counts() -> None:
    nodes = [node("c/1", started=5), node("c/1", alive=False, started=2), *NODES[:2]]
    assert status(view={"nodes": nodes, "jobs": []}).nodes[2].alive


def test_what_ray_takes_for_dead_and_what_never_joined() -> None:
    nodes = [NODES[0], node("b/1", alive=False, reason="missed heartbeats")]
    found = states(status(view={"nodes": nodes, "jobs": []}))
    assert found["b/1"] == "Ray takes it for dead: missed heartbeats"
    assert found["c/1"] == "it has not joined"


def test_a_machine_that_died_a_while_ago() -> None:
    nodes = [*NODES[:2], node("c/1", alive=False, reason="missed heartbeats")]
    seen = {host: FACTS[host] for host in "ab"}
    found = status(facts=seen, problems={"c": GONE}, view={"nodes": nodes, "jobs": []}).nodes[2]
    assert found.reason == "unreachable (timed out), and Ray takes it for dead: missed heartbeats"


def test_strangers_and_jobs_are_shown() -> None:
    view = {"nodes": [*NODES, node("x", address="10.9.9.9")], "jobs": [{"id": "01", "entrypoint": "dray train x"}]}
    found = status(view=view)
    assert found.nodes[-1].host == "10.9.9.9"
    assert found.nodes[-1].reason == "dray did not start it"
    assert found.running == ("dray train x",)


DEAD = {**ALIVE, "alive": False}
UP, DOWN = node("c/1"), node("c/1", alive=False, reason="missed heartbeats")


@pytest.mark.parametrize(
    ("noted", "by_ray", "problem", "cut_off", "alive", "reason"),
    [
        (ALIVE, UP, None, "", True, ""),
        (ALIVE, UP, None, "timeout", False, "the head does not reach it (timeout)"),
        (None, UP, GONE, "", True, "SSH: unreachable (timed out)"),
        (None, UP, GONE, "timeout", False, "unreachable (timed out), by the head too (timeout)"),
        (None, None, GONE, "", False, "unreachable (timed out)"),
        (None, DOWN, GONE, "", False, "unreachable (timed out), and Ray takes it for dead: missed heartbeats"),
        (ALIVE, None, None, "", False, "it has not joined"),
        (ALIVE, DOWN, None, "", False, "Ray takes it for dead: missed heartbeats"),
        (ALIVE, node("c/1", alive=False), None, "", False, "Ray takes it for dead"),
        (DEAD, UP, None, "", False, "its processes have ended"),
        (DEAD, DOWN, None, "", False, "its processes have ended: missed heartbeats"),
        (DEAD, None, None, "", False, "its processes have ended"),
        ({}, None, None, "", False, "it was not started"),
    ],
)
def test_what_is_said_of_a_node_while_the_head_answers(
    noted: dict[str, Any] | None,
    by_ray: dict[str, Any] | None,
    problem: Problem | None,
    cut_off: str,
    alive: bool,
    reason: str,
) -> None:
    seen = {**FACTS, "c": facts("c", nodes={"1": noted} if noted else {})}
    if noted is None:
        del seen["c"]
    found = status(
        facts=seen,
        problems={"c": problem} if problem else {},
        view={"nodes": [*NODES[:2], *([by_ray] if by_ray else [])], "jobs": []},
        cut_off={"c/1": cut_off} if cut_off else None,
    ).nodes[2]
    assert (found.alive, found.reason) == (alive, reason)


@pytest.mark.parametrize(
    ("noted", "problem", "reason"),
    [
        (ALIVE, None, "the head does not answer"),
        (DEAD, None, "its processes have ended"),
        (None, GONE, "unreachable (timed out)"),
        (None, None, "the head does not answer"),
    ],
)
def test_what_is_said_of_a_node_while_the_head_is_silent(
    noted: dict[str, Any] | None, problem: Problem | None, reason: str
) -> None:
    seen = {**FACTS, "c": facts("c", nodes={"1": noted})}
    if noted is None:
        del seen["c"]
    found = status(facts=seen, problems={"c": problem} if problem else {}, view=None)
    assert (found.nodes[2].alive, found.nodes[2].reason) == (False, reason)
    assert found.running == ()


def test_what_ray_does_not_tell_of_a_node_is_as_it_was_noted() -> None:
    found = status(view={"nodes": [NODES[0], {**NODES[1], "resources": {}}], "jobs": []}).nodes
    for one in found[1:]:
        assert (one.cpus, one.memory_bytes, one.object_store_bytes) == (2.0, 5, 3)
    unknown = status(facts={}, view={"nodes": [], "jobs": []}).nodes[1]
    assert (unknown.cpus, unknown.memory_bytes, unknown.object_store_bytes) == (0.0, 0, 0)
    assert (unknown.ray, unknown.python) == ("", "")
    bare = {**FACTS, "c": facts("c", nodes={"1": {"alive": True}})}
    nothing = status(facts=bare, view=None).nodes[2]
    assert (nothing.cpus, nothing.memory_bytes, nothing.object_store_bytes) == (0.0, 0, 0)


def test_strangers_that_are_gone_are_not_shown_and_a_job_without_words_has_its_number() -> None:
    view = {"nodes": [*NODES, node("x", alive=False)], "jobs": [{"id": "01", "entrypoint": ""}]}
    found = status(view=view)
    assert [one.name for one in found.nodes] == ["a/head", "b/1", "c/1"]
    assert found.running == ("job 01",)


def test_of_two_lives_of_a_node_the_later_one_tells() -> None:
    nodes = [node("c/1", alive=False, started=7, reason="late"), node("c/1", alive=False, started=2, reason="early")]
    assert "late" in status(view={"nodes": [*NODES[:2], *nodes], "jobs": []}).nodes[2].reason


def test_what_ray_tells_of_a_node_goes_before_what_was_noted() -> None:
    told = {"CPU": 7.0, "memory": 50.0, "object_store_memory": 30.0}
    view = {"nodes": [*NODES[:2], node("c/1", resources=told), node("x", resources=told)], "jobs": []}
    found = status(view=view)
    for one in found.nodes[2:]:
        assert (one.alive, one.cpus, one.memory_bytes, one.object_store_bytes) == (True, 7.0, 50, 30)
