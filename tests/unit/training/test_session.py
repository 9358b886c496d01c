"""Sessions in one process: one fit after another on the same rows, and on some of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import datasets
import dray
from dray.errors import ConfigError, DataError
from dray.learners.checkpoint import Checkpoint
from dray.learners.configs import make_config
from dray.learners.factorization.coordinator import EpochCoordinator
from dray.learners.factorization.saving import PairCollection
from dray.learners.xgboost.coordinator import LabelSurvey, RingCoordinator
from dray.learners.xgboost.driver import TreeDriver
from dray.training.session import Session, open_session
from fake_group import Recorder

ROWS = 3_000


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def chosen() -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.random.default_rng(3).random(ROWS) < 0.6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, chosen: Any) -> tuple[str, str]:
    """All rows, and those that are chosen. Few values a column, all among the chosen: the cuts are the same."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    x = random.integers(0, 12, (ROWS, 4)).astype(np.float32)
    noise = random.normal(size=ROWS)
    columns: dict[str, Any] = {f"x{index}": x[:, index] for index in range(4)}
    columns["text"] = random.choice(["a", "b", "c"], ROWS)
    columns["price"] = x[:, 0] * x[:, 1] + noise * 5
    columns["sold"] = (columns["price"] > 30).astype(np.int64)
    columns["kind"] = (x[:, 2] // 4).astype(np.int64)
    columns["weight"] = random.random(ROWS).astype(np.float32)
    table = pa.table(columns)
    some = datasets.write(folder / "some", table.filter(pa.array(chosen)), files=1)
    return datasets.write(folder / "all", table, files=3), some


ROLES: dict[str, dict[str, Any]] = {
    "binary": {"label": "sold", "ignore": ["price", "kind", "weight"]},
    "weighted": {"label": "sold", "ignore": ["price", "kind"], "weight": "weight"},
    "regression": {"label": "price", "ignore": ["sold", "weight"]},
    "poisson": {"label": "kind", "objective": "count:poisson", "ignore": ["price", "weight"]},
}


@pytest.mark.parametrize("task", ROLES)
def test_some_of_the_rows_give_the_model_of_those_rows(data: tuple[str, str], chosen: Any, task: str) -> None:
    settings = {**ROLES[task], "rounds": 6, "workers": 0}
    with dray.session(data[0], **settings) as session:
        whole, some, again = session.fit(), session.fit(rows=chosen), session.fit()
    fresh = dray.train(data[1], **settings)
    assert some.model_digest == fresh.model_digest
    assert some.model_digest != whole.model_digest
    assert again.model_digest == whole.model_digest == dray.train(data[0], **settings).model_digest


def test_labels_of_rows_that_are_left_out_do_not_matter(data: tuple[str, str]) -> None:
    price = datasets.read(data[0])["price"].to_numpy()
    assert (price <= 0).any()  # what reg:gamma refuses
    with dray.session(data[0], **ROLES["regression"], rounds=2, workers=0) as session:
        fit = session.fit(rows=price > 0, objective="reg:gamma")
        with pytest.raises(DataError, match="gamma"):
            session.fit(objective="reg:gamma")
    assert fit.rounds == 2


@pytest.mark.parametrize("objective", ["reg:absoluteerror", "reg:quantileerror", "multiclass", "binary:hinge"])
def test_objectives_that_look_at_all_rows_are_refused_for_some(
    data: tuple[str, str], chosen: Any, objective: str
) -> None:
    params = {"quantile_alpha": 0.5} if "quantile" in objective else {}
    label = "kind" if objective == "multiclass" else "sold" if "binary" in objective else "price"
    settings = {"label": label, "rounds": 3, "workers": 0, "params": params, "objective": objective}
    with dray.session(data[0], **settings) as session:
        with pytest.raises(ConfigError, match="rows= cannot be used with the objective"):
            session.fit(rows=chosen)
        # Rows that were left out of a fit before count as ever.
        session.fit(rows=chosen, objective="regression", params={})
        assert session.fit().model_digest == dray.train(data[0], **settings).model_digest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"params": {"subsample": 0.5}}, "subsample"),
        ({"params": {"max_bin": 16}}, "max_bin 256, not 16"),
        ({"params": {"max_dept": 3}}, "max_depth"),
        ({"label": "price"}, "label cannot change"),
        ({"workers": 2, "threads": 1}, "threads, workers cannot change"),
        ({"rounds": -1}, "rounds"),
    ],
)
def test_a_fit_that_cannot_be_is_refused_and_the_session_goes_on(
    data: tuple[str, str], chosen: Any, changes: dict[str, Any], words: str
) -> None:
    with dray.session(data[0], **ROLES["binary"], rounds=2, workers=0) as session:
        with pytest.raises(ConfigError, match=words):
            session.fit(rows=chosen if "subsample" in str(changes) else None, **changes)
        assert session.fit().rounds == 2


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.ones(5, np.bool_), r"shape \(5,\); the data has 3,000 rows"),
        (np.ones(ROWS, np.int64), "int64"),
        (np.zeros(ROWS, np.bool_), "chooses no row"),
    ],
)
def test_rows_that_fit_nothing_are_refused(data: tuple[str, str], rows: Any, words: str) -> None:
    with (
        dray.session(data[0], **ROLES["binary"], rounds=2, workers=0) as session,
        pytest.raises(DataError, match=words),
    ):
        session.fit(rows=rows)


def test_rows_held_out_are_never_trained_on(data: tuple[str, str]) -> None:
    with dray.session(data[0], **ROLES["binary"], rounds=2, workers=0, eval_fraction=0.5) as session:
        whole = session.fit(rows=np.ones(ROWS, np.bool_))
        assert whole.model_digest == session.fit().model_digest
        assert whole.metrics == session.fit().metrics


@pytest.fixture
def told(data: tuple[str, str]) -> Iterator[tuple[Session, Recorder]]:
    sink = Recorder()
    config = make_config({"data": data[0], **ROLES["binary"], "rounds": 3, "workers": 0, "eval_fraction": 0.2})
    with open_session(config, [sink]) as session:
        yield session, sink


def test_every_fit_tells_its_rounds_and_its_threads(told: tuple[Session, Recorder]) -> None:
    session, sink = told
    session.fit()
    session.fit(rounds=2)
    assert [event["round"] for event in sink.of("round")] == [1, 2, 3, 1, 2]
    assert [event["rounds"] for event in sink.of("round")] == [3, 3, 3, 2, 2]
    assert len(sink.of("threads")) == 2
    assert [event["name"] for event in sink.of("phase")].count("load") == 1


def test_a_checkpoint_of_an_earlier_fit_comes_too_late(told: tuple[Session, Recorder]) -> None:
    session, _ = told
    first = session.fit()
    session._offer(Checkpoint(3, b"of the first fit", (), fit=1))
    second = session.fit()
    session._offer(Checkpoint(3, b"of the first fit", (), fit=1))
    assert session._writer is not None
    assert session._writer.latest.model != b"of the first fit"
    assert second.model_digest == first.model_digest


def test_a_session_elsewhere_is_refused(data: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="must be part of the cluster"):
        dray.session(data[0], **ROLES["binary"], cluster="http://head:8265")


def test_a_model_is_saved_where_it_is_asked_for(told: tuple[Session, Recorder]) -> None:
    fit = told[0].fit()
    fit.save("model.ubj")
    assert dray.load("model.ubj").digest() == fit.model_digest
    with pytest.raises(ConfigError, match=r"\.ubj"):
        fit.save("model.json")


def test_a_session_that_cannot_open_leaves_nothing(data: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(TreeDriver, "close", lambda _self: closed.append("driver side"))
    with pytest.raises(DataError, match="nothing"):
        dray.session(data[0], label="nothing", workers=0)
    assert closed == ["driver side"]
    assert not Path("runs").exists()


def test_a_fit_that_is_interrupted_closes_the_session(
    told: tuple[Session, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = told

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RingCoordinator, "_follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.fit()
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="interrupted or failed"):
        session.fit()


@pytest.mark.parametrize("phase", ["begin", "conclude"])
def test_an_interrupt_around_the_training_closes_the_session_too(
    data: tuple[str, str], chosen: Any, phase: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    if phase == "begin":
        session = dray.session(data[0], **ROLES["binary"], rounds=2, workers=0)
        monkeypatch.setattr(LabelSurvey, "run", interrupted)
        changes: dict[str, Any] = {"rows": chosen}
    else:
        pairs = pa.table({"u": [1, 1, 2, 2, 3, 3], "i": [1, 2, 1, 3, 2, 3]})
        events = datasets.write(tmp_path / "events", pairs, files=1)
        session = dray.session(events, model="factorization", user="u", item="i", rounds=1, workers=0)
        monkeypatch.setattr(PairCollection, "run", interrupted)
        changes = {}
    with session:
        with pytest.raises(KeyboardInterrupt):
            session.fit(**changes)
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="interrupted or failed"):
            session.fit()


def test_rows_of_ranking_data_are_refused_in_words(tmp_path: Path) -> None:
    data = datasets.write(tmp_path / "ranking", datasets.ranking(), files=2)
    roles = {"label": "label", "group": "query", "weight": "weight", "ignore": ["id"]}
    with (
        dray.session(data, **roles, rounds=1, workers=0) as session,
        pytest.raises(ConfigError, match="cannot be used in ranking"),
    ):
        session.fit(rows=np.ones(session.rows, np.bool_))


def test_a_missing_label_is_told_for_some_rows_as_for_all(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(400.0), "y": [None, *([1.0, 2.0] * 199), 1.0]})
    data = datasets.write(tmp_path / "missing", table, files=2)
    with pytest.raises(DataError, match="1 of 400 rows have no value"):
        dray.session(data, label="y", rounds=1, workers=0, missing_label="error")
    table = pa.table({"x": np.arange(400.0), "y": [np.nan, *([1.0, 2.0] * 199), 1.0]})  # no footer counts it
    data = datasets.write(tmp_path / "nan", table, files=2)
    with dray.session(data, label="y", rounds=1, workers=0, missing_label="error") as session:
        for rows in (None, np.ones(400, np.bool_)):
            with pytest.raises(DataError, match="rows have no value"):
                session.fit(rows=rows)


def test_sinks_are_closed_with_the_session_and_when_it_cannot_open(data: tuple[str, str]) -> None:
    class Closing(Recorder):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    sink = Closing()
    config = make_config({"data": data[0], **ROLES["binary"], "workers": 0})
    with open_session(config, [sink]):
        assert not sink.closed
    assert sink.closed == 1
    with pytest.raises(DataError):
        open_session(make_config({"data": data[0], "label": "nothing", "workers": 0}), [sink])
    assert sink.closed == 2


def test_what_a_fit_was_trained_with_goes_before_its_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []
    run = PairCollection.run

    def counted(self: PairCollection, attempt: Any) -> Any:
        gc.collect()
        alive.append(sum(isinstance(one, EpochCoordinator) for one in gc.get_objects()))
        return run(self, attempt)

    monkeypatch.setattr(PairCollection, "run", counted)
    events = datasets.write(tmp_path / "events", pa.table({"u": [1, 1, 2, 2], "i": [1, 2, 1, 3]}), files=1)
    dray.train(events, model="factorization", user="u", item="i", rounds=1, workers=0)
    assert alive == [0]
