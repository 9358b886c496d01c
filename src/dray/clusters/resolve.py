"""What the word behind `--cluster` (`cluster:`) means: the one place that says so, for every command. Pure.

| word             | what                                                      | runs                                 |
|------------------|-----------------------------------------------------------|--------------------------------------|
| `local`          | `Here`: this machine                                      | here, or on a Ray for this one run   |
| `auto`           | `Attached`: the Ray that this machine is part of          | there; this process is its driver    |
| `host:port`      | `Attached`: the Ray whose head listens there              | as above                             |
| `spark`          | `Attached`: a Ray inside the Spark session of this process | as above                            |
| `http(s)://...`  | `Remote`: a job endpoint                                  | as a job, which this process follows |
| a name           | `Remote`: a cluster that dray started                     | as above                             |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dray.errors import ConfigError

RESERVED = ("local", "auto", "spark")
NAME = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")
"""A name that Kubernetes takes too, for a RayCluster."""
ON_KUBERNETES = "kubernetes/"
"""Begins the id of a job that has a cluster of its own; its namespace and its name follow."""
_ADDRESS = re.compile(r".+:\d+")


@dataclass(frozen=True, slots=True)
class Here:
    """This machine: this process, processes of it, or a Ray that lives as long as the command."""

    word: str = "local"


@dataclass(frozen=True, slots=True)
class Attached:
    """A Ray cluster that this machine is part of: the command's own process joins it (`connect`)."""

    word: str = "auto"


@dataclass(frozen=True, slots=True)
class Remote:
    """A cluster that takes jobs: the command is sent there, and followed from here (`dray.jobs`)."""

    word: str
    named: bool = False
    """It is the name of a cluster that dray started; otherwise the address of a job endpoint."""


Where = Here | Attached | Remote


def resolve(word: str) -> Where:
    """Return what a word means, or say which words there are."""
    if word == "local":
        return Here()
    if word in RESERVED:
        return Attached(word)
    if word.startswith(("http://", "https://")):
        return Remote(word.rstrip("/"))
    if word.startswith("ray://"):
        raise ConfigError(
            f"{word} is the address of Ray Client, which dray does not use.",
            fix="Use the job endpoint (http://head:8265), or host:port of the head on a machine of the cluster.",
        )
    if _ADDRESS.fullmatch(word) and "/" not in word:
        return Attached(word)
    if NAME.fullmatch(word):
        return Remote(word, named=True)
    raise ConfigError(
        f'"{word}" is not a cluster.',
        fix="Use local, auto, spark, host:port, http://head:8265, or the name of a cluster that dray started.",
    )


def check_name(name: str) -> None:
    """Refuse a name that Kubernetes would not take, or that means something else."""
    if name in RESERVED or not NAME.fullmatch(name):
        raise ConfigError(
            f'"{name}" cannot be the name of a cluster.',
            fix="Use at most 53 small letters, digits and dashes, beginning with a letter, and not "
            f"{', '.join(RESERVED)}.",
        )


def require_attachable(word: str | None) -> None:
    """Refuse a cluster that takes jobs, for work whose items and results are in this process."""
    if word is not None and isinstance(resolve(word), Remote):
        raise ConfigError(
            f"{word} takes jobs, and dray.map has its function, items and results in this process.",
            fix=f"Use dray map MODULE:FUNCTION DATA OUT --cluster {word}, or run the program there: "
            f"dray job submit SCRIPT --cluster {word}.",
        )
