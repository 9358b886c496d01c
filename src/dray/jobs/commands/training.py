"""`dray train` and `dray resume` as commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from dray.clusters.resolve import ON_KUBERNETES, Attached, Here
from dray.config.run_file import RunConfig
from dray.errors import ConfigError, ModelError
from dray.events.telemetry import Sink
from dray.jobs.command import shared_paths
from dray.jobs.commands.asked import Asked
from dray.jobs.shared import Head, check_output
from dray.learners.configs import make_config
from dray.learners.registry import available, find
from dray.learners.result import RunResult
from dray.runs.directory import new_run_id, open_run
from dray.runs.migrations import own_keys
from dray.runs.naming import Names
from dray.storage import StorageOptions
from dray.training.checks import check_learner


@dataclass(frozen=True, slots=True)
class Train:
    """A training run."""

    config: RunConfig
    code: ClassVar[None] = None
    name: ClassVar[str] = "train"
    source: ClassVar[str] = "The run file"

    @property
    def cluster(self) -> str:
        return self.config.cluster

    @property
    def storage(self) -> StorageOptions:
        return StorageOptions(**self.config.storage.model_dump())

    @property
    def libraries(self) -> tuple[str, ...]:
        return (find(self.config.model).library,)

    def named(self, names: Names) -> Self:
        config = self.config
        meant = {"out": names.output(config.out), "continue_from": names.finished(config.continue_from)}
        return replace(self, config=config.model_copy(update=meant))

    def settled(self, head: Head) -> Self:
        check_learner(self.config)
        config = self.config
        if config.out is None and not head.here:
            raise ConfigError(
                f"The run is trained at {head.url}, and there is no output directory that both sides see.",
                fix="Add --out s3://bucket/runs/NAME, or a directory on a network file system.",
            )
        paths = shared_paths(
            head,
            data=config.data,
            eval=config.eval,
            out=config.out or f"runs/{new_run_id()}",
            continue_from=config.continue_from,
            cache=config.cache,
        )
        if not config.overwrite:
            check_output(paths["out"][0], self.storage)
        single = {name: next(iter(paths[name]), None) for name in ("out", "continue_from", "cache")}
        several = {name: tuple(paths[name]) for name in ("data", "eval")}
        return replace(self, config=config.model_copy(update={"cluster": head.url, **several, **single}))

    def to_json(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        # A driver of an older dray sends the keys of every model.
        return cls(make_config(own_keys(values), origin="the job"))

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> RunResult:
        config = self.config.model_copy(update={"cluster": where.word})
        if job is None:
            from dray.training.train import train

            return train(config, sinks)
        from dray.jobs.again import train_or_go_on

        return train_or_go_on(config, sinks, job=job, cluster=self.cluster)

    def result_of(self, told: Mapping[str, Any]) -> RunResult:
        return find(told["learner"]).result(told, self.storage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Asked):
    """Going on with a run that ended before its last round."""

    run: str
    cluster: str
    """The one that was asked for, or where the run was."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the run file that do not change the model."""
    code: ClassVar[None] = None
    name: ClassVar[str] = "resume"

    @staticmethod
    def of(run: str, storage: StorageOptions, overrides: Mapping[str, Any]) -> Resume:
        """Return the command; without a cluster among the overrides it goes on where the run was."""
        cluster = str(overrides.get("cluster") or where_it_ran(run, open_run(run, storage).document))
        others = {name: value for name, value in overrides.items() if name != "cluster"}
        return Resume(run=run, cluster=cluster, overrides=others, storage=storage)

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(learner.library for learner in available())

    def named(self, names: Names) -> Self:
        return replace(self, run=names.unfinished(self.run))

    def settled(self, head: Head) -> Self:
        [run] = shared_paths(head, **{"The run": self.run})["The run"]
        return replace(self, run=run)

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> RunResult:  # noqa: ARG002
        from dray.training.resume import resume

        return resume(self.run, self.storage, {**self.overrides, "cluster": where.word}, sinks)

    def result_of(self, told: Mapping[str, Any]) -> RunResult:
        return find(told["learner"]).result(told, self.storage)


def where_it_ran(run: str, document: Mapping[str, Any]) -> str:
    """Return the word by which a run's cluster was named; refuse a cluster that went with its job. Pure."""
    job, config = document.get("job"), document.get("config")
    if isinstance(job, str) and job.startswith(ON_KUBERNETES):
        raise ConfigError(
            f"The run {run} was the job {job.rpartition('/')[2]} on Kubernetes, and its cluster ended with the job.",
            fix=f"Go on at a cluster that dray started (dray cluster up): dray resume {run} --cluster NAME; or at this "
            f"machine: dray resume {run} --cluster local.",
        )
    word = config.get("cluster") if isinstance(config, dict) else None
    if not isinstance(word, str):
        raise ModelError(
            f"{run} does not say on which cluster the run was.", fix=f"Name one: dray resume {run} --cluster local"
        )
    return word
