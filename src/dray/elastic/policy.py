"""Who holds which rows, and what happens when workers come and go.

Pure: a `Situation` in, a `Decision` out. The controller watches the workers, asks, and does what it is told;
it asks when something has happened (a worker is ready, lost, leaving), not while an assignment is being loaded.

    bounds exceeded                          Stop
    a worker lost, level stop                Stop
    a worker lost, level restart             Restart
    fewer usable workers than the minimum    Go as it is if all rows are there, else Wait, at last Stop
    rows missing, somebody expected          Wait
    somebody leaving and somebody expected   Go as it is, until the newcomer is there
    otherwise                                Go, on the workers that stay
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dray.config.run_file import Level
from dray.learners.shard import Holdings, Shard

SMALLEST_PIECE_ROWS = 10_000
"""A lost part is not split finer: every piece is a member of the ring, and costs a message in every step."""

TOLERANCE = 1.25
"""A worker takes a lost part whole up to so many times its fair share of the rows; fewer members, fewer messages."""

RESUME = "dray resume goes on from the last checkpoint."


@dataclass(frozen=True, slots=True)
class Limits:
    min_workers: int
    max_workers: int
    failures_in_round: int = 5
    """Interruptions of one and the same round."""
    failures: int = 100
    """Workers lost in the run."""
    wait_s: float = 300.0
    """How long to wait below `min_workers`."""


@dataclass(frozen=True, slots=True)
class Situation:
    level: Level
    limits: Limits
    parts: tuple[Shard, ...]
    """The first dealing: together all rows."""
    rows: tuple[int, ...]
    """Rows of each training unit."""
    loaded: Holdings
    """What each ready worker holds; () for a newcomer."""
    leaving: frozenset[int] = frozenset()
    """Ready workers whose node is being drained."""
    expected: frozenset[int] = frozenset()
    """Workers that are starting and for which there is room: soon ready."""
    lost_now: int = 0
    """Workers lost since training last went on."""
    failures: int = 0
    failures_in_round: int = 0
    waited_s: float = 0.0
    """How long there have been fewer than `min_workers`."""


@dataclass(frozen=True, slots=True)
class Go:
    """Load what is missing, then train."""

    assignment: Holdings
    """Who shall hold what; a part equal to a loaded one is not loaded again. Who is not named is not needed."""


@dataclass(frozen=True, slots=True)
class Wait:
    why: str
    """For the user. The same as long as the situation is the same: it does not count the seconds."""


@dataclass(frozen=True, slots=True)
class Stop:
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Restart:
    """All workers anew, from the last checkpoint."""


Decision = Go | Wait | Stop | Restart


def decide(situation: Situation) -> Decision:
    """Return what to do now."""
    if stop := _beyond_bounds(situation):
        return stop
    if situation.lost_now and situation.level == "stop":
        return _stop_on_loss(situation.lost_now)
    if situation.lost_now and situation.level == "restart":
        return Restart()
    usable = situation.loaded.keys() - situation.leaving
    present = _keep(_Dealing(situation.parts, situation.rows), situation.loaded)
    intact = is_whole(situation.parts, present)
    # Nobody can load without somebody usable, whatever the minimum.
    too_few = len(usable) < max(1, situation.limits.min_workers)
    replaced_soon = bool(situation.expected) and len(usable) < len(situation.loaded)
    if intact and (too_few or replaced_soon):
        return Go(present)
    if too_few:
        return _too_few(situation, len(usable))
    if situation.expected and not intact:
        return _wait_for_expected(situation)
    return Go(assign(situation.parts, situation.rows, situation.loaded, usable))


def to_start(
    level: Level,
    limits: Limits,
    ready: Collection[int],
    starting: Collection[int],
    first: int,
    begun: bool,
    given_up: Collection[int] = (),
) -> list[int]:
    """Return the slots to ask for now, without those given up; `first` is how many workers training begins with."""
    taken = {*ready, *starting, *given_up}
    free = [slot for slot in range(limits.max_workers) if slot not in taken]
    if level == "elastic":
        return free
    if level == "shrink" and begun:
        missing = limits.min_workers - len({*ready, *starting})
        return free[: max(0, missing)]
    return [slot for slot in free if slot < first]


def is_whole(parts: Iterable[Shard], assignment: Holdings) -> bool:
    """Return whether every training and evaluation unit of `parts` is assigned exactly once."""
    return _units(parts) == _units(part for held in assignment.values() for part in held)


def _units(parts: Iterable[Shard]) -> tuple[list[int], list[int]]:
    found = list(parts)
    return sorted(u for part in found for u in part.units), sorted(u for part in found for u in part.evals)


def assign(
    parts: Sequence[Shard], rows: Sequence[int], loaded: Holdings, usable: Collection[int]
) -> dict[int, tuple[Shard, ...]]:
    """Return what each usable worker shall hold: together everything, with as little loading as keeps them even.

    What is loaded stays where it is; what nobody holds goes to the lightest; a worker that is left with nothing
    takes parts over from the heaviest. The same answer for the same input.
    """
    if not usable:
        return {}
    dealing = _Dealing(parts, rows)
    held = {worker: loaded.get(worker, ()) for worker in sorted(usable)}
    dealt = {worker: list(kept) for worker, kept in _keep(dealing, held).items()}
    for orphan in _orphans(dealing, dealt):
        for worker, piece in _place(dealing, dealt, orphan):
            dealt[worker].append(piece)
    _let_join(dealing, dealt, held)
    return {worker: tuple(sorted(mine)) for worker, mine in dealt.items()}


class _Dealing:
    """The first dealing, and pieces of it."""

    def __init__(self, parts: Sequence[Shard], rows: Sequence[int]) -> None:
        self.bases = {part.base: part for part in parts}
        self.rows = rows

    def weigh(self, *parts: Shard) -> int:
        return sum(self.rows[unit] for part in parts for unit in part.units)

    def piece(self, base: int, units: Collection[int]) -> Shard:
        """Return these units of a base, with their evaluation units.

        Every evaluation unit is tied to one training unit of its base for good: pieces of different splits then
        never overlap in the one and not in the other, and whoever holds all training units holds all the rest.
        """
        whole = self.bases[base]
        owners = (whole.units[index % len(whole.units)] for index in range(len(whole.evals)))
        evals = (unit for unit, owner in zip(whole.evals, owners, strict=True) if owner in units)
        return Shard(base, tuple(sorted(units)), tuple(evals))

    def knows(self, part: Shard) -> bool:
        whole = self.bases.get(part.base)
        return whole is not None and set(part.units) <= {*whole.units} and part == self.piece(part.base, {*part.units})


def _keep(dealing: _Dealing, loaded: Holdings) -> dict[int, tuple[Shard, ...]]:
    """Return the loaded parts without overlap.

    Rows are loaded twice where a newcomer has taken over what the former holder has not dropped yet: the larger
    part counts, since it may be several merged, then the holder with fewer such rows. What a worker has for itself
    does not count: it may have been given that since, and who keeps what must not change by loading what was decided.
    """
    holders = Counter(unit for held in loaded.values() for part in held for unit in part.units)
    burden = {
        worker: dealing.weigh(*(part for part in held if any(holders[unit] > 1 for unit in part.units)))
        for worker, held in loaded.items()
    }
    found = [(-dealing.weigh(part), burden[worker], worker, part) for worker, held in loaded.items() for part in held]
    kept: dict[int, tuple[Shard, ...]] = dict.fromkeys(loaded, ())
    taken: set[int] = set()
    for *_, worker, part in sorted(found):
        if dealing.knows(part) and taken.isdisjoint(part.units):
            kept[worker] += (part,)
            taken.update(part.units)
    return kept


def _orphans(dealing: _Dealing, dealt: Mapping[int, Iterable[Shard]]) -> Iterator[Shard]:
    """Yield what nobody holds, one piece a base, the largest first: what is left then levels the differences."""
    held = {unit for mine in dealt.values() for part in mine for unit in part.units}
    missing = {base: {*whole.units} - held for base, whole in dealing.bases.items()}
    pieces = [dealing.piece(base, units) for base, units in missing.items() if units]
    yield from sorted(pieces, key=lambda piece: (-dealing.weigh(piece), piece.base))


def _place(dealing: _Dealing, dealt: Mapping[int, Sequence[Shard]], orphan: Shard) -> list[tuple[int, Shard]]:
    """Return who takes which piece of an orphan: one worker all of it, unless that would burden it too much."""
    burden = {worker: dealing.weigh(*mine) for worker, mine in dealt.items()}
    # Among equals the worker of the same number: part 3 is worker 3's at first, and its replacement's later on.
    first, *others = sorted(dealt, key=lambda worker: (burden[worker], worker != orphan.base, worker))
    fair = dealing.weigh(*dealing.bases.values()) / len(dealt)
    if not dealt[first] or burden[first] + dealing.weigh(orphan) <= TOLERANCE * fair:
        return [(first, orphan)]
    for workers in range(min(len(dealt), len(orphan.units)), 1, -1):
        pieces = _split(dealing, {worker: burden[worker] for worker in (first, *others)[:workers]}, orphan)
        if all(len(piece.units) == 1 or dealing.weigh(piece) >= SMALLEST_PIECE_ROWS for _, piece in pieces):
            return pieces
    return [(first, orphan)]


def _split(dealing: _Dealing, burden: dict[int, int], orphan: Shard) -> list[tuple[int, Shard]]:
    """Return an orphan's units dealt to the workers of `burden`, largest first onto the lightest."""
    shares: dict[int, set[int]] = {}
    for unit in sorted(orphan.units, key=lambda unit: (-dealing.rows[unit], unit)):
        worker = min(burden, key=lambda worker: burden[worker])  # Among equals the first, as the caller ordered them.
        burden[worker] += dealing.rows[unit]
        shares.setdefault(worker, set()).add(unit)
    return [(worker, dealing.piece(orphan.base, units)) for worker, units in shares.items()]


def _let_join(dealing: _Dealing, dealt: dict[int, list[Shard]], held: Holdings) -> None:
    """Move parts to workers without any, one at a time to the lightest of them, as long as that evens things out."""
    newcomers = [worker for worker, mine in dealt.items() if not mine]
    while newcomers and (donors := [worker for worker, mine in dealt.items() if len(mine) > 1]):
        newcomer = min(newcomers, key=lambda worker: dealing.weigh(*dealt[worker]))
        heaviest = max(donors, key=lambda worker: dealing.weigh(*dealt[worker]))
        part, gap = _to_level(dealing, dealt[heaviest], dealt[newcomer], held[newcomer])
        if dealing.weigh(part) >= gap:
            return
        dealt[heaviest].remove(part)
        dealt[newcomer] = _with(dealing, dealt[newcomer], part, held[newcomer])


def _to_level(
    dealing: _Dealing, heavy: Sequence[Shard], light: Sequence[Shard], loaded: Collection[Shard]
) -> tuple[Shard, int]:
    """Return the heavier's part that levels the two best, among equals the one loaded soonest; and their gap."""
    gap = dealing.weigh(*heavy) - dealing.weigh(*light)

    def order(part: Shard) -> tuple[int, int, bool, Shard]:
        return abs(gap - 2 * dealing.weigh(part)), dealing.weigh(part), part not in loaded, part

    return min(heavy, key=order), gap


def _with(dealing: _Dealing, mine: Sequence[Shard], part: Shard, loaded: Collection[Shard]) -> list[Shard]:
    """Return a worker's parts with one more, merged with those of its base: except loaded ones, which never change."""
    if part in loaded:
        return [*mine, part]
    merged = [other for other in mine if other.base == part.base and other not in loaded]
    units = {unit for piece in (part, *merged) for unit in piece.units}
    return [*(other for other in mine if other not in merged), dealing.piece(part.base, units)]


def _beyond_bounds(situation: Situation) -> Stop | None:
    limits, failures, in_round = situation.limits, situation.failures, situation.failures_in_round
    if failures > limits.failures:
        return Stop(
            f"Lost {_workers(failures)} in this run; {limits.failures} may be (max_failures).",
            f"Look for the cause in the run's events (worker_lost). {RESUME}",
        )
    if in_round > limits.failures_in_round:
        return Stop(
            f"One round was interrupted {in_round} times; {limits.failures_in_round} may be (max_failures_in_round).",
            "Workers that cannot reach each other need the network mended; workers that end need more memory: use more "
            f"of them, or larger machines. {RESUME}",
        )
    return None


def _stop_on_loss(lost: int) -> Stop:
    return Stop(
        f"Lost {_workers(lost)}, and the run was to stop then (on_failure: stop).",
        f"{RESUME} With on_failure: elastic a run goes on by itself.",
    )


def _too_few(situation: Situation, usable: int) -> Wait | Stop:
    needed, wait_s = max(1, situation.limits.min_workers), situation.limits.wait_s
    if situation.waited_s >= wait_s:
        return Stop(
            f"Only {usable} of at least {_workers(needed)} ready after {wait_s:g} s (wait_s).",
            f"Free or add machines, or lower the minimum of workers. {RESUME}",
        )
    return Wait(
        f"Waiting for {_workers(needed - usable)} more: {usable} of at least {needed} ready. "
        f"The run stops if that lasts {wait_s:g} s (wait_s)."
    )


def _wait_for_expected(situation: Situation) -> Wait:
    who = f"worker{'s' * (len(situation.expected) > 1)} {', '.join(map(str, sorted(situation.expected)))}"
    if not any(situation.loaded.values()):
        return Wait(f"Waiting for {who} to start.")
    return Wait(f"Waiting for {who} to start and load the rows that were lost; the other workers keep theirs.")


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"
