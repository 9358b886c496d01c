"""What to do with a batch whose process is gone. Pure.

The item that was running is under suspicion: it runs again alone. Where it is not known which one it was, the batch is
halved, and halved again, until it is alone. One that is alone and still takes its process along is given up.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_WAIT_S = 0.1
WAIT_FACTOR = 4.0
LONGEST_WAIT_S = 30.0
MOST_LOSSES = 5
"""A batch that was lost so often without being at fault is not believed any more."""


@dataclass(frozen=True, slots=True)
class Again:
    """Run these items again, after a while."""

    start: int
    stop: int
    """Offsets in the batch."""
    deaths: int = 0
    losses: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This item has no result."""

    offset: int
    tries: int


Decision = Again | GiveUp


def wait_s(deaths: int) -> float:
    """Return how long to wait after so many deaths: the reason outside may pass."""
    return float(min(FIRST_WAIT_S * WAIT_FACTOR ** max(0, deaths - 1), LONGEST_WAIT_S))


def after_death(
    count: int, *, deaths: int, losses: int, suspect: int | None, outside: bool, blameless: bool, retries: int
) -> list[Decision]:
    """Decide about a batch of `count` items: every item is in exactly one of the decisions, in order."""
    if blameless and losses < MOST_LOSSES:
        return [Again(0, count, deaths, losses + 1, wait_s(losses + 1))]
    if count == 1:
        return [_alone(0, deaths + 1, outside, retries)]
    if suspect is None or not 0 <= suspect < count:
        half = count // 2
        return [Again(0, half), Again(half, count)]
    found: list[Decision] = [Again(0, suspect)] if suspect else []
    found.append(_alone(suspect, 1, outside, retries))
    if suspect + 1 < count:
        found.append(Again(suspect + 1, count))
    return found


def _alone(offset: int, deaths: int, outside: bool, retries: int) -> Decision:
    if not outside or deaths > retries:
        return GiveUp(offset, deaths)
    return Again(offset, offset + 1, deaths, 0, wait_s(deaths))
