"""A cluster of machines that are reached by SSH, for real: several hosts with sshd, and a laptop that starts it all.

One cluster for the whole module, in the order in which the tests stand; those that need no cluster use other hosts.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import datasets
from dray_process import start_dray
from hosts.sshd import Machines, Outcome, SshHost, why_no_sshd
from living import commands, named

HOSTS = ["a", "b", "c"]
QUICK = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}


@pytest.fixture(scope="module")
def machines(can_have_hosts: None) -> Iterator[Machines]:
    if reason := why_no_sshd():
        pytest.skip(reason)
    with Machines([*HOSTS, "d", "e"]) as machines:
        yield machines
    assert not machines.directory.exists()


@pytest.fixture(scope="module")
def fleet(machines: Machines) -> dict[str, Any]:
    hosts = [machines.machine("a", workers=1), machines.machine("b", workers=2), machines.machine("c", workers=1)]
    return machines.fleet(hosts, env=QUICK)


@pytest.fixture(scope="module")
def lab(machines: Machines, fleet: dict[str, Any]) -> Outcome:
    """The cluster, and what was said when it came up."""
    outcome = machines.call("up", fleet=fleet)
    assert not outcome.error, outcome.error
    return outcome


@pytest.fixture
def free(machines: Machines) -> Iterator[SshHost]:
    """A host on which nothing runs, and on which nothing may be left."""
    host = machines.machines["e"]
    yield host
    assert host.names == []
    assert not (host.directory / "d").exists()


def alive(outcome: Outcome) -> dict[str, bool]:
    assert not outcome.error, outcome.error
    return {node["name"]: node["alive"] for node in outcome.result["nodes"]}


def why(outcome: Outcome, host: str) -> str:
    return "; ".join(node["reason"] for node in outcome.result["nodes"] if node["host"] == host)


def ray_processes(host: SshHost) -> set[tuple[int, float]]:
    """What of Ray runs on a host and stays."""
    return {(process.pid, process.create_time()) for process in named(host.processes(), "raylet", "gcs_server")}


ALL = {"a/head", "a/1", "b/1", "b/2", "c/1"}


# What needs no cluster.


def test_an_unknown_host_key_is_never_accepted(machines: Machines, free: SshHost, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("".join(line for line in machines.known_hosts.open() if not line.startswith("e,")))
    outcome = machines.call("up", fleet=machines.fleet(["e"], name="new", known_hosts=str(known)))
    assert "e: host key" in outcome.error["what"]
    assert "ssh-keyscan e >>" in outcome.error["fix"]
    assert "new" not in machines.call("names").result


def test_a_host_key_is_checked_though_the_ssh_configuration_says_otherwise(machines: Machines, free: SshHost) -> None:
    config = machines.home / ".ssh" / "config"
    config.write_text("Host e\n  UserKnownHostsFile none\n  StrictHostKeyChecking no\n")
    try:
        outcome = machines.call("up", fleet=machines.fleet(["e"], name="new"))
    finally:
        config.unlink()
    assert "e: host key (the SSH configuration here has its check switched off" in outcome.error["what"]
    assert "known_hosts:" in outcome.error["fix"]


def test_a_wrong_key_is_refused(machines: Machines, free: SshHost, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    outcome = machines.call("up", fleet=machines.fleet(["e"], name="new", key=str(key)))
    assert "e: login" in outcome.error["what"]
    assert "key:" in outcome.error["fix"]
    outcome = machines.call("up", fleet=machines.fleet(["e"], name="new", key="/no/such/key"))
    assert "there is no key /no/such/key" in outcome.error["what"]


def test_more_memory_than_there_is(machines: Machines, free: SshHost) -> None:
    hosts = [machines.machine("e", memory="900G", object_store="100M")]
    outcome = machines.call("up", fleet=machines.fleet(hosts, name="new"))
    assert "e: no memory (1800.0 GiB asked for 2 workers" in outcome.error["what"]


def test_a_port_in_use(machines: Machines, free: SshHost) -> None:
    script = "import socket, time; s = socket.create_server(('', 6379)); print(flush=True); time.sleep(60)"
    listener = free.start([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert listener.stdout
    listener.stdout.readline()
    try:
        outcome = machines.call("up", fleet=machines.fleet(["e"], name="new"))
    finally:
        listener.kill()
        listener.communicate()
    assert "e: port in use (6379)" in outcome.error["what"]


def make_venv(venv: Path, lines: str = "") -> Path:
    """Make an environment with all that is in this one; return where packages are. `lines` go into its .pth file."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    [packages] = venv.glob("lib/python*/site-packages")
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "all.pth").write_text(f"import site; site.addsitedir({here!r})\n{lines}\n")
    return packages


def test_another_version_of_ray_on_one_machine(machines: Machines, free: SshHost, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    old = make_venv(venv) / "ray-2.50.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.50.0\n")
    hosts = [machines.machine("d"), machines.machine("e", venv=str(venv))]
    outcome = machines.call("up", fleet=machines.fleet(hosts, name="new"))
    assert "e: version differs (ray 2.50.0, d has" in outcome.error["what"]
    assert "Nothing was started" in outcome.error["what"]
    assert machines.machines["d"].names == []


def test_no_environment_where_one_was_named(machines: Machines, free: SshHost) -> None:
    outcome = machines.call("up", fleet=machines.fleet([machines.machine("e", venv="/nowhere")], name="new"))
    assert "e: not installed (no Python in /nowhere)" in outcome.error["what"]


def test_a_directory_with_files_of_others_is_refused_before_anything_starts(machines: Machines, free: SshHost) -> None:
    data = free.directory / "data"
    data.mkdir()
    (data / "rows.parquet").write_text("x")
    for directory, words in {data: "holds files that dray did not write: rows.parquet", "~": "is a home dir"}.items():
        host = machines.machine("e", directory=str(directory))
        outcome = machines.call("up", fleet=machines.fleet([host], name="new"))
        assert "e: not usable (" in outcome.error["what"]
        assert words in outcome.error["what"]
        assert "set directory:" in outcome.error["fix"].lower()
    assert [path.name for path in data.iterdir()] == ["rows.parquet"]


def test_an_environment_that_cannot_be_made_is_not_left_behind(machines: Machines, free: SshHost) -> None:
    # There is no index to install from in the network of the hosts.
    values = machines.fleet([machines.machine("e")], name="new", install="dray==0.0.0")
    values.pop("venv")
    python = free.directory / "python"
    python.write_text(f'#!/bin/sh\nPIP_NO_INDEX=1 exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    outcome = machines.call("up", fleet={**values, "python": str(python)})
    assert "e: not usable (-m pip install failed" in outcome.error["what"]
    assert ("e", "working", "makes a virtual environment") in outcome.told
    assert not (free.directory / ".dray" / "venv").exists()


def test_a_machine_that_does_not_answer_keeps_everything_from_starting(machines: Machines, free: SshHost) -> None:
    free.cut()
    try:
        outcome = machines.call("up", fleet=machines.fleet(["d", "e"], name="new"))
    finally:
        free.restore()
    assert "e: unreachable" in outcome.error["what"]
    assert "d:" not in outcome.error["what"]
    assert machines.machines["d"].names == []
    assert not (machines.machines["d"].directory / "d").exists()


def test_a_firewall_between_two_machines_is_found_on_the_ports_of_rings(machines: Machines, free: SshHost) -> None:
    """Neither of the two is the head, which both reach; answers to one of them are dropped."""
    hosts = {name: machines.machines[name] for name in "ade"}
    address = hosts["e"].address
    rule = ["to", hosts["d"].address, "ipproto", "tcp", "sport", "20000-20099", "blackhole"]
    subprocess.run(["ip", "-n", free.namespace, "rule", "add", *rule], check=True)
    try:
        outcome = machines.call("up", fleet=machines.fleet(["a", "d", "e"], name="new"))
    finally:
        subprocess.run(["ip", "-n", free.namespace, "rule", "del", *rule], check=True)
    assert f"d: port blocked (e at {address}, ports 20000, 20049, 20099: timed out). Nothing" in outcome.error["what"]
    assert "20000-20099 (ports.ring)" in outcome.error["fix"]
    assert [host.names for host in hosts.values()] == [[], [], []]


# One cluster.


def test_all_machines_come_up(machines: Machines, lab: Outcome) -> None:
    assert alive(lab) == dict.fromkeys(ALL, True)
    assert alive(machines.call("status")) == dict.fromkeys(ALL, True)
    assert {host for host, state, _ in lab.told if state == "done"} == set(HOSTS)
    found = {node["name"]: node for node in lab.result["nodes"]}
    assert found["b/2"]["cpus"] == 1
    assert found["b/2"]["object_store_bytes"] == 100 << 20
    assert found["b/2"]["memory_bytes"] == 400 << 20
    assert lab.result["warnings"] == []


def test_the_token_is_nowhere_but_in_files_of_their_owner(machines: Machines, lab: Outcome) -> None:
    token = (machines.home / "dray" / "clusters" / "lab" / "token").read_text()
    assert len(token) == 64
    for name in HOSTS:
        host = machines.machines[name]
        file = host.directory / "d" / "token"
        assert file.read_text() == token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert token not in " ".join(commands(host.processes()))
        for path in (host.directory / "d").rglob("*"):
            if path.is_file() and path.name != "token" and path.stat().st_size < 10_000_000:
                assert token.encode() not in path.read_bytes(), path
    assert token not in json.dumps(lab.result) + json.dumps(lab.told)


def test_no_process_has_its_threads_held_to_one_and_all_know_the_ports_of_rings(
    machines: Machines, lab: Outcome
) -> None:
    [head] = named(machines.machines["a"].processes(), "gcs_server")
    assert "OMP_NUM_THREADS" not in head.environ()
    raylets = [named(machines.machines[name].processes(), "raylet") for name in HOSTS]
    assert {raylet.environ()["DRAY_RING_PORTS"] for found in raylets for raylet in found} == {"20000-20099"}


def test_whoever_has_no_token_gets_nothing(machines: Machines, lab: Outcome) -> None:
    status, text = machines.call("http", path="/api/version", token=True).result
    assert (status, "ray_version" in text) == (200, True)
    for path in ("/api/version", "/api/jobs/", "/nodes?view=summary", "/api/v0/nodes"):
        status, text = machines.call("http", path=path, token=False).result
        assert status == 401, path
    script = "from dray.clusters.probe import probe; import json; print(json.dumps(probe('10.77.0.2:6379')))"
    bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    head = machines.machines["a"]
    probed = head.run([sys.executable, "-c", script], env={**bare, "HOME": str(machines.home)})
    assert json.loads(probed.stdout.splitlines()[-1])["problem"] == "token"


def test_the_dashboard_and_ray_client_are_not_open_to_the_network(machines: Machines, lab: Outcome) -> None:
    told = machines.machines["a"].run(["ss", "-Hltn"]).stdout.splitlines()
    listening = [line.split()[3].rpartition(":")[::2] for line in told]
    assert {ip for ip, port in listening if port == "8265"} == {"127.0.0.1"}
    assert "10001" not in {port for _, port in listening}


def test_again_it_changes_nothing(machines: Machines, lab: Outcome, fleet: dict[str, Any]) -> None:
    before = {name: ray_processes(machines.machines[name]) for name in HOSTS}
    assert alive(machines.call("up", fleet=fleet)) == dict.fromkeys(ALL, True)
    assert {name: ray_processes(machines.machines[name]) for name in HOSTS} == before


def test_it_repairs_what_has_died_and_nothing_else(machines: Machines, lab: Outcome, fleet: dict[str, Any]) -> None:
    before = {name: ray_processes(machines.machines[name]) for name in HOSTS}
    victim = min(pid for pid, _ in before["b"])
    psutil.Process(victim).kill()
    seen = machines.call("status")
    assert sorted(alive(seen).values()) == [False, True, True, True, True]
    assert "its processes have ended" in why(seen, "b")
    assert alive(machines.call("up", fleet=fleet)) == dict.fromkeys(ALL, True)
    after = {name: ray_processes(machines.machines[name]) for name in HOSTS}
    assert (after["a"], after["c"]) == (before["a"], before["c"])
    assert len(after["b"]) == 2
    assert len(after["b"] & before["b"]) == 1


def test_training_on_it(machines: Machines, lab: Outcome, tmp_path: Path) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary())
    flags = ["--label", "label", "--weight", "weight", "--ignore", "id", "--rounds", "5", "--workers", "2"]
    head = machines.machines["a"]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(head.directory / "d" / "token")}
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    arguments = ["train", data, *flags, "--cluster", "10.77.0.2:6379"]
    with start_dray(arguments, cwd=tmp_path, env={**env, **token}, prefix=head.prefix) as run:
        assert run.finish()["workers"] == 2


def test_training_on_it_from_the_laptop_by_its_name(machines: Machines, lab: Outcome, tmp_path: Path) -> None:
    """As a job, through SSH and with the cluster's token; the laptop is no part of the cluster."""
    data = datasets.write(tmp_path / "data", datasets.binary())
    flags = ["--label", "label", "--weight", "weight", "--ignore", "id", "--rounds", "5"]
    results = []
    for more in (["--workers", "2", "--cluster", "lab"], ["--workers", "0"]):
        arguments = ["train", data, *flags, *more, "--out", str(tmp_path / f"run-{len(results)}")]
        with start_dray(arguments, cwd=tmp_path, env=machines.environment, prefix=machines.laptop.prefix) as run:
            results.append(run.finish())
    assert [result["workers"] for result in results] == [2, 0]
    assert results[0]["model_digest"] == results[1]["model_digest"]


def test_logs_of_a_node_of_a_machine_and_the_errors_of_all(machines: Machines, lab: Outcome) -> None:
    log = machines.machines["c"].directory / "d" / "ray" / "1" / "session_latest" / "logs" / "worker-x.err"
    log.write_text("fine\nRuntimeError: it broke\n")
    assert "c/1: worker-x.err: RuntimeError: it broke" in machines.call("logs", node=None, errors=True, lines=50).result
    of_b = machines.call("logs", node="b", errors=False, lines=3).result
    assert {line.partition(":")[0] for line in of_b} == {"b/1", "b/2"}
    assert len(of_b) == 6
    one = machines.call("logs", node="b/2", errors=False, lines=3).result
    assert {line.partition(":")[0] for line in one} == {"b/2"}
    assert 'Did you mean "b/2"' in machines.call("logs", node="b/22", errors=False, lines=3).error["what"]


def test_old_sessions_are_removed_and_never_a_live_one(machines: Machines, lab: Outcome) -> None:
    root = machines.machines["b"].directory / "d" / "ray" / "1"
    live = (root / "session_latest").resolve()
    old = root / "session_2020-01-01_00-00-00_000000_1"
    (old / "logs").mkdir(parents=True)
    (old / "logs" / "raylet.out").write_bytes(b"x" * 100_000)
    answer = machines.call("cleanup", limit_bytes=0).result
    assert not old.exists()
    assert live.is_dir()
    assert answer["b"]["removed"] == 1
    assert answer["b"]["freed_bytes"] >= 100_000
    assert sorted(alive(machines.call("status"))) == sorted(ALL)


def test_the_name_is_taken(machines: Machines, lab: Outcome, fleet: dict[str, Any], free: SshHost) -> None:
    outcome = machines.call("up", fleet=machines.fleet(["e"]))
    assert "There is a cluster lab already, with its head on a, not on e" in outcome.error["what"]
    # Somebody with another laptop, who knows nothing of it.
    elsewhere = {"DRAY_HOME": str(machines.home / "other")}
    outcome = machines.call("up", fleet=fleet, environment=elsewhere)
    assert "a: already used" in outcome.error["what"]
    assert machines.call("names", environment=elsewhere).result == []
    outcome = machines.call("up", fleet={**fleet, "name": "other"}, environment=elsewhere)
    assert "already used" in outcome.error["what"]
    assert alive(machines.call("status")) == dict.fromkeys(ALL, True)


def test_a_machine_that_does_not_reach_the_head_is_not_added(machines: Machines, lab: Outcome) -> None:
    host = machines.machines["d"]
    rule = ["to", "10.77.0.2", "ipproto", "tcp", "dport", "6379", "blackhole"]
    subprocess.run(["ip", "-n", host.namespace, "rule", "add", *rule], check=True)
    try:
        outcome = machines.call("add", host=machines.machine("d", workers=1))
    finally:
        subprocess.run(["ip", "-n", host.namespace, "rule", "del", *rule], check=True)
    assert "d: port blocked (10.77.0.2:6379 of the head" in outcome.error["what"]
    assert host.names == []
    assert not (host.directory / "d").exists()
    assert set(alive(machines.call("status"))) == ALL


def test_a_machine_is_added_and_removed(machines: Machines, lab: Outcome) -> None:
    before = {name: ray_processes(machines.machines[name]) for name in HOSTS}
    added = machines.call("add", host=machines.machine("d", workers=1))
    assert alive(added) == dict.fromkeys({*ALL, "d/1"}, True)
    assert "already, with other workers" in machines.call("add", host=machines.machine("d")).error["what"]
    removed = machines.call("remove", host="d")
    assert not removed.error
    assert ("d", "working", "drains") in removed.told
    assert machines.machines["d"].names == []
    assert not (machines.machines["d"].directory / "d").exists(), removed.told
    assert alive(machines.call("status")) == dict.fromkeys(ALL, True)
    assert {name: ray_processes(machines.machines[name]) for name in HOSTS} == before
    assert "is the head" in machines.call("remove", host="a").error["what"]


def test_where_parts_of_ray_that_are_not_public_are_gone_the_public_way_does_the_same(
    machines: Machines, lab: Outcome, tmp_path: Path
) -> None:
    """A node is started by the command `ray`, and Ray is asked by a driver."""
    line = "import sys; sys.modules.update({'ray.scripts.scripts': None} if sys.orig_argv[1] == '-c' else {})"
    make_venv(tmp_path / "venv", line)
    command = (Path(sys.executable).parent / "ray").read_text().split("\n", 1)[1]
    ray = tmp_path / "venv" / "bin" / "ray"
    ray.write_text(f"#!{tmp_path}/venv/bin/python\n{command}")
    ray.chmod(0o755)
    added = machines.call("add", host=machines.machine("d", workers=1, venv=str(tmp_path / "venv")))
    assert alive(added) == dict.fromkeys({*ALL, "d/1"}, True)
    script = (
        "import json; from dray.clusters.fleet.host.launcher import public_view, view; address = '10.77.0.2:6379';"
        "print(json.dumps([view({'address': address}), public_view(address)]))"
    )
    head = machines.machines["a"]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(head.directory / "d" / "token")}
    bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    told = json.loads(head.run([sys.executable, "-c", script], env={**bare, **token}).stdout.splitlines()[-1])
    compared = [
        {(node["id"], node["name"], node["alive"], node["address"], node["port"]) for node in view["nodes"]}
        for view in told
    ]
    assert compared[0] == compared[1]
    assert not machines.call("remove", host="d").error


def test_a_machine_that_is_cut_off_is_named_and_the_others_left(
    machines: Machines, lab: Outcome, fleet: dict[str, Any]
) -> None:
    before = {name: ray_processes(machines.machines[name]) for name in HOSTS}
    machines.machines["c"].cut()
    try:
        outcome = machines.call("up", fleet=fleet)
        assert "c: unreachable" in outcome.error["what"]
        seen = machines.call("status")
        assert not alive(seen)["c/1"]
        assert "unreachable" in why(seen, "c")
        assert alive(seen)["b/1"]
    finally:
        machines.machines["c"].restore()
    assert {name: ray_processes(machines.machines[name]) for name in ("a", "b")} == {
        name: before[name] for name in ("a", "b")
    }


def test_a_machine_that_dies_is_seen_and_can_be_forgotten(machines: Machines, lab: Outcome) -> None:
    machines.machines["c"].power_off()
    seen = machines.call("status")
    assert not alive(seen)["c/1"]
    assert "unreachable" in why(seen, "c")
    removed = machines.call("remove", host="c", drain_s=1)
    assert not removed.error
    assert any(host == "c" and "forgotten" in words for host, _, words in removed.told)
    assert alive(machines.call("status")) == dict.fromkeys(ALL - {"c/1"}, True)


def test_down_leaves_no_process_and_no_token(machines: Machines, lab: Outcome) -> None:
    machines.machines["b"].cut()
    try:
        outcome = machines.call("down")
        assert "is down, but not on every machine. b: unreachable" in outcome.error["what"]
        assert machines.machines["a"].names == []
    finally:
        machines.machines["b"].restore()
    assert machines.call("names").result == ["lab"]
    mine = machines.machines["b"].directory / "d" / "ray" / "1" / "mine.csv"
    mine.write_text("x")
    down = machines.call("down")
    assert not down.error
    assert any(host == "b" and "may not remove (ray/1/mine.csv)" in words for host, _, words in down.told)
    assert machines.machines["a"].names == machines.machines["b"].names == []
    assert not (machines.machines["a"].directory / "d").exists()
    assert [path for path in (machines.machines["b"].directory / "d").rglob("*") if path.is_file()] == [mine]
    assert machines.call("names").result == []
    assert not list((machines.home / "dray").rglob("token"))
