"""How a map is to be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dray.errors import ConfigError, nearest

Where = Literal["auto", "here", "processes", "cluster"]
OnError = Literal["raise", "skip", "return"]
_OURS = ("env_vars", "working_dir")
"""What this machine's own processes can do of a runtime_env."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Every choice there is; the defaults suit most."""

    ordered: bool = True
    """Results in the order of the items, or as they come."""
    on_error: OnError = "raise"
    """For an item that fails: raise `ItemError`, skip it (and report it), or return the error in its place."""
    timeout_s: float | None = None
    """The longest that one item may take."""
    retries: int = 2
    """More tries for an item whose process was ended by something that may lie outside the function."""
    where: Where = "auto"
    """In this process, in processes of this machine, on a Ray cluster, or where it is fastest."""
    workers: int | Literal["auto"] = "auto"
    """Items that run at the same time; one for each CPU unless given."""
    cluster: str | None = None
    """local (embedded), auto (this machine's), or host:port; unless given, the Ray that this process has joined."""
    batch: int | None = None
    """Items in a batch; measured unless given."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """What one item needs while it runs: num_cpus, num_gpus, memory (bytes), or a cluster's own resources."""
    fills_nodes: bool = False
    """On a cluster an item gets as many CPUs as fit `workers` of them; with "auto" one runs on each node."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Ray's runtime environment; processes of this machine know env_vars and working_dir."""

    def __post_init__(self) -> None:
        one_of("where", self.where, get_args(Where))
        one_of("on_error", self.on_error, get_args(OnError))
        for name, value, least in (("retries", self.retries, 0), ("batch", self.batch, 1)):
            if value is not None and (not isinstance(value, int) or value < least):
                raise ConfigError(f"{name} is {value!r}.", fix=f"Give a whole number from {least} on.")
        if self.workers != "auto" and (not isinstance(self.workers, int) or self.workers < 1):
            raise ConfigError(f"workers is {self.workers!r}.", fix='Give a number from 1 on, or "auto".')
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ConfigError(f"timeout_s is {self.timeout_s!r}.", fix="Give the seconds that an item may take.")
        for name, amount in self.resources.items():
            if not isinstance(amount, int | float) or amount < 0:
                raise ConfigError(f"resources[{name!r}] is {amount!r}.", fix="Give a number from 0 on.")
        if self.where in ("here", "processes") and (asked := self.only_on_a_cluster):
            raise ConfigError(
                f'{", ".join(asked)}: only a cluster has that, and where is "{self.where}".', fix='Use where="cluster".'
            )
        if self.where == "here" and self.runtime_env:
            raise ConfigError('This process has its environment already (where="here").', fix="Leave out runtime_env.")

    @property
    def cpus(self) -> float:
        """What one item takes of the CPUs."""
        return float(self.resources.get("num_cpus", 1))

    @property
    def memory_bytes(self) -> int | None:
        memory = self.resources.get("memory")
        return int(memory) if memory else None

    @property
    def only_on_a_cluster(self) -> list[str]:
        """What was asked for and this machine's processes cannot give."""
        resources = [f"resources[{name!r}]" for name in self.resources if name not in ("num_cpus", "memory")]
        return resources + [f"runtime_env[{name!r}]" for name in self.runtime_env if name not in _OURS]


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is none of the known ones, with the nearest of them."""
    if value not in known:
        raise ConfigError(f'{name} is "{value}".{nearest(str(value), known)}', fix=f"Known: {', '.join(known)}.")
