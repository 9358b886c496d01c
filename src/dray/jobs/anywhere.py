"""Training wherever `cluster:` says: in this process and on clusters that it is part of, or as a job elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.words import understand
from dray.config.run_file import RunConfig
from dray.storage import StorageOptions
from dray.telemetry.events import Sink
from dray.training.outcome import Result


def train(config: RunConfig, sinks: Sequence[Sink] = ()) -> Result:
    """Train as the configuration says."""
    if not understand(config.cluster).elsewhere:
        from dray.training.train import train as train_here

        return train_here(config, sinks)
    from dray.clusters.providers import provider_of
    from dray.jobs.endpoint import open_endpoint
    from dray.jobs.remote import train_at

    with open_endpoint(config.cluster, provider_of) as place:
        return train_at(place, config, sinks)


def resume(run: str, storage: StorageOptions, overrides: Mapping[str, Any], sinks: Sequence[Sink] = ()) -> Result:
    """Go on with a run; `overrides` may name another cluster than it had."""
    cluster = overrides.get("cluster")
    if cluster is None or not understand(cluster).elsewhere:
        from dray.training.resume import resume as resume_here

        return resume_here(run, storage, overrides, sinks)
    from dray.clusters.providers import provider_of
    from dray.jobs.endpoint import open_endpoint
    from dray.jobs.remote import resume_at

    with open_endpoint(cluster, provider_of) as place:
        return resume_at(place, run, storage, {k: v for k, v in overrides.items() if k != "cluster"}, sinks)
