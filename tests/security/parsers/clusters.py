"""What clusters and jobs say, and what is kept of them: marks, answers of agents and of Kubernetes, settings."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from dray.clusters import known as store
from dray.clusters.fleet.file import make_fleet, read_fleet
from dray.clusters.fleet.host.place import TroubleError, is_alive, read_state
from dray.clusters.fleet.host.processes import boot_id
from dray.clusters.fleet.host.sending import MARK as AGENT_MARK
from dray.clusters.fleet.ssh import HostError, Reached
from dray.clusters.fleet.up import fleet_of
from dray.clusters.kubernetes.render import render_cluster
from dray.clusters.kubernetes.settings import read_settings
from dray.events.kinds import Event
from dray.events.telemetry import to_line
from dray.jobs.marks import MARK, Reader
from dray.jobs.relay import Relay
from security.attack import Parser
from security.real import KEPT

FLEET = {
    "name": "lab",
    "hosts": [{"host": "a", "workers": 2, "cpus": 2, "memory": "6G", "env": {"X": "1"}}, "b"],
    "ports": {"gcs": 6379, "workers": "10002-19999"},
    "install": "dray==0.1.0",
}
KUBERNETES = {
    "name": "demo",
    "namespace": "ml",
    "workers": {"replicas": 2, "cpu": 4, "memory": "8Gi"},
    "env": {"A": "1"},
    "volumes": {"/data": {"claim": "data"}},
}


def _in_file(name: str, real: list[Any], read: Callable[[str], Any], right: Callable[[Any], bool]) -> Parser:
    places: list[Path] = []

    def inputs() -> list[bytes]:
        places.append(Path(tempfile.mkdtemp()) / name)
        places[0].parent.mkdir(parents=True, exist_ok=True)
        texts = [json.dumps(one).encode() for one in real]
        return texts if name.endswith(".json") else [*texts, *(yaml.safe_dump(one).encode() for one in real)]

    def parse(content: bytes) -> Any:
        places[0].write_bytes(content)
        return read(str(places[0]))

    return Parser(inputs, parse, right, structured=True)


def _marks() -> list[bytes]:
    found = []
    for case in ("binary", "explicit"):
        lines = (KEPT / case / "run" / "events.jsonl").read_text().splitlines()[:12]
        events = [{"time": 1.0, "kind": document.pop("kind"), "data": document} for document in map(json.loads, lines)]
        sample = {
            "time": 1.0,
            "worker": 0,
            "host": "a",
            "cpu_cores": 1.0,
            "memory_bytes": 5,
            "host_cpu_percent": 1.0,
            "sent_bytes": 1,
            "received_bytes": 2,
        }
        said = [{"events": events, "samples": [sample]}, {"versions": {"dray": "0.1.0"}}, {"result": {"rows": 3}}]
        found.append("".join(f"noise\n{MARK}{json.dumps(document)}\n" for document in said).encode())
    return found


def _hear(content: bytes) -> Counter[str]:
    """Return how many events and samples there were of each kind; each can be written down again."""
    sink = _Sink()
    reader, heard = Reader(), Relay([sink])
    text = content.decode("utf-8", "replace")
    half = len(text) // 2
    for part in (*reader.feed(text[:half]), *reader.feed(text[half:]), *reader.rest()):
        if isinstance(part, dict):
            heard.hear(part)
    heard.close()
    for event in sink.told:  # here: a relay drops a sink that fails
        if isinstance(event, Event):
            to_line(event)
    return Counter(type(one).__name__ for one in sink.told)


class _Sink:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def event(self, event: Any) -> None:
        self.told.append(event)

    def sample(self, samples: Any) -> None:
        self.told += samples

    def close(self) -> None:
        pass


class _Stream:
    def __init__(self, text: str) -> None:
        self._text = text

    async def read(self, size: int = -1) -> str:
        text, self._text = (self._text, "") if size < 0 else (self._text[:size], self._text[size:])
        return text

    def write(self, _text: str) -> None:
        pass


class _Process:
    def __init__(self, text: str) -> None:
        self.stdin, self.stdout, self.stderr = _Stream(""), _Stream(text), _Stream("")


def _answers() -> list[bytes]:
    answer = {"id": 1, "answer": {"nodes": {}, "versions": {"ray": "2.5"}}}
    return [f"motd\n{AGENT_MARK}{json.dumps(one)}\n".encode() for one in (answer, {"id": 1, "error": "no room"})]


def _ask(content: bytes) -> Any:
    """Return what an agent answers, or its error in words."""
    reached = Reached("a", None, _Process(content.decode("utf-8", "replace")))
    try:
        return asyncio.run(reached.ask("look"))
    except HostError as error:
        return str(error.problem)


def _state(path: str) -> list[str]:
    """Return the nodes that were asked for."""
    asked = []
    with suppress(TroubleError):  # what an agent is told in words
        state = read_state(Path(path).parent)
        for index in state.get("nodes", {}):
            is_alive(state, index, "docker")
            asked.append(index)
    return asked


_NODE = {"name": "a-0", "session": 1, "began": 2, "processes": [[1, 2, "raylet"], [3, 4, "gcs_server"]]}
STATE = {"id": "i", "cluster": "abc", "name": "lab", "owner": "me", "boot": boot_id(), "nodes": {"0": _NODE}}


def _all_known(told: Counter[str]) -> bool:
    return told["Sample"] == 1 and told.total() > 10 and not told["UnknownEvent"]


def _known_inputs() -> list[bytes]:
    os.environ["DRAY_HOME"] = tempfile.mkdtemp()
    fleet = make_fleet(FLEET).model_dump(mode="json")
    kubernetes = {"namespace": "ml", "context": "c", "start_deadline_s": 600}
    for kind, details in (("fleet", {"fleet": fleet, "cluster": "abc"}), ("kubernetes", kubernetes)):
        store.save(store.Known("lab", kind, "10.0.0.1:6379", "http://10.0.0.1:8265", details))
        _KNOWN.append((_known_file()).read_bytes())
    return _KNOWN


_KNOWN: list[bytes] = []


def _known_file() -> Path:
    return Path(os.environ["DRAY_HOME"], "clusters", "lab", "cluster.json")


def _read_known(content: bytes) -> store.Known:
    _known_file().write_bytes(content)
    found = store.read("lab")
    if found.kind == "fleet":
        assert fleet_of(found).name
    return found


PARSERS = {
    "known": Parser(_known_inputs, _read_known, lambda known: known.address == "10.0.0.1:6379", structured=True),
    "marks": Parser(_marks, _hear, _all_known, structured=True),
    "fleet_file": _in_file(
        "fleet.yaml", [FLEET], read_fleet, lambda read: [one.host for one in read.hosts] == ["a", "b"]
    ),
    "settings_file": _in_file(
        "kubernetes.yaml",
        [KUBERNETES],
        lambda path: render_cluster(read_settings(path)),
        lambda cluster: "demo" in str(cluster) and "8Gi" in str(cluster),
    ),
    "agent": Parser(_answers, _ask, lambda said: "nodes" in said or "no room" in said, structured=True),
    "host_state": _in_file("state.json", [STATE], _state, lambda asked: asked == ["0"]),
}
