"""Results of both models, and their way through JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dray.events.telemetry import dumps
from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.result import FactorResult
from dray.learners.registry import find
from dray.learners.result import Identity, Seconds, ThreadProof
from dray.learners.xgboost.result import TrainResult
from dray.storage import DEFAULT, StorageOptions
from s3_server import S3Server

SHARED: dict[str, Any] = {
    "run": "one",
    "model_digest": "0" * 64,
    "rows": 10,
    "eval_rows": 2,
    "workers": 0,
    "rounds": 3,
    "best_round": 2,
    "seconds": Seconds(1.0, 2.0, 3.0, 0.0, 6.5),
    "metrics": {"eval-rmse": 0.5},
    "threads": (ThreadProof(0, "here", 2, 1.9, True),),
    "peak_memory_bytes": 100,
    "failures": 0,
    "rows_reloaded": 0,
    "identity": Identity(True, "all rows"),
    "warnings": ("careful",),
}


def recommender(directory: str, **changes: Any) -> FactorResult:
    own = {"learner": "factorization", "objective": "implicit", "pairs": 7, "users": 2, "items": 3, "factors": 4}
    places = {"directory": directory, "model": f"{directory}/model", "evaluation": {"users_without_training": 1}}
    return FactorResult(**SHARED, **own, **places, **changes)


def trees(directory: str) -> TrainResult:
    places = {"directory": directory, "model": f"{directory}/model.ubj", "content": b"trees"}
    return TrainResult(**SHARED, learner="xgboost", objective="binary:logistic", features=4, **places)


def small_model() -> FactorModel:
    factors = Factors.of(np.ones((2, 4), np.float32), np.ones((3, 4), np.float32))
    seen = Seen.of(np.array([0, 1], np.int32), np.array([0, 2], np.int32), 2)
    return FactorModel.of("implicit", factors, ["ann", "bob"], ["x", "y", "z"], seen, {})


def test_a_recommenders_result_is_json_and_comes_back() -> None:
    result = recommender("runs/one")
    document = json.loads(dumps(result.to_json()))
    assert "storage" not in document
    assert document["evaluation"] == {"users_without_training": 1}
    assert document["seconds"] == {
        "start": 1.0, "load": 2.0, "train": 3.0, "recovery": 0.0, "total": 6.5, "copy": 0.0
    }  # fmt: skip
    assert find(document["learner"]).result(document, DEFAULT) == result


def test_a_result_of_trees_comes_back_with_the_model(tmp_path: Path) -> None:
    result = trees(str(tmp_path))
    (tmp_path / "model.ubj").write_bytes(b"trees")
    digests = {"model.ubj": hashlib.sha256(b"trees").hexdigest()}
    (tmp_path / "run.json").write_text(json.dumps({"run": "one", "status": "finished", "files": digests}))
    document = json.loads(dumps(result.to_json()))
    assert "content" not in document
    assert find(document["learner"]).result(document, DEFAULT) == result


@pytest.mark.parametrize("where", ["local", "s3"])
def test_the_model_of_a_recommender_is_loaded_from_its_directory(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = str(tmp_path)
    if where == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        directory = server.url("runs/one")
    storage = StorageOptions(region="us-east-1")
    model = small_model()
    model.save(f"{directory}/model", storage)
    result = find("factorization").result(recommender(directory).to_json(), storage)
    assert isinstance(result, FactorResult)
    assert result.loaded.digest == model.digest
    assert result.loaded is result.loaded
    assert "loaded" not in result.to_json()
