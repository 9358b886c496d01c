"""A run is opened as what its learner makes: through the registry, as a recommender or refused as none."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dray
from dray.errors import ConfigError, ModelError
from dray.learners import registry
from dray.learners.recommender import ListQuestion, recommends
from dray.learners.stored import open_recommender
from dray.recommending.recommend import recommend
from dray.runs.directory import RunDirectory
from dray.storage import DEFAULT, StorageOptions
from recommender_run import USERS, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(str(tmp_path_factory.mktemp("runs") / "shop"))


def test_a_recommender_that_was_sent_gives_the_same_lists(run: str) -> None:
    here = open_recommender(run, DEFAULT)
    there = pickle.loads(pickle.dumps(here))
    question = ListQuestion(3)
    for users in (range(5, 9), pa.array(["u001", "nobody"])):
        lists = [pa.concat_tables(one.lists(users, question, 1)).to_pylist() for one in (here, there)]
        assert lists[0] == lists[1] and lists[0]
    assert len(there.user_ids) == USERS
    assert (there.user_column, there.item_column) == ("user_id", "item_id")


def test_a_recommender_is_sent_without_its_arrays(run: str) -> None:
    here = open_recommender(run, DEFAULT)
    list(here.lists(range(9), ListQuestion(3), 1))
    assert len(pickle.dumps(here)) < 2000


def test_a_model_in_memory_has_no_location(run: str) -> None:
    model: Any = dray.load(run)
    assert open_recommender(model, DEFAULT).location is None
    assert open_recommender(f"{run}/model", DEFAULT).location == f"{run}/model"


@pytest.mark.parametrize("ask", [dray.recommend, lambda run: open_recommender(run, DEFAULT)])
def test_a_run_that_predicts_rows_is_refused_with_the_models_that_recommend(tmp_path: Path, ask: Any) -> None:
    run = str(tmp_path / "trees")
    RunDirectory.create(run, config={"model": "xgboost"}).close()
    with pytest.raises(ModelError, match="is one of xgboost and not a recommender: it predicts rows") as caught:
        ask(run)
    assert f"dray predict {run} DATA OUT" in caught.value.fix
    assert "a run of model factorization" in caught.value.fix


def test_a_file_is_refused_as_one(tmp_path: Path) -> None:
    file = tmp_path / "model.ubj"
    file.write_bytes(b"{}")
    with pytest.raises(ModelError, match=r"model\.ubj is a file and not a recommender"):
        open_recommender(str(file), DEFAULT)


def test_a_list_has_at_least_one_item() -> None:
    with pytest.raises(ConfigError, match="0 items were asked for"):
        ListQuestion(0)


class Constant:
    """A recommender of another package: every user gets the first items."""

    location, user_column, item_column = None, "user", "item"
    user_ids, item_ids = pa.array(["a", "b"]), pa.array([1, 2, 3])

    def count_unknown(self, items: pa.Array) -> int:
        return len(set(items.to_pylist()) - set(self.item_ids.to_pylist()))

    def lists(self, users: Any, question: ListQuestion, threads: int) -> Any:
        for index in users:
            count = min(question.top, len(self.item_ids))
            by = pa.array(["order"] * count).dictionary_encode()
            scores = pa.array([1.0] * count, pa.float32())
            ranks = pa.array(range(1, count + 1), pa.int32())
            yield pa.table([[self.user_ids[index].as_py()] * count, ranks, self.item_ids[:count], scores, by], NAMES)


NAMES = ["user", "rank", "item", "score", "by"]


class ConstantLearner:
    name = "constant"

    def recognises(self, location: str, storage: StorageOptions) -> bool:
        return location.endswith(".constant")

    def open_recommender(self, location: str, storage: StorageOptions) -> Constant:
        return Constant()


def test_a_learner_of_another_package_recommends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, find = registry.names(), registry.find
    monkeypatch.setattr(registry, "names", lambda: ["constant", *names])
    monkeypatch.setattr(registry, "find", lambda name: ConstantLearner() if name == "constant" else find(name))
    (tmp_path / "a.constant").mkdir()
    result = recommend(str(tmp_path / "a.constant"), top=2, items=[3, 7])
    assert result.table is not None
    assert result.table["item"].to_pylist() == [1, 2, 1, 2]
    assert (result.users, result.rows, result.items_unknown, result.users_folded) == (2, 4, 1, 0)


def test_dray_says_of_its_own_learners_which_recommend() -> None:
    assert [learner.name for learner in registry.available() if recommends(learner)] == ["factorization"]
