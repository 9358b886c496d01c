"""One status of what the machines say and what Ray says."""

from __future__ import annotations

from typing import Any

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
