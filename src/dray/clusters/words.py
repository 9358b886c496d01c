"""What the word behind `cluster:` means. Pure.

| word             | the run happens                                                    |
|------------------|--------------------------------------------------------------------|
| `local`          | on a Ray of this machine that lives as long as the run             |
| `auto`           | on the Ray that this machine is part of                            |
| `host:port`      | on the Ray whose head listens there; this machine is part of it    |
| `spark`          | on a Ray that runs inside the Spark session of this process        |
| `http(s)://...`  | there, as a job; this process follows it                           |
| a name           | on a cluster that dray started, as a job                           |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dray.errors import ConfigError

RESERVED = ("local", "auto", "spark")
NAME = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")
"""A name that Kubernetes takes too, for a RayCluster."""
_ADDRESS = re.compile(r".+:\d+")

Kind = Literal["local", "auto", "spark", "address", "endpoint", "name"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its kind."""

    kind: Kind
    text: str

    @property
    def elsewhere(self) -> bool:
        """Whether the run is submitted as a job, and followed from here."""
        return self.kind in ("endpoint", "name")


def understand(word: str) -> Word:
    """Return what a word means, or say what may stand there."""
    if word in ("local", "auto", "spark"):
        return Word(word, word)  # type: ignore[arg-type]  # one of three literals
    if word.startswith(("http://", "https://")):
        return Word("endpoint", word.rstrip("/"))
    if word.startswith("ray://"):
        raise ConfigError(
            f"{word} is Ray Client, through which no data should go.",
            fix="Use the job endpoint (http://head:8265), or host:port of the head on a machine of the cluster.",
        )
    if _ADDRESS.fullmatch(word) and "/" not in word:
        return Word("address", word)
    if NAME.fullmatch(word):
        return Word("name", word)
    raise ConfigError(
        f'"{word}" is no cluster.',
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
