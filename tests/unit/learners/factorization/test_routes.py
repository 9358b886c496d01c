"""Which worker needs which block of items when: each has what it needs, none is shared, and little travels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.learners.factorization.grid import strata
from dray.learners.factorization.routes import Turn, Units, routes


@st.composite
def held(draw: st.DrawFn) -> dict[int, Units]:
    """Blocks of users assigned to workers, each to one, in any way."""
    blocks = draw(st.integers(1, 24))
    workers = draw(st.lists(st.integers(0, 40), min_size=1, max_size=blocks, unique=True))
    owners = [*workers, *(draw(st.sampled_from(workers)) for _ in range(blocks - len(workers)))]
    shuffled = draw(st.permutations(owners))
    return {worker: tuple(b for b, owner in enumerate(shuffled) if owner == worker) for worker in workers}


def contiguous(blocks: int, workers: int) -> dict[int, Units]:
    edges = [blocks * number // workers for number in range(workers + 1)]
    return {worker: tuple(range(edges[worker], edges[worker + 1])) for worker in range(workers)}


def count(holdings: dict[int, Units]) -> int:
    return sum(map(len, holdings.values()))


def followed(turns: list[dict[int, Turn]], blocks: int) -> tuple[list[dict[int, int]], dict[int, int]]:
    """Hand blocks on as the turns say; return the holder of each block at each step, and how often each was taken."""
    free, holder, taken = set(range(blocks)), dict[int, int](), dict.fromkeys(range(blocks), 0)
    steps = []
    for step in turns:
        for worker, turn in step.items():
            for block in turn.takes:
                assert block in free, "it is still with another worker"
                free.remove(block)
                holder[block] = worker
                taken[block] += 1
        steps.append(dict(holder))
        for worker, turn in step.items():
            for block in turn.gives:
                assert holder.pop(block) == worker
                free.add(block)
    assert free == set(range(blocks)), "not everything was given back"
    return steps, taken


@given(held(), st.integers(0, 5), st.integers(1, 5))
def test_at_every_step_every_worker_has_the_blocks_it_needs_and_no_other(
    holdings: dict[int, Units], seed: int, epoch: int
) -> None:
    blocks = count(holdings)
    order = strata(blocks, seed, epoch)
    steps, _ = followed(routes(order, holdings, blocks), blocks)
    for which, holder in zip(order, steps, strict=True):
        for worker, units in holdings.items():
            mine = {block for block, owner in holder.items() if owner == worker}
            assert mine == {(unit + which) % blocks for unit in units}


@given(held(), st.integers(0, 5))
def test_a_turn_says_which_step_it_is(holdings: dict[int, Units], seed: int) -> None:
    blocks = count(holdings)
    order = strata(blocks, seed, 1)
    turns = routes(order, holdings, blocks)
    assert [{turn.step for turn in step.values()} for step in turns] == [{which} for which in order]


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 5), st.integers(1, 5))
def test_neighbouring_blocks_of_users_let_a_block_of_items_go_round_once(
    blocks: int, workers: int, seed: int, epoch: int
) -> None:
    workers = min(workers, blocks)
    turns = routes(strata(blocks, seed, epoch), contiguous(blocks, workers), blocks)
    _, taken = followed(turns, blocks)
    # It may begin in the middle of a worker's blocks of users, and come back to it in the end.
    assert all(times <= workers + (workers > 1) for times in taken.values())


@given(st.integers(1, 24), st.integers(0, 5))
def test_alone_nothing_travels(blocks: int, seed: int) -> None:
    turns = [step[0] for step in routes(strata(blocks, seed, 1), contiguous(blocks, 1), blocks)]
    everything = tuple(range(blocks))
    assert [turn.takes for turn in turns] == [everything] + [()] * (blocks - 1)
    assert [turn.gives for turn in turns] == [()] * (blocks - 1) + [everything]
