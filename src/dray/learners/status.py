"""What a worker tells of itself, whatever it trains."""

from __future__ import annotations

from dataclasses import dataclass

from dray.events.sampler import Usage
from dray.learners.checkpoint import Step
from dray.threads.verify import Verdict


@dataclass(frozen=True, slots=True)
class Proof:
    """Threads: decided against measured."""

    decided: int
    used: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Status:
    """How a worker is doing, at one moment."""

    usage: Usage
    rows: int
    total_rows: int
    rounds: tuple[Step, ...]
    """The rounds since the one that was asked about."""
    proof: Proof | None
    trouble: str
    """What it waits for: a store that does not answer."""
    copied_round: int
    """The step of the newest checkpoint that `latest` returns; 0 when there is none."""
    fit: int = 1
    """Which fit of the session the rounds and the checkpoint belong to."""
    doing: str = ""
    """What it does beside that takes long, such as compiling."""


class Stopped(Exception):  # noqa: N818  (not a failure)
    """The run was told to end."""
