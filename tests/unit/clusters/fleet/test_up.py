"""A fleet file and the cluster of the same name that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dray.clusters import known
from dray.clusters.fleet import up
from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.session import Session
from dray.clusters.fleet.ssh import HostError
from dray.clusters.fleet.up import merged
from dray.clusters.known import Known
from dray.errors import ClusterError
from unit.clusters.fleet.machines import facts

RUNNING = make_fleet({"name": "lab", "hosts": ["a", "b", "added"]})


def test_machines_that_were_added_stay() -> None:
    fleet = merged(make_fleet({"name": "lab", "hosts": ["a", {"host": "b", "workers": 3}]}), RUNNING)
    assert [(machine.host, machine.workers) for machine in fleet.machines] == [("a", 1), ("b", 3), ("added", 1)]


def test_the_name_is_taken_by_a_cluster_with_another_head() -> None:
    with pytest.raises(ClusterError, match="There is a cluster lab already, with its head on a, not on z"):
        merged(make_fleet({"name": "lab", "hosts": ["z"]}), RUNNING)


def test_ports_cannot_change_while_it_runs() -> None:
    with pytest.raises(ClusterError, match="runs with other ports"):
        merged(make_fleet({"name": "lab", "hosts": ["a"], "ports": {"gcs": 6380}}), RUNNING)


class Machine:
    """A machine on which nothing starts; `deaf` ones do not answer when that is to be taken back."""

    def __init__(self, host: str, deaf: bool) -> None:
        self.host = host
        self.deaf = deaf
        self.asked: list[str] = []

    async def ask(self, do: str, **_: Any) -> Any:
        self.asked.append(do)
        if do == "stop":
            if self.deaf:
                raise HostError(Problem(self.host, "unreachable", "no answer within 120 s"))
            return ""
        return {"0": "it broke"} if do == "start" else None

    async def close(self) -> None:
        return


def bring_up(monkeypatch: pytest.MonkeyPatch, deaf: str = "", before: bool = False) -> ClusterError:
    fleet = make_fleet({"name": "lab", "hosts": ["a", "b"]})

    async def inspect(session: Session, hosts: list[str], _only: str | None) -> dict[str, Any]:
        session.machines = {host: cast("Any", Machine(host, host == deaf)) for host in hosts}
        return {host: facts(host) for host in hosts}

    monkeypatch.setattr(up, "_inspect", inspect)
    monkeypatch.setattr(up, "load_asyncssh", lambda: None)
    if before:
        known.save(Known("lab", "fleet", "x:1", "http://x:2", {"cluster": "id", "fleet": fleet.model_dump()}))
    with pytest.raises(ClusterError) as error:
        up.up(fleet)
    return error.value


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path))


@pytest.mark.usefixtures("home")
def test_a_start_that_failed_and_was_taken_back_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    error = bring_up(monkeypatch)
    assert "a: did not start (it broke). Nothing was left running." in error.what
    assert known.names() == []


@pytest.mark.usefixtures("home")
def test_a_start_that_cannot_be_taken_back_says_where_and_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    error = bring_up(monkeypatch, deaf="b")
    assert "b: unreachable (no answer within 120 s)" in error.what
    assert "What was started on b could not be ended, and may still run." in error.what
    assert "Nothing was left" not in error.what
    assert "dray cluster down lab when b answers" in error.fix
    assert known.names() == ["lab"]
    assert [machine.host for machine in up.fleet_of(known.read("lab")).machines] == ["a", "b"]


@pytest.mark.usefixtures("home")
def test_of_a_cluster_whose_head_had_died_nothing_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Nothing was left running." in bring_up(monkeypatch, before=True).what
    assert known.names() == ["lab"]
