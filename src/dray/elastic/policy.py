"""Which worker holds which rows, and what happens when workers come and go.

Pure: a `Situation` in, a `Decision` out. The controller watches the workers, asks, and does what it is told;
it asks when something has happened (a worker is ready, lost, leaving), not while an assignment is being loaded.

    bounds exceeded                          Stop
    a worker lost, level stop                Stop
    a worker lost, level restart             Restart
    fewer usable workers than the minimum    Go as it is if all rows are there, else Wait, at last Stop
    rows missing, a worker expected          Wait
    one leaving and another one expected     Go as it is, until the new worker is there
    otherwise                                Go, on the workers that stay
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dray.config.run_file import Level
from dray.learners.shard import Holdings, Shard

SMALLEST_PIECE_ROWS = 10_000
"""A lost shard is not split finer: every piece is a member of the ring, and costs a message in every step."""

TOLERANCE = 1.25
"""A worker takes a lost shard whole up to so many times its fair share of the rows; fewer members, fewer messages."""

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
    shards: tuple[Shard, ...]
    """Those of the first assignment: together all rows."""
    rows: tuple[int, ...]
    """Rows of each training unit."""
    loaded: Holdings
    """What each ready worker holds; () for a new one."""
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
    """Which worker shall hold what; a shard equal to a loaded one is not loaded again. Workers not named are not
    needed."""


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
    present = _keep(_Shards(situation.shards, situation.rows), situation.loaded)
    intact = is_whole(situation.shards, present)
    # Rows cannot be loaded without a usable worker, whatever the minimum.
    too_few = len(usable) < max(1, situation.limits.min_workers)
    replaced_soon = bool(situation.expected) and len(usable) < len(situation.loaded)
    if intact and (too_few or replaced_soon):
        return Go(present)
    if too_few:
        return _too_few(situation, len(usable))
    if situation.expected and not intact:
        return _wait_for_expected(situation)
    return Go(assign(situation.shards, situation.rows, situation.loaded, usable))


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


def is_whole(shards: Iterable[Shard], assignment: Holdings) -> bool:
    """Return whether every unit of the shards is assigned exactly once."""
    return _units(shards) == _units(shard for held in assignment.values() for shard in held)


def _units(shards: Iterable[Shard]) -> list[int]:
    return sorted(unit for shard in shards for unit in shard.units)


def assign(
    first: Sequence[Shard], rows: Sequence[int], loaded: Holdings, usable: Collection[int]
) -> dict[int, tuple[Shard, ...]]:
    """Return what each usable worker shall hold: together everything, with as little loading as keeps them even.

    What is loaded stays where it is; what no worker holds goes to the lightest; a worker that is left with nothing
    takes shards over from the heaviest. The same answer for the same input.
    """
    if not usable:
        return {}
    shards = _Shards(first, rows)
    held = {worker: loaded.get(worker, ()) for worker in sorted(usable)}
    assigned = {worker: list(kept) for worker, kept in _keep(shards, held).items()}
    for orphan in _orphans(shards, assigned):
        for worker, piece in _place(shards, assigned, orphan):
            assigned[worker].append(piece)
    _let_join(shards, assigned, held)
    return {worker: tuple(sorted(mine)) for worker, mine in assigned.items()}


class _Shards:
    """The shards of the first assignment, and pieces of them."""

    def __init__(self, first: Sequence[Shard], rows: Sequence[int]) -> None:
        self.bases = {shard.base: shard for shard in first}
        self.rows = rows

    def weigh(self, *shards: Shard) -> int:
        return sum(self.rows[unit] for shard in shards for unit in shard.units)

    def piece(self, base: int, units: Collection[int]) -> Shard:
        """Return these units of a base."""
        return Shard(base, tuple(sorted(units)))

    def knows(self, shard: Shard) -> bool:
        whole = self.bases.get(shard.base)
        return whole is not None and set(shard.units) <= {*whole.units}


def _keep(shards: _Shards, loaded: Holdings) -> dict[int, tuple[Shard, ...]]:
    """Return the loaded shards without overlap.

    Rows are loaded twice where a new worker has taken over what the former holder has not dropped yet: the larger
    shard counts, since it may be several merged, then the holder with fewer such rows. What a worker has for itself
    does not count: it may have been given that since, and loading what was decided must not change what is kept.
    """
    holders = Counter(unit for held in loaded.values() for shard in held for unit in shard.units)
    burden = {
        worker: shards.weigh(*(shard for shard in held if any(holders[unit] > 1 for unit in shard.units)))
        for worker, held in loaded.items()
    }
    found = [(-shards.weigh(shard), burden[worker], worker, shard) for worker, held in loaded.items() for shard in held]
    kept: dict[int, tuple[Shard, ...]] = dict.fromkeys(loaded, ())
    taken: set[int] = set()
    for *_, worker, shard in sorted(found):
        if shards.knows(shard) and taken.isdisjoint(shard.units):
            kept[worker] += (shard,)
            taken.update(shard.units)
    return kept


def _orphans(shards: _Shards, assigned: Mapping[int, Iterable[Shard]]) -> Iterator[Shard]:
    """Yield what no worker holds, one piece a base, the largest first: what is left then levels the differences."""
    held = {unit for mine in assigned.values() for shard in mine for unit in shard.units}
    missing = {base: {*whole.units} - held for base, whole in shards.bases.items()}
    pieces = [shards.piece(base, units) for base, units in missing.items() if units]
    yield from sorted(pieces, key=lambda piece: (-shards.weigh(piece), piece.base))


def _place(shards: _Shards, assigned: Mapping[int, Sequence[Shard]], orphan: Shard) -> list[tuple[int, Shard]]:
    """Return which worker takes which piece of an orphan: one takes all of it, unless that would burden it too much."""
    burden = {worker: shards.weigh(*mine) for worker, mine in assigned.items()}
    # Among equals the worker of the same number: shard 3 is worker 3's at first, and its replacement's later on.
    first, *others = sorted(assigned, key=lambda worker: (burden[worker], worker != orphan.base, worker))
    fair = shards.weigh(*shards.bases.values()) / len(assigned)
    if not assigned[first] or burden[first] + shards.weigh(orphan) <= TOLERANCE * fair:
        return [(first, orphan)]
    for workers in range(min(len(assigned), len(orphan.units)), 1, -1):
        pieces = _split(shards, {worker: burden[worker] for worker in (first, *others)[:workers]}, orphan)
        if all(len(piece.units) == 1 or shards.weigh(piece) >= SMALLEST_PIECE_ROWS for _, piece in pieces):
            return pieces
    return [(first, orphan)]


def _split(shards: _Shards, burden: dict[int, int], orphan: Shard) -> list[tuple[int, Shard]]:
    """Return an orphan's units assigned to the workers of `burden`, largest first onto the lightest."""
    shares: dict[int, set[int]] = {}
    for unit in sorted(orphan.units, key=lambda unit: (-shards.rows[unit], unit)):
        worker = min(burden, key=lambda worker: burden[worker])  # Among equals the first, as the caller ordered them.
        burden[worker] += shards.rows[unit]
        shares.setdefault(worker, set()).add(unit)
    return [(worker, shards.piece(orphan.base, units)) for worker, units in shares.items()]


def _let_join(shards: _Shards, assigned: dict[int, list[Shard]], held: Holdings) -> None:
    """Move shards to workers without any, one at a time to the lightest of them, as long as that evens things out."""
    new_workers = [worker for worker, mine in assigned.items() if not mine]
    while new_workers and (donors := [worker for worker, mine in assigned.items() if len(mine) > 1]):
        new_worker = min(new_workers, key=lambda worker: shards.weigh(*assigned[worker]))
        heaviest = max(donors, key=lambda worker: shards.weigh(*assigned[worker]))
        shard, gap = _to_level(shards, assigned[heaviest], assigned[new_worker], held[new_worker])
        if shards.weigh(shard) >= gap:
            return
        assigned[heaviest].remove(shard)
        assigned[new_worker] = _with(shards, assigned[new_worker], shard, held[new_worker])


def _to_level(
    shards: _Shards, heavy: Sequence[Shard], light: Sequence[Shard], loaded: Collection[Shard]
) -> tuple[Shard, int]:
    """Return the heavier's shard that levels the two best, among equals the one loaded soonest; and their gap."""
    gap = shards.weigh(*heavy) - shards.weigh(*light)

    def order(shard: Shard) -> tuple[int, int, bool, Shard]:
        return abs(gap - 2 * shards.weigh(shard)), shards.weigh(shard), shard not in loaded, shard

    return min(heavy, key=order), gap


def _with(shards: _Shards, mine: Sequence[Shard], shard: Shard, loaded: Collection[Shard]) -> list[Shard]:
    """Return a worker's shards with one more, merged with those of its base: except loaded ones, which never change."""
    if shard in loaded:
        return [*mine, shard]
    merged = [other for other in mine if other.base == shard.base and other not in loaded]
    units = {unit for piece in (shard, *merged) for unit in piece.units}
    return [*(other for other in mine if other not in merged), shards.piece(shard.base, units)]


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
    names = f"worker{'s' * (len(situation.expected) > 1)} {', '.join(map(str, sorted(situation.expected)))}"
    if not any(situation.loaded.values()):
        return Wait(f"Waiting for {names} to start.")
    return Wait(f"Waiting for {names} to start and load the rows that were lost; the other workers keep theirs.")


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"
