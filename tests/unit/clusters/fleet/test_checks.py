"""What is said of machines that cannot be one cluster."""

from __future__ import annotations

from typing import Any

import pytest

from dray.clusters.fleet.checks import Problem, failure, find_problems, warnings_of, why_not_started
from dray.clusters.fleet.file import FleetFile, make_fleet
from unit.clusters.fleet.machines import GB, facts


def fleet(**values: Any) -> FleetFile:
    return make_fleet({"name": "lab", "hosts": [{"host": "a", "workers": 2}, {"host": "b", "workers": 2}], **values})


def problems(cluster: str = "id", of: FleetFile | None = None, **b: Any) -> list[Problem]:
    a = facts("a")
    return find_problems(of or fleet(), cluster, {"a": a, "b": facts("b", **b)}, a)


def test_machines_that_are_as_they_should_be() -> None:
    assert problems() == []


VERSIONS = {"ray": "2.60.0", "python": "3.11.7", "dray": "0.1.0", "dashboard": True}


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"versions": {**VERSIONS, "ray": "2.59.0"}}, "version differs", "ray 2.59.0, a has 2.60.0"),
        ({"versions": {**VERSIONS, "python": "3.12.1"}}, "version differs", "python 3.12.1, a has 3.11.7"),
        ({"versions": {**VERSIONS, "dray": ""}}, "version differs", "no dray, a has 0.1.0"),
        ({"versions": {}}, "not installed", "no Python in ~/.dray/venv"),
        ({"versions": {**VERSIONS, "ray": ""}}, "not installed", "no Ray in ~/.dray/venv"),
        ({"disk": GB // 2}, "no disk", "0.5 GiB free at /home/u/.dray/lab"),
        ({"shm": GB // 100}, "no memory", "/dev/shm"),
        ({"busy_ports": [6406, 6407]}, "port in use", "6406, 6407"),
        ({"used_by": ["the cluster other"]}, "already used", "the cluster other runs there"),
        ({"writable": False}, "not usable", "u may not write"),
        ({"path_too_long": 12}, "not usable", "12 characters too long"),
        ({"missing": ["/c.pem"]}, "not usable", "/c.pem"),
        ({"address": "127.0.0.1"}, "not usable", "the other machines cannot reach it at 127.0.0.1"),
        ({"address": ""}, "not usable", "is no IP address"),
        ({"boot": "a"}, "already used", "the same machine as a"),
    ],
)
def test_each_problem_has_its_reason(change: dict[str, Any], reason: str, words: str) -> None:
    [found] = problems(**change)
    assert (found.host, found.reason) == ("b", reason)
    assert words in found.words
    assert found.fix


def test_more_memory_than_there_is() -> None:
    asked = fleet(hosts=["a", {"host": "b", "workers": 3, "memory": "6G"}])
    [found] = problems(of=asked)
    assert str(found) == "b: no memory (18.0 GiB asked for 3 workers, 12.0 GiB free of 16.0 GiB)"


def test_as_much_as_there_is_may_be_asked_for() -> None:
    asked = fleet(hosts=["a", {"host": "b", "workers": 2, "memory": "6G", "object_store": "2G"}])
    assert problems(of=asked, disk=GB, shm=4 * GB) == []
    assert [found.reason for found in problems(of=asked, disk=GB - 1, shm=4 * GB - 1)] == ["no memory", "no disk"]
    tight = {"total": 16 * GB, "available": 12 * GB - 1}
    assert [found.reason for found in problems(of=asked, memory=tight)] == ["no memory"]


def test_a_machine_that_is_asked_for_nothing_in_particular_gives_what_it_has() -> None:
    assert problems(memory={"total": 16 * GB, "available": GB}) == []


def test_a_head_alone_is_asked_for_no_memory_of_workers() -> None:
    alone = fleet(hosts=["b"], head="a")
    a = facts("a", memory={"total": GB, "available": 0})
    assert find_problems(alone, "id", {"a": a, "b": facts("b")}, a) == []


def test_where_something_is_missing_is_told_by_the_place_that_was_asked() -> None:
    assert "no Python in img:1" in problems(of=fleet(docker={"image": "img:1"}), versions={})[0].words
    assert "no Python in /opt/v" in problems(of=fleet(venv="/opt/v"), versions={})[0].words
    own = fleet(venv="/opt/v", hosts=["a", {"host": "b", "venv": "/own"}])
    assert "no Python in /own" in problems(of=own, versions={})[0].words


def test_one_machine_alone_may_be_known_by_its_loopback_address() -> None:
    alone = fleet(hosts=["a"])
    a = facts("a", address="127.0.0.1")
    assert find_problems(alone, "id", {"a": a}, a) == []


def test_a_head_without_dray_asks_for_none_elsewhere() -> None:
    a = facts("a", versions={**VERSIONS, "dray": ""})
    assert find_problems(fleet(), "id", {"a": a, "b": facts("b")}, a) == []


def test_what_runs_already_needs_no_room() -> None:
    running = {str(index): {"alive": True} for index in (1, 2)}
    asked = fleet(hosts=["a", {"host": "b", "workers": 2, "memory": "8G"}])
    assert problems(of=asked, nodes=running, state={"cluster": "id"}) == []


def test_a_directory_of_another_cluster_is_respected_while_it_lives() -> None:
    state = {"cluster": "other", "name": "lab", "owner": "eve@box"}
    [found] = problems(state=state, nodes={"1": {"alive": True}})
    assert found.reason == "already used"
    assert "eve@box" in found.words
    assert problems(state=state, nodes={"1": {"alive": False}}) == []


def test_a_head_without_a_dashboard_has_no_job_server() -> None:
    a = facts("a", versions={**VERSIONS, "dashboard": False})
    [found] = find_problems(fleet(), "id", {"a": a}, a)
    assert "no job server" in found.words


def test_a_worker_needs_no_dashboard() -> None:
    assert problems(versions={**VERSIONS, "dashboard": False}) == []


def test_one_error_names_all_machines_and_each_fix_once() -> None:
    found = [
        Problem("b", "port in use", "1", "end it"),
        Problem("a", "no disk", "", "free some"),
        Problem("c", "port in use", "2", "end it"),
    ]
    error = failure("lab", found, "Nothing was started.")
    assert (
        error.what
        == "The cluster lab is not up. a: no disk; b: port in use (1); c: port in use (2). Nothing was started."
    )
    assert error.fix == "Free some; end it."


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("RuntimeError: Version mismatch: The cluster was started with", "version differs"),
        ("OSError: [Errno 98] Address already in use", "port in use"),
        ("OSError: [Errno 28] No space left on device", "no disk"),
        ("Exception: whatever", "did not start"),
    ],
)
def test_the_last_words_of_a_start(words: str, reason: str) -> None:
    assert why_not_started("a", words).reason == reason


def test_what_works_but_should_be_known() -> None:
    seen = {
        "a": facts("a", nodes={"3": {"alive": True, "name": "a/3"}, "1": {"alive": True, "name": "a/1", "cpus": 4}})
    }
    open_fleet = fleet(dashboard_host="0.0.0.0", hosts=[{"host": "a", "workers": 2, "cpus": 2}])
    found = warnings_of(open_fleet, seen, {"ray": "2.61.0"})
    assert len(found) == 4
    assert "0.0.0.0" in found[0]
    assert "ray 2.60.0, this machine 2.61.0" in found[1]
    assert "a/3 runs, but a has only 2 workers" in found[2]
    assert "a/1 runs with 4 CPUs, the file says 2" in found[3]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("the port 6379 is in use", "port in use"),
        ("the port 6379 is odd", "did not start"),
        ("the machine is in use", "did not start"),
    ],
)
def test_a_port_in_use_is_one_that_is_named_and_in_use(words: str, reason: str) -> None:
    assert why_not_started("a", words).reason == reason


def test_nothing_is_said_of_what_is_as_the_file_says() -> None:
    nodes = {
        "0": {"alive": True, "name": "a/head", "cpus": 0},
        "1": {"alive": True, "name": "a/1", "cpus": 2},
        "2": {"alive": True},
    }
    as_told = fleet(hosts=[{"host": "a", "workers": 2, "cpus": 2}])
    assert warnings_of(as_told, {"a": facts("a", nodes=nodes)}, {"ray": "2.60.0", "numpy": "2.0"}) == []
    free = fleet(hosts=[{"host": "a", "workers": 2}])
    assert warnings_of(free, {"a": facts("a", nodes={"1": {"cpus": 7}})}, {}) == []
    [surplus] = warnings_of(free, {"a": facts("a", nodes={"3": {}})}, {})
    assert surplus == "3 runs, but a has only 2 workers in the file."


def test_an_error_without_a_fix_has_none() -> None:
    error = failure("lab", [Problem("a", "unreachable", "timed out")], "Nothing was started.")
    assert error.fix == ""
