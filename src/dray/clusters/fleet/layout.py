"""Which Ray nodes a machine has, with their ports and their share of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dray.clusters.fleet.file import FleetFile, HostSpec

HEAD = 0
"""Index of the head's node; a machine's workers count from 1."""
_OBJECT_STORE_SHARE = 0.3
_MEMORY_SHARE = 0.8
_SHM_SHARE = 0.9
_SMALLEST_STORE = 80 << 20
"""Ray takes no less than 75 MiB."""
_HEAD_MEMORY = 512 << 20
_HEAD_STORE = 256 << 20
_PORTS_PER_NODE = 6


@dataclass(frozen=True, slots=True)
class Machine:
    """What the agent found out about a machine, as far as nodes depend on it."""

    address: str
    cpus: int
    memory_bytes: int
    shm_bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """One Ray node."""

    index: int
    name: str
    """As people and Ray know it: host/1; the head's is host/head."""
    cpus: int
    memory_bytes: int
    """For tasks and actors; the object store is beside it."""
    object_store_bytes: int
    gpus: int
    ports: tuple[int, ...]
    """That must be free: on the head those of the control service and the dashboard too."""
    arguments: tuple[str, ...]
    """For `ray start`."""
    agent_ports: dict[str, int]
    """Those of the node's two agents, by Ray's names for them."""

    @property
    def is_head(self) -> bool:
        return self.index == HEAD

    def noted(self) -> dict[str, Any]:
        """Return what the agent tells of the node once it runs."""
        return {
            "alive": True,
            "name": self.name,
            "cpus": self.cpus,
            "memory": self.memory_bytes,
            "object_store": self.object_store_bytes,
        }

    def to_agent(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "name": self.name,
            "cpus": self.cpus,
            "memory": self.memory_bytes,
            "object_store": self.object_store_bytes,
            "arguments": list(self.arguments),
            "agent_ports": self.agent_ports,
        }


def node_name(host: str, index: int) -> str:
    return f"{host}/{'head' if index == HEAD else index}"


def indices(fleet: FleetFile, spec: HostSpec) -> list[int]:
    first = HEAD if spec.host == fleet.head_host else HEAD + 1
    return list(range(first, spec.workers + 1))


def ports_of(fleet: FleetFile, index: int) -> tuple[int, ...]:
    first = fleet.ports.nodes + _PORTS_PER_NODE * index
    own = tuple(range(first, first + _PORTS_PER_NODE))
    return (fleet.ports.gcs, fleet.ports.dashboard, *own) if index == HEAD else own


def nodes_of(fleet: FleetFile, spec: HostSpec, machine: Machine, head_address: str) -> list[Node]:
    """Return the nodes of a machine, the head's first."""
    wanted = indices(fleet, spec)
    return [_node(fleet, spec, machine, head_address, index, len(wanted)) for index in wanted]


def _node(fleet: FleetFile, spec: HostSpec, machine: Machine, head_address: str, index: int, of: int) -> Node:
    if index == HEAD:
        cpus, gpus, memory, store = 0, 0, _HEAD_MEMORY, _HEAD_STORE
    else:
        workers = max(1, spec.workers)
        cpus = spec.cpus or max(1, machine.cpus // workers)
        gpus = spec.gpus or 0
        total = spec.memory or int(machine.memory_bytes * _MEMORY_SHARE) // workers
        room = int(machine.shm_bytes * _SHM_SHARE) // of
        store = spec.object_store or max(_SMALLEST_STORE, min(int(total * _OBJECT_STORE_SHARE), room))
        memory = max(1, total - store)
    ports = ports_of(fleet, index)
    manager, objects, agent, agent_http, environments, metrics = ports[-_PORTS_PER_NODE:]
    low, high = fleet.ports.worker_range
    share = (high - low + 1) // of
    start = low + share * (index if spec.host == fleet.head_host else index - 1)
    if index == HEAD:
        role = [
            *("--head", f"--port={fleet.ports.gcs}", "--include-dashboard=true"),
            *(f"--dashboard-host={fleet.dashboard_host}", f"--dashboard-port={fleet.ports.dashboard}"),
        ]
    else:
        role = [f"--address={head_address}:{fleet.ports.gcs}"]
    name = node_name(spec.host, index)
    arguments = (
        *role,
        *(f"--node-ip-address={machine.address}", f"--node-name={name}", "--disable-usage-stats"),
        *(f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--memory={memory}", f"--object-store-memory={store}"),
        *(f"--node-manager-port={manager}", f"--object-manager-port={objects}"),
        *(f"--dashboard-agent-grpc-port={agent}", f"--dashboard-agent-listen-port={agent_http}"),
        *(f"--runtime-env-agent-port={environments}", f"--metrics-export-port={metrics}"),
        *(f"--min-worker-port={start}", f"--max-worker-port={start + share - 1}"),
    )
    agent_ports = {
        "metrics_agent_port": agent,
        "metrics_export_port": metrics,
        "dashboard_agent_listen_port": agent_http,
        "runtime_env_agent_port": environments,
    }
    return Node(index, name, cpus, memory, store, gpus, ports, arguments, agent_ports)
