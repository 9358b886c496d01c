"""What a job shall do: a training run or a script, with the files that go along."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dray.config.private import check_environment, check_texts, texts_in
from dray.config.run_file import RunConfig
from dray.errors import ConfigError
from dray.jobs import start
from dray.jobs.package import File, select
from dray.jobs.shared import Head, as_absolute, check_output, check_paths
from dray.storage import StorageOptions, absolute
from dray.telemetry.run_directory import new_run_id

PLACE = ".dray"
ENTRYPOINT = f"exec $(command -v python || command -v python3 || echo python) {PLACE}/start.py"
"""The same for every job: what differs is in the package, since everybody who may list jobs reads this."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is run."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """For its environment; no secrets, as they can be read by all."""
    pip: tuple[str, ...] = ()
    timeout_s: float | None = None
    retries: int = 0

    def check(self) -> None:
        check_environment(self.variables, os.environ)
        check_texts("A requirement", self.pip, os.environ)
        if self.timeout_s is not None and not 0 < self.timeout_s < 10**8:
            raise ConfigError(
                f"A job cannot end after {self.timeout_s:g} s.", fix="Give --timeout a number of seconds above 0."
            )
        if self.retries < 0:
            raise ConfigError(f"{self.retries} retries are not possible.", fix="Give --retries a number from 0 on.")


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to run."""

    name: str
    """For lists of jobs."""
    kind: str
    """run or script."""
    order: dict[str, Any]
    """For start.py and there.py."""
    root: Path | None = None
    files: tuple[File, ...] = ()
    left_out: tuple[str, ...] = ()

    def contents(self, attempt: int, timeout_s: float | None) -> dict[str, bytes]:
        """Return the files that dray adds."""
        order = {"kind": self.kind, "attempt": attempt, "timeout_s": timeout_s, "versions": versions(), **self.order}
        return {
            f"{PLACE}/start.py": Path(start.__file__).read_bytes(),
            f"{PLACE}/job.json": json.dumps(order, indent=1).encode(),
        }


def versions() -> dict[str, str]:
    """Return what is compared with the cluster's, as far as it is installed here."""
    found = {"python": platform.python_version()}
    for name in ("dray", "ray", "xgboost", "numba"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def training(config: RunConfig, head: Head, name: str = "dray train") -> Task:
    """Return the task of a training run, with paths that mean the same there; refuse those that do not."""
    settled = settle(config, head)
    values = settled.model_dump(mode="json")
    check_texts("The run file", texts_in(values), os.environ)
    check_output(str(settled.out), StorageOptions(**settled.storage.model_dump()))
    return Task(name, "run", {"config": values})


def resuming(run: str, storage: StorageOptions, overrides: Mapping[str, Any], head: Head) -> Task:
    """Return the task of going on with a run."""
    [location] = as_absolute([run])
    check_paths([("The run", location)], head)
    order = {"resume": location, "storage": asdict(storage), "overrides": {**overrides, "cluster": "auto"}}
    return Task("dray resume", "run", order)


def settle(config: RunConfig, head: Head) -> RunConfig:
    """Return the configuration as it holds on the head: absolute paths, its own cluster, an output that both see."""
    if config.out is None and not head.here:
        raise ConfigError(
            f"The run happens elsewhere, at {head.url}, and its output has no place that both sides see.",
            fix="Add out: s3://bucket/runs/NAME (--out), or a directory on a network file system.",
        )
    paths = {
        "data": as_absolute(config.data),
        "eval": as_absolute(config.eval),
        "out": as_absolute([config.out or f"runs/{new_run_id()}"]),
        "continue_from": as_absolute([config.continue_from] if config.continue_from else []),
        "cache": as_absolute([config.cache] if config.cache else []),
    }
    check_paths(((name, location) for name, locations in paths.items() for location in locations), head)
    single = {name: next(iter(paths[name]), None) for name in ("out", "continue_from", "cache")}
    return config.model_copy(
        update={"data": tuple(paths["data"]), "eval": tuple(paths["eval"]), "cluster": "auto", **single}
    )


def script(
    path: str, arguments: Sequence[str] = (), *, working_dir: str | None = None, excludes: Sequence[str] = ()
) -> Task:
    """Return the task of a Python script. Its directory, or `working_dir`, goes along."""
    file = Path(absolute(path))
    if not file.is_file():
        raise ConfigError(f"There is no script {path}.", fix="Name a Python file, or a run file (run.yaml).")
    root = Path(absolute(working_dir)) if working_dir else file.parent
    if not root.is_dir():
        raise ConfigError(f"There is no directory {working_dir}.", fix="Name a directory with --working-dir.")
    if not file.is_relative_to(root):
        raise ConfigError(
            f"The script {path} is not in the working directory {root}.",
            fix=f"Use --working-dir {file.parent}, or a directory above it.",
        )
    check_texts("An argument", arguments, os.environ)
    selection = select(root, excludes)
    name = file.relative_to(root).as_posix()
    if name not in {packed.name for packed in selection.files}:
        raise ConfigError(f"The script {name} is itself left out.", fix="Change --exclude, or the .gitignore.")
    order = {"script": name, "arguments": list(arguments)}
    return Task(name, "script", order, root, selection.files, selection.left_out)
