from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dray.elastic.policy import (
    SMALLEST_PIECE_ROWS,
    TOLERANCE,
    Decision,
    Go,
    Level,
    Limits,
    Restart,
    Situation,
    Stop,
    Wait,
    assign,
    decide,
    is_whole,
    to_start,
)
from dray.learners.shard import Holdings, Shard

LEVELS: tuple[Level, ...] = get_args(Level)

ROWS = (30_000, 30_000, 30_000, 30_000, 30_000, 30_000)
A, B, C = Shard(0, (0, 1)), Shard(1, (2, 3)), Shard(2, (4, 5))
SHARDS = (A, B, C)
ALL: Holdings = {0: (A,), 1: (B,), 2: (C,)}


def situation(
    loaded: Holdings, *, level: Level = "elastic", min_workers: int = 1, limits: Limits | None = None, **more: Any
) -> Situation:
    return Situation(level, limits or Limits(min_workers, 3), SHARDS, ROWS, loaded, **more)


def assignment_of(decision: Decision) -> dict[int, tuple[Shard, ...]]:
    assert isinstance(decision, Go), decision
    return dict(decision.assignment)


def loads(assignment: Holdings, loaded: Holdings) -> dict[int, tuple[Shard, ...]]:
    """What each worker has to load."""
    missing = {worker: tuple(set(shards) - {*loaded.get(worker, ())}) for worker, shards in assignment.items()}
    return {worker: shards for worker, shards in missing.items() if shards}


def held_once(shards: Collection[Shard], holdings: Holdings) -> bool:
    """Every unit once: counted on its own, since `is_whole` is under test too."""
    held = Counter(unit for mine in holdings.values() for shard in mine for unit in shard.units)
    return held == Counter({unit for shard in shards for unit in shard.units})


def weigh(shards: Collection[Shard], rows: Collection[int]) -> int:
    return sum([*rows][unit] for shard in shards for unit in shard.units)


# --- The table of decisions, row by row


def test_the_first_workers_get_the_part_of_their_number() -> None:
    assert assignment_of(decide(situation({0: (), 1: (), 2: ()}))) == ALL


@pytest.mark.parametrize("level", LEVELS)
def test_an_undisturbed_ring_goes_on_as_it_is(level: Level) -> None:
    assert assignment_of(decide(situation(ALL, level=level))) == ALL


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("count", "knob"), [("failures", "max_failures"), ("failures_in_round", "in_round")])
def test_a_run_stops_beyond_its_bounds_and_not_before(level: Level, count: str, knob: str) -> None:
    limits = Limits(1, 3, failures=2, failures_in_round=2)
    assert isinstance(decide(situation(ALL, level=level, limits=limits, **{count: 2})), Go)
    stop = decide(situation(ALL, level=level, limits=limits, **{count: 3}))
    assert isinstance(stop, Stop)
    assert "3" in stop.what and "2" in stop.what and knob in stop.what
    assert "dray resume goes on from the last checkpoint" in stop.fix


def test_level_stop_stops_when_a_worker_is_lost() -> None:
    stop = decide(situation({0: (A,), 1: (B,)}, level="stop", expected=frozenset({2}), lost_now=1))
    assert isinstance(stop, Stop)
    assert "1 worker," in stop.what and "on_failure: stop" in stop.what
    assert "dray resume goes on from the last checkpoint" in stop.fix


def test_level_restart_brings_all_back_when_a_worker_is_lost() -> None:
    assert decide(situation({0: (A,), 1: (B,)}, level="restart", lost_now=1)) == Restart()


def test_below_the_minimum_it_waits_and_says_what_for_and_how_long() -> None:
    wait = decide(situation({0: (A,)}, min_workers=3, lost_now=2, waited_s=299.9))
    assert isinstance(wait, Wait)
    assert "2 workers more" in wait.why and "1 of at least 3" in wait.why and "300 s" in wait.why


def test_the_words_of_waiting_stay_the_same_while_it_waits() -> None:
    assert len({decide(situation({0: (A,)}, min_workers=3, waited_s=waited)) for waited in (0.0, 1.0, 200.0)}) == 1


def test_below_the_minimum_it_stops_when_it_has_waited_long_enough() -> None:
    stop = decide(situation({0: (A,)}, min_workers=3, expected=frozenset({1, 2}), waited_s=300))
    assert isinstance(stop, Stop)
    assert "1 of at least 3 workers" in stop.what and "300 s" in stop.what
    assert "dray resume goes on from the last checkpoint" in stop.fix


def test_an_intact_ring_goes_on_below_the_minimum() -> None:
    below = situation(ALL, min_workers=3, leaving=frozenset({0, 1}), waited_s=1000)
    assert assignment_of(decide(below)) == ALL


def test_missing_rows_wait_for_the_replacement() -> None:
    wait = decide(situation({0: (A,), 1: (B,)}, expected=frozenset({2}), lost_now=1))
    assert isinstance(wait, Wait)
    assert "worker 2" in wait.why and "rows" in wait.why


def test_the_beginning_waits_for_all_that_are_starting() -> None:
    assert decide(situation({0: ()}, expected=frozenset({1, 2}))) == Wait("Waiting for workers 1, 2 to start.")


def test_training_goes_on_while_a_replacement_for_a_leaving_worker_starts() -> None:
    ring: Holdings = {0: (A, B), 1: (C,)}
    assert assignment_of(decide(situation(ring, leaving=frozenset({0}), expected=frozenset({2})))) == ring


def test_a_leaving_workers_shard_goes_to_a_worker_that_holds_nothing() -> None:
    ring: Holdings = {0: (A, B), 1: (C,), 2: ()}
    assert assignment_of(decide(situation(ring, leaving=frozenset({1})))) == {0: (A, B), 2: (C,)}


def test_with_no_worker_expected_the_others_take_over_from_a_leaving_worker() -> None:
    assignment = assignment_of(decide(situation(ALL, leaving=frozenset({2}))))
    assert assignment == {0: (A, Shard(2, (4,))), 1: (B, Shard(2, (5,)))}


def test_all_leaving_train_on() -> None:
    assert assignment_of(decide(situation(ALL, leaving=frozenset({0, 1, 2})))) == ALL


@pytest.mark.parametrize("min_workers", [0, 1])
def test_without_a_ready_worker_it_waits_for_one(min_workers: int) -> None:
    assert isinstance(decide(situation({}, min_workers=min_workers)), Wait)


@pytest.mark.parametrize("level", ["shrink", "elastic"])
def test_with_no_worker_expected_the_others_share_what_was_lost(level: Level) -> None:
    assignment = assignment_of(decide(situation({0: (A,), 1: (B,)}, level=level, lost_now=1)))
    assert assignment == {0: (A, Shard(2, (4,))), 1: (B, Shard(2, (5,)))}


def test_a_new_worker_takes_over_from_the_heaviest_and_pieces_merge() -> None:
    shrunk: Holdings = {0: (A, Shard(2, (4,))), 1: (B, Shard(2, (5,)))}
    assert assignment_of(decide(situation({**shrunk, 2: ()}))) == ALL


# --- Which workers to start


@pytest.mark.parametrize("level", ["stop", "restart", "shrink"])
def test_at_first_the_first_workers_are_started(level: Level) -> None:
    assert to_start(level, Limits(1, 6), ready=[0], starting=[2], first=4, begun=False) == [1, 3]


@pytest.mark.parametrize("begun", [False, True])
def test_elastic_asks_for_every_free_slot(begun: bool) -> None:
    assert to_start("elastic", Limits(1, 6), ready=[0], starting=[2], first=2, begun=begun) == [1, 3, 4, 5]


def test_shrink_asks_only_for_what_is_missing_to_the_minimum() -> None:
    assert to_start("shrink", Limits(3, 6), ready=[1], starting=[2], first=6, begun=True) == [0]
    assert to_start("shrink", Limits(3, 6), ready=[1, 2, 3, 4], starting=[], first=6, begun=True) == []


@pytest.mark.parametrize("level", ["stop", "restart"])
def test_a_restart_brings_back_as_many_as_at_first(level: Level) -> None:
    assert to_start(level, Limits(1, 6), ready=[], starting=[], first=3, begun=True) == [0, 1, 2]


# --- Which worker holds what


def first_shards(
    workers: int, units_each: int, *, rows_each: int = 20_000
) -> tuple[tuple[Shard, ...], tuple[int, ...]]:
    """Equal shards."""
    shards = tuple(Shard(base, tuple(range(base, workers * units_each, workers))) for base in range(workers))
    return shards, (rows_each,) * (workers * units_each)


WORLDS = list(itertools.product((2, 3, 4), (1, 2, 3, 5)))


@pytest.mark.parametrize(("workers", "units_each"), WORLDS)
def test_a_replacement_loads_the_lost_shard_and_no_other_worker_loads(workers: int, units_each: int) -> None:
    shards, rows = first_shards(workers, units_each)
    for lost in range(workers):
        loaded = {worker: (shards[worker],) if worker != lost else () for worker in range(workers)}
        assignment = assign(shards, rows, loaded, range(workers))
        assert loads(assignment, loaded) == {lost: (shards[lost],)}
        assert held_once(shards, assignment)


@pytest.mark.parametrize("level", ["shrink", "elastic"])
@pytest.mark.parametrize(("workers", "units_each"), WORLDS)
def test_without_a_replacement_survivors_keep_their_shards_and_stay_even(
    workers: int, units_each: int, level: Level
) -> None:
    shards, rows = first_shards(workers, units_each)
    for lost in range(workers):
        loaded = {worker: (shards[worker],) for worker in range(workers) if worker != lost}
        now = Situation(level, Limits(1, workers), shards, rows, loaded, lost_now=1)
        assignment = assignment_of(decide(now))
        assert all(shards[worker] in assignment[worker] for worker in loaded)
        assert {shard.base for new in loads(assignment, loaded).values() for shard in new} == {lost}
        assert held_once(shards, assignment)
        burden = [weigh(mine, rows) for mine in assignment.values()]
        assert max(burden) - min(burden) <= max(rows) or max(burden) <= TOLERANCE * sum(rows) / len(burden)


def test_a_lost_shard_stays_whole_where_that_burdens_no_worker_much() -> None:
    shards = (Shard(0, (0,)), Shard(1, (1,)), Shard(2, (2, 3)))
    assert assign(shards, (100_000, 80_000, 20_000, 20_000), {0: shards[:1], 1: shards[1:2]}, [0, 1])[1] == shards[1:]


def test_small_shards_are_not_split_into_smaller_pieces() -> None:
    shards = tuple(Shard(base, tuple(range(base * 4, base * 4 + 4))) for base in range(3))
    rows = (SMALLEST_PIECE_ROWS // 4,) * 12
    assert assign(shards, rows, {0: shards[:1], 1: shards[1:2]}, [0, 1]) == {0: (shards[0], shards[2]), 1: (shards[1],)}
    twice = tuple(2 * unit for unit in rows)
    shared = assign(shards, twice, {0: shards[:1], 1: shards[1:2]}, [0, 1])
    assert [weigh(mine[1:], twice) for mine in shared.values()] == [SMALLEST_PIECE_ROWS] * 2


def test_a_piece_of_a_loaded_base_stays_a_shard_of_its_own() -> None:
    first, second = Shard(0, (0, 1)), Shard(1, (2,))
    assignment = assign(SHARDS, ROWS, {0: (first, second), 1: (C,)}, [0, 1])
    assert {first, second} <= {*assignment[0]}
    assert held_once(SHARDS, assignment)


def test_rows_loaded_twice_stay_with_the_new_worker() -> None:
    twice: Holdings = {0: (A, B), 1: (C,), 2: (B,)}
    assert assign(SHARDS, ROWS, twice, [0, 1, 2]) == {0: (A,), 1: (C,), 2: (B,)}


def test_what_is_loaded_later_does_not_change_which_worker_keeps_rows_loaded_twice() -> None:
    shards = tuple(Shard(base, tuple(range(base, 5, 4))) for base in range(4))
    rows = (1, 1, 1, 1, 4000)
    loaded: dict[int, tuple[Shard, ...]] = {1: (shards[2],), 2: (shards[1],), 3: (shards[2], shards[3])}
    decided = assign(shards, rows, loaded, loaded)  # worker 0 is gone: worker 1 gets the large unit
    for worker, mine in decided.items():
        loaded[worker] += tuple(shard for shard in mine if shard not in loaded[worker])
    assert len(decided[1]) == 2
    assert assign(shards, rows, loaded, loaded) == decided


def test_merged_pieces_outweigh_those_they_were_merged_from() -> None:
    twice: Holdings = {0: (A, Shard(2, (4,))), 1: (B, Shard(2, (5,))), 2: (C,)}
    assert assign(SHARDS, ROWS, twice, [0, 1, 2]) == ALL


def test_the_larger_of_two_overlapping_shards_is_kept() -> None:
    twice: Holdings = {0: (A, Shard(2, (4,))), 1: (B, C)}
    assert assign(SHARDS, ROWS, twice, [0, 1]) == {0: (A,), 1: (B, C)}


def test_new_workers_share_what_one_worker_can_give() -> None:
    shards, rows = first_shards(4, 1)
    assignment = assign(shards, rows, {0: shards, 1: (), 2: (), 3: ()}, range(4))
    assert sorted(len(mine) for mine in assignment.values()) == [1, 1, 1, 1]


def test_a_new_worker_is_idle_where_no_worker_has_two_shards() -> None:
    assert assign(SHARDS, ROWS, {**ALL, 3: ()}, range(4)) == {**ALL, 3: ()}


def test_the_answer_does_not_depend_on_the_order_of_the_question() -> None:
    some: Holdings = {0: (A, B), 1: (), 2: (Shard(2, (5,)),)}
    turned = dict(reversed([*some.items()]))
    assert assign(SHARDS, ROWS, some, [0, 1, 2]) == assign(SHARDS[::-1], ROWS, turned, [2, 1, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        {0: (A, B)},
        {0: (A, B), 1: (C, A)},
        {0: (A, B, Shard(2, (4,)))},
        {0: (A, B, C, Shard(3, (6,)))},
        {},
    ],
    ids=["missing", "twice", "a unit missing", "unknown", "nothing"],
)
def test_what_is_not_whole(wrong: Holdings) -> None:
    assert not is_whole(SHARDS, wrong)
    assert not held_once(SHARDS, wrong)


# --- Every small world

HOLDINGS = ((), (A,), (C,), (A, B), (Shard(0, (0,)),), (Shard(0, (1,)), C))
SLOT = [(None, False), (None, True), *itertools.product(HOLDINGS, (False, True))]
"""One slot: empty, expected, or ready with some shards and perhaps leaving."""


def small_worlds() -> Iterator[tuple[dict[int, tuple[Shard, ...]], frozenset[int], frozenset[int]]]:
    for slots in itertools.product(SLOT, repeat=3):
        loaded = {number: held for number, (held, _) in enumerate(slots) if held is not None}
        flagged = frozenset(number for number, (_, flag) in enumerate(slots) if flag)
        yield loaded, flagged & loaded.keys(), flagged - loaded.keys()


def check_go(assignment: Holdings, loaded: Holdings, leaving: frozenset[int]) -> None:
    assert held_once(SHARDS, assignment)
    assert is_whole(SHARDS, assignment)
    assert assignment.keys() <= loaded.keys()
    if any(assignment.get(worker) for worker in leaving):
        assert not loads(assignment, loaded), "only the present ring may use a worker that leaves"
    mine = {worker: loaded[worker] for worker in assignment}
    held = Counter(unit for shards in mine.values() for shard in shards for unit in shard.units)
    if all(mine.values()) and held.total() == len(held):  # No worker joins and nothing is held twice: all stays.
        assert all({*shards} <= {*assignment[worker]} for worker, shards in mine.items())


@pytest.mark.parametrize("level", LEVELS)
def test_in_every_small_world_the_decision_is_sound(level: Level) -> None:
    seen: Counter[type] = Counter()
    for (loaded, leaving, expected), min_workers, lost in itertools.product(small_worlds(), (1, 3), (0, 1)):
        now = situation(loaded, level=level, min_workers=min_workers, leaving=leaving, expected=expected, lost_now=lost)
        decision = decide(now)
        seen[type(decision)] += 1
        if isinstance(decision, Go):
            assert not (lost and level in ("stop", "restart"))
            check_go(decision.assignment, loaded, leaving)
        elif isinstance(decision, Wait):
            assert expected or len(loaded.keys() - leaving) < min_workers
    assert seen.keys() == {Go, Wait} | ({Stop} if level == "stop" else {Restart} if level == "restart" else set())


# --- A whole life


class Life(RuleBasedStateMachine):
    """A controller as plain as can be, and workers that come, load, leave and die as they like."""

    @initialize(
        level=st.sampled_from([*LEVELS, "shrink", "elastic", "elastic", "elastic"]),  # Where most happens.
        workers=st.sampled_from([4, 3, 2, 1]),
        sizes=st.lists(st.sampled_from([1, 4_000, 9_000, 25_000]), min_size=4, max_size=9),
        data=st.data(),
    )
    def begin(self, level: Level, workers: int, sizes: list[int], data: st.DataObject) -> None:
        self.level: Level = level
        self.rows = tuple(sizes)
        self.shards = tuple(Shard(base, tuple(range(base, len(sizes), workers))) for base in range(workers))
        min_workers, in_round = data.draw(st.integers(1, workers)), data.draw(st.integers(1, 5))
        self.limits = Limits(min_workers, workers, failures_in_round=in_round, failures=4 * in_round)
        self.first = data.draw(st.integers(self.limits.min_workers, workers))
        self.loaded: dict[int, tuple[Shard, ...]] = {}
        self.starting: set[int] = set()
        self.without_room: set[int] = set()
        self.leaving: set[int] = set()
        self.goal: dict[int, tuple[Shard, ...]] = {}
        self.ring: dict[int, tuple[Shard, ...]] = {}
        self.lost_now = self.failures = self.failures_in_round = 0
        self.waited_s = 0.0
        self.begun = False
        self.end: Stop | None = None
        self.ask()
        if data.draw(st.booleans()):  # Begin in the midst of training: more of a life then goes into what disturbs it.
            self.all_are_ready()
            self.a_round_ends(set())

    # The controller.

    def question(self) -> Situation:
        return Situation(
            self.level,
            self.limits,
            self.shards,
            self.rows,
            dict(self.loaded),
            frozenset(self.leaving),
            frozenset(self.starting - self.without_room),
            self.lost_now,
            self.failures,
            self.failures_in_round,
            self.waited_s,
        )

    def ask(self) -> None:
        wanted = to_start(self.level, self.limits, self.loaded, self.starting, self.first, self.begun)
        assert {*wanted}.isdisjoint(self.loaded) and {*wanted} <= {*range(self.limits.max_workers)}
        self.starting |= {*wanted}
        if not self.is_short():
            self.waited_s = 0.0
        decision = decide(self.question())
        self.goal = {}
        if isinstance(decision, Stop):
            self.end, self.ring = decision, {}
        elif isinstance(decision, Restart):
            self.loaded, self.leaving, self.starting, self.ring, self.lost_now = {}, set(), set(), {}, 0
            self.ask()
        elif isinstance(decision, Go):
            self.goal = dict(decision.assignment)
            if loads(self.goal, self.loaded):
                assert not any(self.goal.get(worker) for worker in self.leaving)
            self.form_if_loaded()

    def form_if_loaded(self) -> None:
        if self.goal and not loads(self.goal, self.loaded):
            assert held_once(self.shards, self.goal)
            assert sum(weigh(mine, self.rows) for mine in self.goal.values()) == sum(self.rows)
            assert self.failures <= self.limits.failures
            assert self.failures_in_round <= self.limits.failures_in_round
            assert not (self.level == "stop" and self.failures)
            self.ring, self.begun, self.lost_now = self.goal, True, 0

    def lose(self, gone: Collection[int]) -> None:
        self.failures += len(gone)
        self.lost_now += len(gone)
        self.failures_in_round += 1
        self.loaded = {worker: held for worker, held in self.loaded.items() if worker not in gone}
        self.leaving -= {*gone}
        if any(self.ring.get(worker) for worker in gone):
            self.ring = {}
        self.ask()

    # What happens.

    def lives(self) -> bool:
        return self.end is None

    def is_short(self) -> bool:
        return len(self.loaded.keys() - self.leaving) < self.limits.min_workers

    @precondition(lambda self: self.lives() and bool(self.starting))
    @rule(data=st.data())
    def a_worker_is_ready(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.remove(worker)
        self.without_room.discard(worker)
        self.loaded[worker] = ()
        self.ask()

    @precondition(lambda self: self.lives() and bool(self.starting))
    @rule()
    def all_are_ready(self) -> None:
        self.loaded |= dict.fromkeys(self.starting, ())
        self.starting.clear()
        self.without_room.clear()
        self.ask()

    @precondition(lambda self: self.lives() and bool(self.starting))
    @rule(data=st.data())
    def room_changes(self, data: st.DataObject) -> None:
        self.without_room ^= {data.draw(st.sampled_from(sorted(self.starting)))}
        self.ask()

    @precondition(lambda self: self.lives() and bool(loads(self.goal, self.loaded)))
    @rule(data=st.data(), asks=st.booleans())
    def a_part_is_loaded(self, data: st.DataObject, asks: bool) -> None:
        missing = loads(self.goal, self.loaded)
        worker = data.draw(st.sampled_from(sorted(missing)))
        self.loaded[worker] += (data.draw(st.sampled_from(sorted(missing[worker]))),)
        self.form_if_loaded()
        if asks:  # A controller need not, but may.
            self.ask()

    @precondition(lambda self: self.lives() and bool(self.goal))
    @rule()
    def all_is_loaded(self) -> None:
        for worker, shards in loads(self.goal, self.loaded).items():
            self.loaded[worker] += shards
        self.form_if_loaded()

    @precondition(lambda self: self.lives() and bool(self.loaded))
    @rule(data=st.data(), room=st.booleans())
    def workers_are_lost(self, data: st.DataObject, room: bool) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.loaded)), min_size=1, max_size=2))
        if not room:
            self.without_room |= gone
        self.lose(gone)

    @precondition(lambda self: self.lives() and bool(self.loaded.keys() - self.leaving))
    @rule(data=st.data())
    def a_worker_is_drained(self, data: st.DataObject) -> None:
        self.leaving.add(data.draw(st.sampled_from(sorted(self.loaded.keys() - self.leaving))))
        self.ask()

    @precondition(lambda self: self.lives() and bool(self.goal))
    @rule(drops=st.sets(st.integers(0, 3)))
    def a_round_ends(self, drops: set[int]) -> None:
        self.all_is_loaded()
        self.failures_in_round = 0
        for worker in drops & self.loaded.keys():
            self.loaded[worker] = self.ring.get(worker, ())
        self.ask()

    @precondition(lambda self: self.lives() and self.is_short())
    @rule(seconds=st.sampled_from([1.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.waited_s += seconds
        self.ask()

    @precondition(lambda self: not self.lives())
    @rule()
    def nothing_happens_any_more(self) -> None:
        assert isinstance(decide(self.question()), Stop)

    # What always holds.

    @invariant()
    def a_ring_has_all_rows_once(self) -> None:
        if self.ring:
            assert held_once(self.shards, self.ring)
            assert not loads(self.ring, self.loaded), "a member of the ring has lost its rows"

    @invariant()
    def a_ring_of_a_stopping_run_has_seen_no_loss(self) -> None:
        assert not (self.level == "stop" and self.failures and self.ring)

    @invariant()
    def beyond_its_bounds_a_run_has_ended(self) -> None:
        if self.failures > self.limits.failures or self.failures_in_round > self.limits.failures_in_round:
            assert self.end is not None

    @invariant()
    def what_is_fully_loaded_stays_decided(self) -> None:
        if self.end is None and self.ring and self.ring == self.goal:
            assert assignment_of(decide(self.question())) == self.ring

    def teardown(self) -> None:
        """In peace and with room, training goes on soon, unless it has ended for a reason."""
        if not hasattr(self, "end"):
            return
        for _ in range(2 * self.limits.max_workers + 2):
            if self.end is not None:
                assert self.failures or self.waited_s >= self.limits.wait_s
                return
            if self.goal:
                self.all_is_loaded()
                assert self.ring == self.goal
            if self.leaving:
                self.leaving_workers_are_gone()
            elif self.starting:
                self.all_are_ready()
            elif self.goal:
                assert self.ring == self.goal
                return
        raise AssertionError("training does not go on")

    def leaving_workers_are_gone(self) -> None:
        needed = {worker for worker in self.leaving if self.ring.get(worker)}
        self.loaded = {worker: held for worker, held in self.loaded.items() if worker not in self.leaving}
        self.leaving.clear()
        if needed:
            self.lose(needed)
        else:
            self.ask()


Life.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLife = Life.TestCase


def test_the_pieces_of_a_lost_part_are_even_whatever_the_size_of_its_units() -> None:
    """Largest first onto the lightest: smallest first, one worker would have 40,000 of them and the other 60,000."""
    rows = (10_000, 30_000, 20_000, 40_000, 50_000, 50_000)
    lost, first, second = Shard(0, (0, 1, 2, 3)), Shard(1, (4,)), Shard(2, (5,))
    found = assign((lost, first, second), rows, {1: (first,), 2: (second,)}, {1, 2})
    assert {
        worker: sum(rows[unit] for shard in shards for unit in shard.units) for worker, shards in found.items()
    } == {
        1: 100_000,
        2: 100_000,
    }
