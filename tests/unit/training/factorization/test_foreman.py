"""Workers of a recommender's training are lost, leave and come: the model is that of an undisturbed run.

The workers are real ones, in this process (`factor_group.py`).
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import dray
from dray.data.shards import Slice
from dray.errors import DataError
from dray.learners.configs import make_config
from dray.runs.directory import open_run
from dray.training import train as training
from dray.training.factorization import copier
from dray.training.factorization.dealing import in_order
from dray.training.factorization.result import FactorResult
from dray.training.stopped import RunStopped
from factor_group import Call, FactorGroup, Fault, Kept, together, train_alone, train_together
from rating_files import EXPLICIT, IMPLICIT, ROWS, rated, write

KINDS: dict[str, dict[str, Any]] = {
    "explicit": EXPLICIT | {"eval_fraction": 0.2},
    # Rankings after every epoch, and a way to solve that begins where the last solution was.
    "implicit": IMPLICIT | {"eval_fraction": 0.2, "early_stop": 4, "params": {"factors": 8, "solver": "gradient"}},
}
UNITS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "rows.parquet", rated())


@pytest.fixture(scope="module")
def undisturbed(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FactorResult]:
    place = tmp_path_factory.mktemp("alone")
    return {kind: train_alone(asked | {"data": data, "out": str(place / kind)})[0] for kind, asked in KINDS.items()}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def what_matters(result: FactorResult) -> tuple[Any, ...]:
    return result.model_digest, result.metrics, result.evaluation, result.rounds, result.best_round, result.pairs


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_gives_the_same_bits(
    data: str, undisturbed: dict[str, FactorResult], kind: str, workers: int
) -> None:
    result, group, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, workers)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.workers == workers
    assert result.failures == result.rows_reloaded == 0
    trained = {call.worker for call in group.of("turn" if kind == "explicit" else "solve")}
    assert len(trained) == min(workers, UNITS)
    [events] = told.of("events")
    assert (events["rows"], events["by_host"]) == (ROWS, {socket.gethostname(): ROWS})
    assert [{row["worker"] for row in event["workers"]} for event in told.of("round")] == [trained] * 4


def moments(kind: str) -> list[tuple[str, int]]:
    """Calls of worker 1, of two: the first of each method, and one in the middle where there are several."""
    training_calls = [("turn", 1), ("turn", 6), ("finish", 2), ("errors", 2)]
    if kind == "implicit":
        training_calls = [("give_items", 1), ("take_items", 1), ("first_parts", 1), ("solve", 1), ("solve", 4)]
        training_calls += [("stand_part", 1), ("rankings", 2)]
    else:
        training_calls += [("stand", 1)]
    loading = [("scan", 1), ("prepare", 1), ("deal", 1), ("take", 1), ("take", 2), ("keep", 1)]
    ending = [("rankings", 1), ("popular", 1), ("end_training", 1), ("pair_counts", 1), ("seen", 1), ("seen", 2)]
    return [*loading, *training_calls, *ending]


def everything_may_happen() -> list[Any]:
    return [
        pytest.param(kind, method, call, what, id=f"{kind}-{method}-{call}-{what}")
        for kind in KINDS
        for method, call in moments(kind)
        for what in ("lost", "its node", *(("lost after", "raises") if call > 1 else ()))
    ]


@pytest.mark.parametrize(("kind", "method", "call", "what"), everything_may_happen())
def test_a_worker_lost_at_any_moment_is_replaced(
    data: str, undisturbed: dict[str, FactorResult], kind: str, method: str, call: int, what: Any
) -> None:
    fault = Fault(1, method, call, what)
    result, _, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, fault)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 1
    [lost] = told.of("worker_lost")
    assert lost["worker"] == 1
    assert [event["replacement"] for event in told.of("worker_started")] == [False, False, True]
    # An epoch is told once, unless its copies went with a node: then it is trained again from where they did not.
    rounds = [event["round"] for event in told.of("round")]
    assert rounds == [1, 2, 3, 4] or (what == "its node" and set(rounds) == {1, 2, 3, 4})
    assert open_run(result.directory).read_table("rounds.parquet")["round"].to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_lost_rows_are_read_again(data: str, undisturbed: dict[str, FactorResult], kind: str) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    result, group, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, Fault(1, method, call))
    assert what_matters(result) == what_matters(undisturbed[kind])
    [reload], [recovered] = told.of("reload"), told.of("recovered")
    assert reload["worker"] == 1
    assert 0 < result.rows_reloaded == reload["rows"] == recovered["rows_reloaded"] < ROWS
    assert recovered["workers"] == 2
    assert 0 < result.seconds.recovery == pytest.approx(recovered["seconds"], abs=0.01)
    # The survivor keeps its units: each unit was made once, and those of the lost worker once more.
    made = [(made.worker, made.arguments[0]) for made in group.of("take")]
    assert len(made) == UNITS + UNITS // 2
    assert [worker for worker, _ in made[UNITS:]] == [1] * (UNITS // 2)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_are_lost_one_after_another_and_together(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    method = "turn" if kind == "explicit" else "solve"
    faults = [Fault(1, method, 3), Fault(0, method, 5), Fault(2, method, 5), Fault(1, method, 6, "its node")]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 3, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_replacement_that_is_lost_while_it_loads(data: str, undisturbed: dict[str, FactorResult], kind: str) -> None:
    method = "turn" if kind == "explicit" else "solve"
    # It takes half of the units at first, and again after it was lost.
    faults = [Fault(1, method, 3), Fault(1, "take", UNITS // 2 + 2), Fault(1, "prepare", 3)]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 3


@pytest.mark.parametrize("method", ["prepare", "deal", "take", "train", "seen"])
@pytest.mark.parametrize("kind", KINDS)
def test_on_failure_shrink_the_others_take_the_units_over(
    data: str, undisturbed: dict[str, FactorResult], kind: str, method: str
) -> None:
    if method == "train":
        method = "turn" if kind == "explicit" else "solve"
    asked = KINDS[kind] | {"data": data, "out": "run", "on_failure": "shrink"}
    result, group, told = train_together(asked, 3, Fault(1, method))
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert (result.failures, result.workers) == (1, 2)
    assert len(told.of("worker_started")) == 3
    assert set(group.alive) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_on_failure_restart_all_begin_again_from_the_last_epoch(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    asked = KINDS[kind] | {"data": data, "out": "run", "on_failure": "restart"}
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    result, _, told = train_together(asked, 2, Fault(1, method, call))
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert [event["worker"] for event in told.of("left")] == [0]
    assert len(told.of("worker_started")) == 4
    assert [event["round"] for event in told.of("round")] == [1, 2, 3, 4]
    assert result.rows_reloaded == ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_on_failure_stop_the_run_ends_and_can_be_resumed(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    asked = KINDS[kind] | {"data": data, "out": "run", "on_failure": "stop"}
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    with pytest.raises(RunStopped, match=r"Lost 1 worker.*Worker 1 on host-1: it was killed"):
        train_together(asked, 2, Fault(1, method, call))
    document = open_run("run").document
    assert document["status"] == "stopped"
    again = dray.resume("run", workers=0)
    assert isinstance(again, FactorResult)
    assert what_matters(again) == what_matters(undisturbed[kind])


@pytest.mark.parametrize("often", [False, True], ids=["from the beginning", "from a checkpoint"])
@pytest.mark.parametrize("what", ["turn", "errors", "rankings"])
def test_inputs_that_went_without_a_worker_bring_the_training_back(
    data: str, undisturbed: dict[str, FactorResult], monkeypatch: pytest.MonkeyPatch, what: str, often: bool
) -> None:
    if often:
        monkeypatch.setattr(copier, "EVERY_S", 0.0)
        monkeypatch.setattr(copier, "SHARE", 1e9)
    fault = Fault(0, what, 1 if what == "rankings" else 3 * (UNITS if what == "turn" else 1) + 1, "inputs gone")
    result, _, told = train_together(KINDS["explicit"] | {"data": data, "out": "run"}, 2, fault)
    assert what_matters(result) == what_matters(undisturbed["explicit"])
    assert result.failures == 0
    assert {event["round"] for event in told.of("round")} == {1, 2, 3, 4}


@pytest.mark.parametrize("call", [1, 3])
@pytest.mark.parametrize("method", ["solve", "rankings"])
def test_inputs_of_events_that_went_without_a_worker_bring_the_training_back(
    data: str, undisturbed: dict[str, FactorResult], method: str, call: int
) -> None:
    fault = Fault(0, method, call, "inputs gone")
    result, _, _ = train_together(KINDS["implicit"] | {"data": data, "out": "run"}, 2, fault)
    assert what_matters(result) == what_matters(undisturbed["implicit"])
    assert result.failures == 0


@pytest.mark.parametrize("method", ["take", "turn", "errors", "rankings"])
def test_inputs_that_always_go_end_the_run(data: str, method: str) -> None:
    def lose_inputs(call: Call) -> None:
        if (call.worker, call.method) == (0, method):
            for one in call.arguments:
                if isinstance(one, Kept):
                    one.gone = True

    group = FactorGroup(on_call=lose_inputs)
    asked = KINDS["explicit"] | {"data": data, "out": "run", "max_failures_in_round": 2}
    with pytest.raises(RunStopped, match=r"One round was interrupted 3 times.* It went with its machine\."):
        train_together(asked, 2, group=group)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_never_reach_each_other_end_the_run_with_both_named(data: str, kind: str) -> None:
    group = FactorGroup(cut={(0, 1): 1000, (1, 0): 1000})
    asked = KINDS[kind] | {"data": data, "out": "run", "max_failures_in_round": 2}
    with pytest.raises(RunStopped, match=r"interrupted 3 times.* No connection from worker \d to worker \d"):
        train_together(asked, 2, group=group)


@pytest.mark.parametrize("after", ["take", "turn", "errors", "rankings"])
@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_do_not_reach_each_other_for_a_while_are_kept(
    data: str, undisturbed: dict[str, FactorResult], kind: str, after: str
) -> None:
    group = FactorGroup()
    method = {"turn": "solve", "errors": "give_items"}.get(after, after) if kind == "implicit" else after

    def cut(call: Call) -> None:
        if call.method == method and not group.cut:
            group.cut = {(0, 1): 2, (1, 0): 1}

    group.on_call = cut
    result, group, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, group=group)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert group.cut == {(0, 1): 0, (1, 0): 0}
    assert result.failures == 0
    assert [event["round"] for event in told.of("round")] == [1, 2, 3, 4]
    told_of = [event["message"] for event in told.of("warning") if "No connection" in event["message"]]
    assert 1 <= len(told_of) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_hands_its_units_over_to_the_others(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    group = FactorGroup(no_room={2})  # for another one in its place
    result, group, told = train_together(
        KINDS[kind] | {"data": data, "out": "run"}, 2, Fault(1, method, call, "leaves"), group=group
    )
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert [event["worker"] for event in told.of("left")] == [1]
    assert result.failures == result.rows_reloaded == 0
    assert len(group.of("take")) == UNITS  # nothing is read again


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_is_replaced_before_it_goes(data: str, undisturbed: dict[str, FactorResult], kind: str) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    result, group, told = train_together(
        KINDS[kind] | {"data": data, "out": "run"}, 2, Fault(1, method, call, "leaves")
    )
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert ([event["worker"] for event in told.of("left")], result.workers) == ([1], 2)
    assert [event["worker"] for event in told.of("joined")] == [2]
    assert len(group.of("take")) == UNITS


@pytest.mark.parametrize("kind", KINDS)
def test_a_newcomer_takes_units_over_between_two_epochs(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    group = FactorGroup(no_room={2})
    method = "turn" if kind == "explicit" else "solve"

    def come(call: Call) -> None:
        if len([made for made in group.of(method) if made.worker == call.worker]) > 4:
            group.no_room.clear()

    group.on_call = come
    result, group, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, 3, group=group)
    assert what_matters(result) == what_matters(undisturbed[kind])
    joined = told.of("joined")
    assert {event["worker"] for event in joined} == {2}
    assert 1 < joined[0]["round"] <= 4
    assert len(group.of("take")) == UNITS
    assert result.workers == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_giver_that_is_lost_while_it_hands_over(data: str, undisturbed: dict[str, FactorResult], kind: str) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    faults = [Fault(1, method, call, "leaves"), Fault(1, "hand_over")]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_taker_that_is_lost_while_it_is_handed_units(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    faults = [Fault(1, method, call, "leaves"), Fault(2, "receive")]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 1


def test_too_many_losses_in_one_epoch_stop_the_run(data: str) -> None:
    faults = [Fault(1, "turn", call) for call in (6, 7, 8)]
    asked = KINDS["explicit"] | {"data": data, "out": "run", "max_failures_in_round": 2}
    with pytest.raises(RunStopped, match="One round was interrupted 3 times"):
        train_together(asked, 2, *faults)


def test_a_mistake_that_a_worker_finds_is_told_and_loses_nobody(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.parquet", rated().set_column(2, "r", [[-1.0] * ROWS]))
    group = FactorGroup()
    with together(group, 2), pytest.raises(DataError, match="negative rating"):
        training.train(make_config(EXPLICIT | {"data": bad, "out": str(tmp_path / "run")}))
    assert len(group.of("scan")) == 2
    assert not (tmp_path / "run").exists()


def test_slices_are_dealt_in_their_order_and_about_evenly() -> None:
    slices = [Slice("a", number, 0, rows, 0) for number, rows in enumerate([5, 1, 1, 1, 8, 2, 2, 4])]
    dealt = in_order(slices, 3)
    assert [piece for share in dealt for piece in share] == slices
    assert max(sum(piece.rows for piece in share) for share in dealt) <= 24 / 3 + 8 / 2
    assert [len(share) for share in in_order(slices[:1], 3)].count(0) == 2
