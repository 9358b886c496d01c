"""The fleet file: what it says, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.clusters.fleet.file import FleetFile, make_fleet, make_host, read_fleet
from dray.errors import ConfigError

SMALL: dict[str, Any] = {"name": "lab", "hosts": ["a", "b"]}


def test_a_small_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("name: lab\nhosts:\n- a\n- {host: b, workers: 4, cpus: 2, memory: 6G}\n")
    fleet = read_fleet(str(path))
    assert fleet.head_host == "a"
    assert [machine.workers for machine in fleet.machines] == [1, 4]
    assert fleet.machine("b").memory == 6 * 1024**3
    assert fleet.dashboard_host == "127.0.0.1"


def test_the_head_may_be_a_machine_without_workers() -> None:
    fleet = make_fleet({**SMALL, "head": "h"})
    assert [(machine.host, machine.workers) for machine in fleet.machines] == [("h", 0), ("a", 1), ("b", 1)]


def test_the_head_comes_first_wherever_it_stands() -> None:
    assert [machine.host for machine in make_fleet({**SMALL, "head": "b"}).machines] == ["b", "a"]


def test_it_survives_the_way_through_json() -> None:
    fleet = make_fleet({**SMALL, "docker": {"image": "x:1", "shm_size": "2G"}, "env": {"A": "b"}})
    assert FleetFile.model_validate_json(fleet.model_dump_json()) == fleet


@pytest.mark.parametrize(("text", "count"), [("6G", 6 << 30), ("1.5g", 3 << 29), ("512M", 512 << 20), (5, 5), ("7", 7)])
def test_sizes(text: Any, count: int) -> None:
    assert make_host({"host": "a", "memory": text}).memory == count


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"host": ["a"]}, 'Unknown key "host" in the fleet. Did you mean "hosts"?'),
        ({"hosts": [{"host": "a", "worker": 2}]}, 'Unknown key "hosts.0.worker" in the fleet. Did you mean "workers"?'),
        ({"ports": {"gsc": 1}}, 'Unknown key "ports.gsc" in the fleet. Did you mean "gcs"?'),
        ({"hosts": ["a", {"host": "a"}]}, "The host a is listed twice."),
        ({"hosts": []}, "Hosts is empty."),
        ({"hosts": ["a; rm -rf /"]}, "hosts.0.host"),
        ({"hosts": ["-oProxyCommand=x"]}, "hosts.0.host"),
        ({"hosts": [{"host": "a", "memory": "6 apples"}]}, "a size such as 6G"),
        ({"hosts": [{"host": "a", "memory": "1G", "object_store": "2G"}]}, "object_store must be less than memory"),
        ({"name": "Lab 1"}, '"Lab 1" cannot be the name of a cluster.'),
        ({"name": "local"}, '"local" cannot be the name of a cluster.'),
        ({"ports": {"gcs": 12000}}, "gcs lies among the ports of workers (10002-19999)"),
        ({"ports": {"workers": "9-5"}}, "workers must go from a smaller to a larger port"),
        ({"ports": {"ring": "20000"}}, '"ports.ring" in the fleet'),
        ({"ports": {"ring": "20000-20000"}}, "ring must go from a smaller to a larger port"),
        ({"ports": {"ring": "19000-20099"}}, "workers (10002-19999) and ring (19000-20099) have ports in common"),
        ({"ports": {"ring": "8000-8300"}}, "dashboard lies among the ports of ring (8000-8300)"),
        ({"ports": {"ring": "6405-6399"}}, "ring must go from a smaller to a larger port"),
        ({"ports": {"ring": "6405-6505"}}, "The host a needs the ports 6400-6411, which others use"),
        ({"ports": {"nodes": 6375}}, "The host a needs the ports 6375-6386, which others use"),
        ({"venv": "/v", "docker": {"image": "x"}}, "Docker excludes venv and install"),
        ({"venv": "/v", "install": "dray"}, "Install excludes venv"),
        ({"docker": {}}, '"docker.image" is missing'),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_fleet({**SMALL, "head": "a", **change})
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("change", "what", "fix"),
    [
        ({"hosts": []}, "Hosts is empty.", "Name a machine."),
        (
            {"hosts": ["a; rm -rf /"]},
            "\"hosts.0.host\" in the fleet is 'a; rm -rf /': must be the name or the address of a machine.",
            "Change hosts.0.host.",
        ),
        (
            {"hosts": [{"host": "a", "memory": "1G", "object_store": "2G"}]},
            '"hosts.0" in the fleet: object_store must be less than memory.',
            "",
        ),
        ({"docker": {}}, '"docker.image" is missing in the fleet.', "Add docker.image: ..."),
        (
            {"tls": {"crt": "x"}},
            'Unknown key "tls.crt" in the fleet. Did you mean "cert"?',
            "Known keys: cert, key, ca.",
        ),
    ],
)
def test_a_mistake_is_told_whole_with_its_fix(change: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_fleet({**SMALL, "head": "a", **change})
    assert (caught.value.what, caught.value.fix) == (what, fix)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read the fleet file"):
        read_fleet(str(tmp_path / "no.yaml"))
    for text, what in (
        ("- a", "does not hold keys"),
        ("a: [", "line 1 is not YAML"),
        ("!!python/object:os.x {}", "YAML"),
    ):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ConfigError, match=what):
            read_fleet(str(tmp_path / "bad.yaml"))


def test_a_wheel_stands_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "dray.whl").touch()
    (tmp_path / "fleet.yaml").write_text("{name: lab, hosts: [a], install: dray.whl}")
    assert read_fleet(str(tmp_path / "fleet.yaml")).install == str(tmp_path / "dray.whl")


def test_machines_come_and_go() -> None:
    fleet = make_fleet(SMALL)
    larger = fleet.with_host(make_host({"host": "c", "workers": 4, "cpus": None, "memory": "6G"}))
    assert [machine.host for machine in larger.machines] == ["a", "b", "c"]
    assert [machine.host for machine in larger.without_host("b").machines] == ["a", "c"]
    assert fleet.with_host(make_host({"host": "b"})) == fleet
    with pytest.raises(ConfigError, match="b is in the cluster lab already, with other workers"):
        fleet.with_host(make_host({"host": "b", "workers": 3}))
    with pytest.raises(ConfigError, match=r'"bb" is no machine of the cluster lab. Did you mean "b"'):
        fleet.machine("bb")


def test_a_machine_from_the_command_line() -> None:
    with pytest.raises(ConfigError, match='"workers" in the command line is -1'):
        make_host({"host": "a", "workers": -1})


def test_variables_are_ones_that_every_process_can_have() -> None:
    assert make_fleet({**SMALL, "env": {"A_1": "x\ny"}}).env == {"A_1": "x\ny"}
    for name, value, words in (("A=B", "x", "name of a variable"), ("", "x", "name of a"), ("A", "\0", "zero byte")):
        with pytest.raises(ConfigError, match=words):
            make_fleet({**SMALL, "env": {name: value}})
    docker = {"image": "dray:1"}
    with pytest.raises(ConfigError, match="The variable A has a line break"):
        make_fleet({"name": "lab", "docker": docker, "hosts": [{"host": "a", "env": {"A": "x\ny"}}]})
