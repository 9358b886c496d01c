"""Which machines do not reach which others."""

from __future__ import annotations

from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.pairs import find_blocked, ranges_of, targets_of
from dray.clusters.fleet.session import Session

FLEET = make_fleet({"name": "lab", "hosts": ["a", "b", {"host": "c", "workers": 2}], "ports": {"ring": "21000-21009"}})
OPEN = {
    host: {"address": f"10.0.0.{number}", "ports": {"workers": [10002], "ring": [21000, 21004, 21009]}}
    for number, host in enumerate("abc")
}


def test_every_machine_is_asked_about_all_ports_of_every_other_one() -> None:
    targets = targets_of("a", OPEN, None)
    assert len(targets) == 8
    assert {address for address, _ in targets} == {"10.0.0.1", "10.0.0.2"}
    assert ranges_of(FLEET, FLEET.machine("c")) == {
        "nodes": (6400, 6417),
        "workers": (10002, 19999),
        "ring": (21000, 21009),
    }


def test_a_machine_that_is_added_is_tried_with_every_other_one_and_those_not_with_each_other() -> None:
    assert {address for address, _ in targets_of("c", OPEN, "c")} == {"10.0.0.0", "10.0.0.1"}
    assert {address for address, _ in targets_of("a", OPEN, "c")} == {"10.0.0.2"}


def test_a_pair_is_named_with_its_ports() -> None:
    assert find_blocked(FLEET, OPEN, {"a": {}, "b": {}, "c": {}}) == []
    failed = {"10.0.0.2:21000": "timed out", "10.0.0.2:21009": "timed out", "10.0.0.0:10002": "Connection refused"}
    found = find_blocked(FLEET, OPEN, {"a": {}, "b": failed, "c": {}})
    assert [str(problem) for problem in found] == [
        "b: port blocked (a at 10.0.0.0, port 10002: Connection refused)",
        "b: port blocked (c at 10.0.0.2, ports 21000, 21009: timed out)",
    ]
    assert found[1].fix == "open the ports 21000-21009 (ports.ring) from every machine to every other one"


def test_of_many_pairs_some_are_named() -> None:
    hosts = [f"h{number}" for number in range(10)]
    fleet = make_fleet({"name": "lab", "hosts": hosts})
    opened = {host: {"address": host, "ports": {"ring": [20000]}} for host in hosts}
    found = find_blocked(fleet, opened, {host: {f"{other}:20000": "no" for other in hosts} for host in hosts})
    assert len(found) == 13
    assert found[-1].words == "and 78 more like these"


def test_every_process_of_ray_is_told_the_ports_of_rings() -> None:
    fleet = make_fleet({**FLEET.model_dump(), "env": {"DRAY_RING_PORTS": "1-2", "A": "b"}})
    assert Session(fleet, "id").settings(fleet.machine("b"))["env"] == {"A": "b", "DRAY_RING_PORTS": "21000-21009"}
