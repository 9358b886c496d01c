"""The fleet file: which machines make a cluster, and what each of them gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from dray.clusters.resolve import check_name
from dray.config.yaml_file import read_yaml
from dray.errors import ConfigError, DrayError, nearest
from dray.rings.ports import DEFAULT as DEFAULT_RING

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:%-]*[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PORTS_PER_NODE = 6


def as_bytes(value: Any) -> Any:
    """Return "6G" as bytes: K, M, G and T are powers of 1024, as Docker and `ulimit` count them."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if not found:
        raise ValueError("must be a size such as 6G or 512M")
    size = float(found[1]) * 1024 ** _POWERS[found[2].lower()]
    if not size < 2**63:
        raise ValueError("must be a size that a machine can have")
    return int(size)


def _as_host(value: Any) -> Any:
    """Let a host that has nothing special be written as its name alone."""
    return {"host": value} if isinstance(value, str) else value


def _check_variables(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f'"{name}" cannot be the name of a variable')
        if "\0" in value:
            raise ValueError(f"the value of {name} holds a zero byte")
    return env


Env = Annotated[dict[str, str], AfterValidator(_check_variables)]
Bytes = Annotated[int, BeforeValidator(as_bytes), Field(gt=0)]
Port = Annotated[int, Field(gt=0, lt=65536)]
Range = Annotated[str, Field(pattern=r"^\d+-\d+$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ports(_Model):
    """Where the cluster's processes listen. Every host must reach every other one there; no other machine needs to."""

    gcs: Port = 6379
    """The head: every node, and every driver on a machine of the cluster, connects here."""

    dashboard: Port = 8265
    """The head's dashboard and job server."""

    nodes: Port = 6400
    """The first of the ports that nodes listen on: six for each node of a host."""

    workers: Range = "10002-19999"
    """For the processes that do the work; divided among the nodes of a host."""

    ring: Range = DEFAULT_RING
    """For the connections between workers that train together: one port for each, and one for the driver."""

    @property
    def worker_range(self) -> tuple[int, int]:
        return _range(self.workers)

    @property
    def ring_range(self) -> tuple[int, int]:
        return _range(self.ring)

    def node_range(self, workers: int) -> tuple[int, int]:
        """Return the ports of the nodes of a host, as if it had the head too."""
        return self.nodes, self.nodes + _PORTS_PER_NODE * (workers + 1) - 1

    @model_validator(mode="after")
    def _apart(self) -> Ports:
        if self.gcs == self.dashboard:
            raise ValueError("gcs and dashboard must be two ports")
        for key in ("workers", "ring"):
            text = getattr(self, key)
            first, last = _range(text)
            if not 1024 <= first < last < 65536:
                raise ValueError(f"{key} must go from a smaller to a larger port, between 1024 and 65535")
            for name in ("gcs", "dashboard", "nodes"):
                if first <= getattr(self, name) <= last:
                    raise ValueError(f"{name} lies among the ports of {key} ({text})")
        if _overlap(self.worker_range, self.ring_range):
            raise ValueError(
                f"workers ({self.workers}) and ring ({self.ring}) have ports in common: change one of them"
            )
        return self


def _range(text: str) -> tuple[int, int]:
    first, last = text.split("-")
    return int(first), int(last)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


class Docker(_Model):
    """Nodes in containers, one each."""

    image: str = Field(min_length=1)
    """With Python, Ray and dray in it; the tag should name their versions."""

    shm_size: Bytes | None = None
    """Size of /dev/shm in the container, which holds the object store. Default: the object store and a tenth."""

    network: Literal["host"] = "host"
    """Ray's ports are many; containers use the host's own network."""

    command: str = "docker"
    """The program, such as podman."""


class Tls(_Model):
    """Encrypted connections between the nodes. The files are on every host, made by you."""

    cert: str
    """Certificate of the host."""

    key: str
    """Its private key."""

    ca: str
    """Certificate of the authority that signed it."""


class HostSpec(_Model):
    """One machine."""

    host: str
    """Name or address, as `ssh` takes it; what ~/.ssh/config says of it holds."""

    workers: int = Field(default=1, ge=0, le=256)
    """Ray nodes on this machine."""

    cpus: int | None = Field(default=None, ge=1)
    """CPUs of each. Default: the machine's, divided."""

    memory: Bytes | None = None
    """Memory of each, its object store included, such as 6G. Default: 80 % of the machine's, divided."""

    object_store: Bytes | None = None
    """The part of the memory that holds shared objects. Default: 30 %."""

    gpus: int | None = Field(default=None, ge=0)
    """GPUs of each. Default: none."""

    user: str | None = None
    """User to log in as. Default: the fleet's."""

    key: str | None = None
    """Private key. Default: the fleet's."""

    port: Port | None = None
    """Port of the SSH server. Default: the fleet's."""

    address: str | None = None
    """IP address under which the other machines reach it. Default: the one that SSH arrived at."""

    directory: str | None = None
    """Where dray keeps what it needs there. Default: the fleet's."""

    venv: str | None = None
    """Virtual environment. Default: the fleet's."""

    env: Env = {}
    """Variables for every Ray process there."""

    @field_validator("host")
    @classmethod
    def _is_one(cls, host: str) -> str:
        if not _HOST.fullmatch(host):
            raise ValueError("must be the name or the address of a machine")
        return host

    @model_validator(mode="after")
    def _fits(self) -> HostSpec:
        if self.memory and self.object_store and self.object_store >= self.memory:
            raise ValueError("object_store must be less than memory")
        return self


class FleetFile(_Model):
    """A cluster of machines that are reached by SSH."""

    name: str
    """What the cluster is called from now on: --cluster NAME."""

    hosts: tuple[Annotated[HostSpec, BeforeValidator(_as_host)], ...]
    """The machines."""

    head: str | None = None
    """The machine with the head, which runs beside that machine's workers if it has any. Default: the first one."""

    user: str | None = None
    """User to log in as. Default: as ~/.ssh/config says, or the user here."""

    key: str | None = None
    """Private key. Default: the agent's, those in ~/.ssh."""

    port: Port | None = None
    """Port of the SSH servers. Default: as ~/.ssh/config says, or 22."""

    known_hosts: str | None = None
    """File with the machines' public keys, against which they are checked. Default: ~/.ssh/known_hosts."""

    directory: str | None = None
    """Where dray keeps everything that it needs on a machine. Default: ~/.dray/NAME."""

    python: str = "python3"
    """A Python (3.9 or later) on the machines, with which a virtual environment is made."""

    venv: str | None = None
    """A virtual environment that is there and has Ray and dray. Default: ~/.dray/venv, made where it is missing."""

    install: str | None = None
    """What is installed into ~/.dray/venv: a requirement, or a wheel here that is copied. Default: this dray."""

    docker: Docker | None = None
    """Nodes in containers instead of a virtual environment."""

    ports: Ports = Ports()
    """Where the cluster listens."""

    dashboard_host: str = "127.0.0.1"
    """The address that the dashboard listens on. Any other one opens it to the network."""

    tls: Tls | None = None
    """Encryption between the nodes."""

    env: Env = {}
    """Variables for every Ray process."""

    @field_validator("name")
    @classmethod
    def _fits(cls, name: str) -> str:
        check_name(name)
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> FleetFile:
        if not self.hosts:
            raise ValueError("hosts is empty: name a machine")
        names = [host.host for host in self.hosts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the host {twice[0]} is listed twice: give it once, with more workers")
        if self.docker and (self.venv or self.install):
            raise ValueError("docker excludes venv and install: the image brings everything")
        for env in (self.env, *(host.env for host in self.hosts)) if self.docker else ():
            if broken := [name for name, value in env.items() if "\n" in value or "\r" in value]:
                raise ValueError(
                    f"the variable {broken[0]} has a line break, which Docker does not take: write it in one line"
                )
        if self.venv and self.install:
            raise ValueError("install excludes venv: an environment that is there is only checked")
        for host in self.machines:
            ports = self.ports
            first, last = ports.node_range(host.workers)
            single = ((port, port) for port in (ports.gcs, ports.dashboard))
            others = (*single, ports.worker_range, ports.ring_range)
            if last > 65535 or any(_overlap((first, last), other) for other in others):
                raise ValueError(
                    f"the host {host.host} needs the ports {first}-{last}, which others use: "
                    "change ports.nodes, ports.workers or ports.ring"
                )
        return self

    @property
    def head_host(self) -> str:
        return self.head or self.hosts[0].host

    @property
    def machines(self) -> tuple[HostSpec, ...]:
        """All machines, the head's first."""
        head = next((host for host in self.hosts if host.host == self.head_host), None)
        others = [host for host in self.hosts if host.host != self.head_host]
        return (head or HostSpec(host=self.head_host, workers=0), *others)

    def machine(self, host: str) -> HostSpec:
        for machine in self.machines:
            if machine.host == host:
                return machine
        names = [machine.host for machine in self.machines]
        raise ConfigError(
            f'"{host}" is no machine of the cluster {self.name}.{nearest(host, names)}',
            fix=f"Its machines: {', '.join(names)}.",
        )

    def with_host(self, spec: HostSpec) -> FleetFile:
        """Return the fleet with one machine more, or as it is if the machine is in it and shall give the same."""
        there = next((machine for machine in self.machines if machine.host == spec.host), None)
        if there is None:
            return make_fleet(self.model_dump() | {"hosts": [*self.hosts, spec], "head": self.head_host})
        if other := [key for key in spec.model_fields_set if getattr(spec, key) != getattr(there, key)]:
            raise ConfigError(
                f"{spec.host} is in the cluster {self.name} already, with other {', '.join(sorted(other))}.",
                fix=f"dray cluster remove {spec.host} --cluster {self.name} first, to change what it gives.",
            )
        return self

    def without_host(self, host: str) -> FleetFile:
        """Return the fleet with one machine less; it has another one."""
        left = [machine for machine in self.hosts if machine.host != host]
        return self.model_copy(update={"hosts": tuple(left), "head": self.head_host})


def read_fleet(path: str) -> FleetFile:
    """Return the checked fleet file, or a ConfigError that names the key and the fix."""
    document = read_yaml(path, "fleet file", "name: lab")
    fleet = make_fleet(document, origin=path)
    # A path beside the file means the same wherever the command is called.
    with suppress(OSError, ValueError, RuntimeError):  # what cannot be a path here is a requirement
        if fleet.install and (wheel := Path(path).parent / Path(fleet.install).expanduser()).is_file():
            fleet = fleet.model_copy(update={"install": str(wheel.resolve())})
    return fleet


def make_fleet(values: Mapping[str, Any], *, origin: str = "the fleet") -> FleetFile:
    try:
        return FleetFile.model_validate(dict(values))
    except ValidationError as error:
        raise _explain(error, origin) from None


def make_host(values: Mapping[str, Any]) -> HostSpec:
    """Return one machine as `dray cluster add` describes it; what is None was not said."""
    try:
        return HostSpec.model_validate({key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        raise _explain(error, "the command line", HostSpec) from None


_PARTS: dict[str, type[BaseModel]] = {"hosts": HostSpec, "ports": Ports, "docker": Docker, "tls": Tls}


def _explain(error: ValidationError, origin: str, model: type[BaseModel] = FleetFile) -> DrayError:
    problems = error.errors()
    # A misspelt key leaves the right one missing: tell the first.
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    location = [str(key) for key in first["loc"]]
    place = ".".join(location)
    if first["type"] == "extra_forbidden":
        model = _PARTS.get(location[0], model) if len(location) > 1 else model
        hint = nearest(location[-1], model.model_fields)
        return ConfigError(
            f'Unknown key "{place}" in {origin}.{hint}', fix=f"Known keys: {', '.join(model.model_fields)}."
        )
    if first["type"] == "missing":
        return ConfigError(f'"{place}" is missing in {origin}.', fix=f"Add {place}: ...")
    message = first["msg"].removeprefix("Value error, ")
    what, _, fix = message.partition(": ")
    if not place:
        return ConfigError(f"{what[0].upper()}{what[1:]}.", fix=f"{fix[0].upper()}{fix[1:]}." if fix else "")
    if fix or isinstance(first["input"], dict):
        return ConfigError(f'"{place}" in {origin}: {what}.', fix=f"{fix[0].upper()}{fix[1:]}." if fix else "")
    return ConfigError(f'"{place}" in {origin} is {first["input"]!r}: {message}.', fix=f"Change {place}.")
