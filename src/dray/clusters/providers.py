"""The kinds of clusters. The one place that names them: `dray cluster` takes its choices and help from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dray.errors import ConfigError

if TYPE_CHECKING:
    from dray.clusters.known import Known
    from dray.clusters.provider import Provider

DEFAULT = "fleet"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of clusters: a folder beside this file."""

    what: str
    """For help texts: what such a cluster is, and what FILE of `dray cluster up` holds."""
    provider: str = ""
    """Its `Provider`, as module:class; empty where no command starts a cluster of this kind."""
    start: str = ""
    """How such a cluster starts where no command does it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What `Known.details` must hold beyond what the provider itself checks, with the types."""


KINDS = {
    "fleet": Kind(
        "machines reached by SSH; FILE lists hosts, workers, CPUs and memory", "dray.clusters.fleet.provider:Fleet"
    ),
    "kubernetes": Kind(
        "pods made by KubeRay; FILE holds settings, which all have defaults",
        "dray.clusters.kubernetes.provider:Kubernetes",
        details={"namespace": str, "context": str | None, "start_deadline_s": int | float},
    ),
    "local": Kind(
        "this machine, for one run; starts with that run",
        start="A run starts it, and ends it: dray train DATA --label COLUMN --workers 2.",
    ),
    "spark": Kind(
        "inside a Spark session, for one run; starts with that run",
        start="A run starts it in the Spark session of its process: dray train DATA --label COLUMN --cluster spark.",
    ),
}


def provider_of(known: Known) -> Provider:
    return find(known.kind)


def find(kind: str) -> Provider:
    """Return the provider of a kind; a kind without one is an error that says how its clusters start."""
    if not KINDS[kind].provider:
        raise ConfigError(f"dray cluster does not start clusters of the kind {kind}.", fix=KINDS[kind].start)
    module, _, name = KINDS[kind].provider.partition(":")
    provider: Provider = getattr(import_module(module), name)()
    return provider
