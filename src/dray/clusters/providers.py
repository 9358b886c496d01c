"""Which provider a known cluster has."""

from __future__ import annotations

from dray.clusters.known import Known
from dray.clusters.provider import Provider


def provider_of(known: Known) -> Provider:
    if known.kind == "fleet":
        from dray.clusters.fleet.provider import Fleet

        return Fleet()
    from dray.clusters.kubernetes.pods import Pods

    return Pods()
