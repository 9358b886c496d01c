"""Workers of a recommender's training are lost, leave and come: the model is that of an undisturbed run.

The workers are real ones, in this process (`factor_group.py`).
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import dray
from dray.elastic.keyed_units import evenly, neighbours
from dray.elastic.stopped import RunStopped
from dray.errors import DataError
from dray.learners.configs import make_config
from dray.learners.factorization import checkpointing
from dray.learners.factorization.result import FactorResult
from dray.runs.directory import open_run
from dray.training import train as training
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
    assert result.workers == min(workers, UNITS)  # those that train; another one only reads
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
        training_calls = [("give", 1), ("complete", 1), ("first_parts", 1), ("solve", 1), ("solve", 4)]
        training_calls += [("restore_side", 1), ("rankings", 2)]
    else:
        training_calls += [("restore", 1)]
    loading = [("scan", 1), ("prepare", 1), ("read", 1), ("build", 1), ("build", 2), ("keep", 1)]
    ending = [("rankings", 1), ("popular", 1), ("end_fit", 1), ("pair_counts", 1), ("seen", 1), ("seen", 2)]
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
    # An epoch is told once, unless its blocks went with a node: then training goes on from an older checkpoint.
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
    made = [(made.worker, made.arguments[0]) for made in group.of("build")]
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
    faults = [Fault(1, method, 3), Fault(1, "build", UNITS // 2 + 2), Fault(1, "prepare", 3)]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 3


@pytest.mark.parametrize("method", ["prepare", "read", "build", "train", "seen"])
@pytest.mark.parametrize("kind", KINDS)
def test_on_failure_shrink_the_others_take_the_units_over(
    data: str, undisturbed: dict[str, FactorResult], kind: str, method: str
) -> None:
    if method == "train":
        method = "turn" if kind == "explicit" else "solve"
    asked = KINDS[kind] | {"data": data, "out": "run", "on_failure": "shrink"}
    result, group, told = train_together(asked, 3, Fault(1, method))
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert (result.failures, result.workers) == (1, 3 if method == "seen" else 2)  # workers that trained to the end
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
        monkeypatch.setattr(checkpointing, "EVERY_S", 0.0)
        monkeypatch.setattr(checkpointing, "SHARE", 1e9)
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


@pytest.mark.parametrize("method", ["build", "turn", "errors", "rankings"])
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


@pytest.mark.parametrize("after", ["build", "turn", "errors", "rankings"])
@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_do_not_reach_each_other_for_a_while_are_kept(
    data: str, undisturbed: dict[str, FactorResult], kind: str, after: str
) -> None:
    group = FactorGroup()
    method = {"turn": "solve", "errors": "give"}.get(after, after) if kind == "implicit" else after

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
def test_a_leaving_worker_hands_its_units_over_to_the_others(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    group = FactorGroup(no_room={2})  # for another one in its place
    result, group, told = train_together(
        KINDS[kind] | {"data": data, "out": "run"}, 2, Fault(1, method, call, "leaves"), group=group
    )
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert [event["worker"] for event in told.of("left")] == [1]
    assert result.failures == 0
    assert len(group.of("build")) == UNITS  # nothing is read again
    [reload] = told.of("reload")
    assert (reload["worker"], reload["why"]) == (0, "handing over")
    assert 0 < result.rows_reloaded == reload["rows"] < ROWS
    assert "recovered" not in told.kinds


@pytest.mark.parametrize("kind", KINDS)
def test_a_leaving_worker_is_replaced_before_it_goes(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    result, group, told = train_together(
        KINDS[kind] | {"data": data, "out": "run"}, 2, Fault(1, method, call, "leaves")
    )
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert ([event["worker"] for event in told.of("left")], result.workers) == ([1], 2)
    assert [event["worker"] for event in told.of("joined")] == [2]
    assert len(group.of("build")) == UNITS


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_worker_takes_units_over_between_two_epochs(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    group = FactorGroup(no_room={2})
    method = "turn" if kind == "explicit" else "solve"

    def come(call: Call) -> None:
        if len([made for made in group.of(method) if made.worker == call.worker]) > 2:
            group.no_room.clear()

    group.on_call = come
    result, group, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, 3, group=group)
    assert what_matters(result) == what_matters(undisturbed[kind])
    joined = told.of("joined")
    assert {event["worker"] for event in joined} == {2}
    assert 1 < joined[0]["round"] <= 4
    assert len(group.of("build")) == UNITS
    assert result.workers == 3


def joins_in_the_second_epoch(kind: str) -> FactorGroup:
    """A group of three in which worker 2 has room from the second epoch on."""
    group = FactorGroup(no_room={2})
    method, calls = ("turn", UNITS + 2) if kind == "explicit" else ("solve", 3)

    def come(call: Call) -> None:
        if call.method == method and len([ran for ran in group.ran if (ran.worker, ran.method) == (0, method)]) > calls:
            group.no_room.clear()

    group.on_call = come
    return group


@pytest.mark.parametrize("kind", KINDS)
def test_a_joining_worker_gets_its_units_while_an_epoch_runs_which_then_pauses(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    asked = KINDS[kind] | {"data": data, "out": "run", "rounds": 6, "early_stop": None}
    whole, _ = train_alone(asked | {"out": "whole"})
    result, group, told = train_together(asked, 3, group=joins_in_the_second_epoch(kind))
    assert what_matters(result) == what_matters(whole)
    moved = [call for call in group.ran if call.method in ("export", "adopt")]
    assert moved and {call.op.lane for call in moved} == {"beside"}
    assert {call.worker for call in moved if call.method == "adopt"} == {2}
    # Worker 0 was in the middle of an epoch before, and still was after its units had been brought to the other one.
    epoch_end = "finish" if kind == "explicit" else "solve"
    main = [call for call in group.ran if (call.worker, call.op.lane) == (0, "main")]
    begun, done = group.ran.index(moved[0]), group.ran.index(moved[-1])
    before = [call.method for call in main if group.ran.index(call) < begun]
    after = [call.method for call in main if group.ran.index(call) > done]
    assert {"keep", epoch_end} <= set(before) and before[-1] != "keep"
    assert after.index("keep") > 0
    # Nothing was broken off, no epoch was trained twice, and what was brought counts from the next epoch on.
    assert "interrupt" not in {name for _, name in group.told}
    assert result.failures == 0
    assert [event["round"] for event in told.of("round")] == [1, 2, 3, 4, 5, 6]
    [joined], [reload] = told.of("joined"), told.of("reload")
    assert (joined["worker"], reload["worker"], reload["why"]) == (2, 2, "joining")
    trainers = [{row["worker"] for row in event["workers"]} for event in told.of("round")]
    assert trainers == [{0, 1}] * (joined["round"] - 1) + [{0, 1, 2}] * (7 - joined["round"])
    assert 2 < joined["round"] <= 6
    assert result.rows_reloaded == joined["rows"] == reload["rows"]
    assert "recovered" not in told.kinds


@pytest.mark.parametrize("method", ["prepare", "adopt"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_joining_worker_that_is_lost_does_not_disturb_the_epoch(kind: str, method: str, data: str) -> None:
    asked = KINDS[kind] | {"data": data, "out": "run", "rounds": 6, "early_stop": None}
    whole, _ = train_alone(asked | {"out": "whole"})
    result, group, told = train_together(asked, 3, Fault(2, method), group=joins_in_the_second_epoch(kind))
    assert what_matters(result) == what_matters(whole)
    assert result.failures == 1
    assert "interrupt" not in {name for _, name in group.told}
    assert "recovered" not in told.kinds
    assert [event["round"] for event in told.of("round")] == [1, 2, 3, 4, 5, 6]
    assert [event["worker"] for event in told.of("joined")] == [2]  # its replacement


@pytest.mark.parametrize("method", ["turn", "export"])
def test_a_worker_of_the_attempt_that_is_lost_while_units_are_brought_beside(method: str, data: str) -> None:
    asked = KINDS["explicit"] | {"data": data, "out": "run", "rounds": 6}
    whole, _ = train_alone(asked | {"out": "whole"})
    group = joins_in_the_second_epoch("explicit")
    come = group.on_call

    def lose_a_giver(call: Call) -> None:
        come(call)
        givers = [made.worker for made in group.of("export")]
        if givers and (call.worker, call.method) == (givers[0], method):
            group.on_call = come
            group.lose(call.worker)

    group.on_call = lose_a_giver
    result, _, told = train_together(asked, 3, group=group)
    assert what_matters(result) == what_matters(whole)
    assert result.failures == 1 and len(told.of("recovered")) == 1
    assert "interrupt" in {name for _, name in group.told}


def test_a_worker_is_not_given_units_before_it_is_prepared_when_bringing_is_decided_anew(data: str) -> None:
    """A worker of the attempt is lost while the one that joins is still being prepared."""
    asked = KINDS["explicit"] | {"data": data, "out": "run", "rounds": 6}
    whole, _ = train_alone(asked | {"out": "whole"})
    group = joins_in_the_second_epoch("explicit")
    group.slow = {(2, "prepare")}
    group.on_idle = group.slow.clear
    come = group.on_call

    def lose_one(call: Call) -> None:
        come(call)
        if call.worker == 1 and any(made.worker == 2 for made in group.of("prepare")):
            group.on_call = come
            group.lose(1)

    group.on_call = lose_one
    result, group, told = train_together(asked, 3, group=group)
    assert what_matters(result) == what_matters(whole)
    assert [event["worker"] for event in told.of("worker_lost")] == [1]
    assert not group.slow


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_only_reads_is_lost(data: str, undisturbed: dict[str, FactorResult], kind: str) -> None:
    result, _, told = train_together(KINDS[kind] | {"data": data, "out": "run"}, UNITS + 1, Fault(UNITS, "read"))
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 1
    assert not [event for event in told.of("warning") if "again" in event["message"]]


def test_a_worker_that_came_just_in_time_to_read_is_lost(data: str, undisturbed: dict[str, FactorResult]) -> None:
    """It was not there when the others were prepared."""
    group = FactorGroup(no_room={2})

    def come(call: Call) -> None:
        if call.method == "prepare":
            group.no_room.clear()

    group.on_call = come
    result, group, told = train_together(
        KINDS["explicit"] | {"data": data, "out": "run"}, 3, Fault(2, "read"), group=group
    )
    assert what_matters(result) == what_matters(undisturbed["explicit"])
    assert result.failures == 1
    first = next(index for index, call in enumerate(group.made) if (call.worker, call.method) == (2, "read"))
    assert not [call for call in group.made[:first] if (call.worker, call.method) == (2, "prepare")]
    assert not [event for event in told.of("warning") if "again" in event["message"]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_giver_that_is_lost_while_it_hands_over(data: str, undisturbed: dict[str, FactorResult], kind: str) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    faults = [Fault(1, method, call, "leaves"), Fault(1, "export")]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_taker_that_is_lost_while_it_is_handed_units(
    data: str, undisturbed: dict[str, FactorResult], kind: str
) -> None:
    method, call = ("turn", 6) if kind == "explicit" else ("solve", 4)
    faults = [Fault(1, method, call, "leaves"), Fault(2, "adopt")]
    result, _, _ = train_together(KINDS[kind] | {"data": data, "out": "run"}, 2, *faults)
    assert what_matters(result) == what_matters(undisturbed[kind])
    assert result.failures == 1


def test_too_many_losses_in_one_epoch_stop_the_run(data: str) -> None:
    faults = [Fault(1, "turn", call) for call in (6, 7, 8)]
    asked = KINDS["explicit"] | {"data": data, "out": "run", "max_failures_in_round": 2}
    with pytest.raises(RunStopped, match="One round was interrupted 3 times"):
        train_together(asked, 2, *faults)


def test_a_mistake_that_a_worker_finds_is_told_and_no_worker_is_lost(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.parquet", rated().set_column(2, "r", [[-1.0] * ROWS]))
    group = FactorGroup()
    with together(group, 2), pytest.raises(DataError, match="negative rating"):
        training.train(make_config(EXPLICIT | {"data": bad, "out": str(tmp_path / "run")}))
    assert len(group.of("scan")) == 2
    assert not (tmp_path / "run").exists()


def test_shards_are_of_about_the_same_work_or_of_neighbouring_units() -> None:
    work = [1, 1, 1, 9, 1, 1, 1, 1]
    even, near = evenly(work, 3), neighbours(work, 3)
    for shards in (even, near):
        assert [shard.base for shard in shards] == [0, 1, 2]
        assert sorted(unit for shard in shards for unit in shard.units) == list(range(8))
    assert max(sum(work[unit] for unit in shard.units) for shard in even) == 9
    assert [shard.units for shard in near] == [(0, 1), (2, 3, 4), (5, 6, 7)]
    assert len(evenly(work, 20)) == len(neighbours(work, 20)) == 8
