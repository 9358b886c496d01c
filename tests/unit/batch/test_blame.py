"""What becomes of a batch whose process is gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.batch.blame import LONGEST_WAIT_S, MOST_LOSSES, Again, GiveUp, after_death, wait_s


def decide(count: int, **given: object) -> list[Again | GiveUp]:
    settings = {"deaths": 0, "losses": 0, "suspect": None, "outside": True, "blameless": False, "retries": 2, **given}
    return after_death(count, **settings)  # type: ignore[arg-type]


def test_the_item_that_was_running_goes_on_trial_alone() -> None:
    assert decide(10, suspect=3) == [Again(0, 3), Again(3, 4, deaths=1, wait_s=wait_s(1)), Again(4, 10)]


def test_a_batch_without_a_suspect_is_halved() -> None:
    assert decide(5) == [Again(0, 2), Again(2, 5)]


def test_an_item_that_kills_again_and_again_is_given_up() -> None:
    assert decide(1, deaths=1) == [Again(0, 1, deaths=2, wait_s=wait_s(2))]
    assert decide(1, deaths=2) == [GiveUp(0, 3)]


def test_what_the_function_did_itself_is_not_tried_again() -> None:
    assert decide(3, suspect=1, outside=False) == [Again(0, 1), GiveUp(1, 1), Again(2, 3)]


def test_a_batch_that_was_not_at_fault_stays_whole() -> None:
    assert decide(7, blameless=True) == [Again(0, 7, losses=1, wait_s=wait_s(1))]


def test_a_batch_that_is_lost_for_ever_is_not_believed() -> None:
    assert decide(4, blameless=True, losses=MOST_LOSSES) == [Again(0, 2), Again(2, 4)]


def test_each_loss_is_counted_and_waited_after() -> None:
    assert decide(7, blameless=True, losses=2, deaths=1) == [Again(0, 7, deaths=1, losses=3, wait_s=wait_s(3))]
    assert (wait_s(0), wait_s(1), wait_s(2), wait_s(3)) == (0.1, 0.1, 0.4, 1.6)


def test_the_first_and_the_last_item_may_be_the_suspect() -> None:
    assert decide(3, suspect=0, outside=False) == [GiveUp(0, 1), Again(1, 3)]
    assert decide(3, suspect=2, outside=False) == [Again(0, 2), GiveUp(2, 1)]


def test_a_suspect_that_is_none_of_the_batch_is_not_believed() -> None:
    assert decide(4, suspect=-1) == decide(4, suspect=4) == [Again(0, 2), Again(2, 4)]


def test_waits_grow_to_a_limit() -> None:
    waits = [wait_s(deaths) for deaths in range(1, 30)]
    assert waits == sorted(waits)
    assert waits[0] < 0.2
    assert waits[-1] == LONGEST_WAIT_S


@given(
    count=st.integers(1, 50),
    deaths=st.integers(0, 4),
    losses=st.integers(0, 9),
    suspect=st.none() | st.integers(-3, 60),
    outside=st.booleans(),
    blameless=st.booleans(),
    retries=st.integers(0, 3),
)
def test_every_item_stands_in_one_decision_in_order(count: int, **given: object) -> None:
    covered: list[int] = []
    for decision in decide(count, **given):
        covered += [decision.offset] if isinstance(decision, GiveUp) else range(decision.start, decision.stop)
    assert covered == list(range(count))


@given(st.integers(2, 1000), st.data())
def test_bisecting_finds_the_killer_in_few_steps(count: int, data: st.DataObject) -> None:
    killer = data.draw(st.integers(0, count - 1))
    spans, rounds = [(0, count)], 0
    while not (len(spans) == 1 and spans[0][1] - spans[0][0] == 1):
        rounds += 1
        (start, stop), *_ = [span for span in spans if span[0] <= killer < span[1]]
        spans = [
            (start + part.start, start + part.stop)
            for part in decide(stop - start)
            if isinstance(part, Again) and start + part.start <= killer < start + part.stop
        ]
    assert spans == [(killer, killer + 1)]
    assert rounds <= count.bit_length() + 1
