"""What a job shall do: a command of dray's (`command.py`) or a script, with the files that go along."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dray.config.private import check_environment, check_texts
from dray.errors import ConfigError
from dray.jobs import start
from dray.jobs.package import File
from dray.jobs.selecting import LeftOut, select
from dray.storage import absolute

PLACE = ".dray"
ENTRYPOINT = f"exec $(command -v python || command -v python3 || echo python) {PLACE}/start.py"
"""The same for every job: what differs is in the package, since all users that may list jobs read this."""


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
            raise ConfigError(f"--timeout is {self.timeout_s:g} seconds.", fix="Give a number above 0.")
        if self.retries < 0:
            raise ConfigError(f"--retries is {self.retries}.", fix="Give 0 or more.")


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to run."""

    name: str
    """For lists of jobs."""
    kind: str
    """run (a command of dray's) or script."""
    order: dict[str, Any]
    """For start.py and there.py."""
    root: Path | None = None
    files: tuple[File, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def contents(self, job: str, timeout_s: float | None) -> dict[str, bytes]:
        """Return the files that dray adds. `job` is the id of the first try."""
        order = {"kind": self.kind, "job": job, "timeout_s": timeout_s, "versions": versions(), **self.order}
        return {
            f"{PLACE}/start.py": Path(start.__file__).read_bytes(),
            f"{PLACE}/job.json": json.dumps(order, indent=1).encode(),
        }


def versions(libraries: Sequence[str] = ()) -> dict[str, str]:
    """Return what is compared between here and the cluster, as far as it is installed."""
    found = {"python": platform.python_version()}
    for name in ("dray", "ray", *libraries):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


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
        raise ConfigError(
            f"The script {name} would not be sent: it is among the files that are left out.",
            fix=f"Include it with --exclude '!{name}', or change the .gitignore or its name.",
        )
    order = {"script": name, "arguments": list(arguments)}
    return Task(name, "script", order, root, selection.files, selection.left_out)
