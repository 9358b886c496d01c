"""Every learner keeps the contract: dray's own, and one that another package registers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import datasets
from contract.learner import LearnerContract, Settings, as_floats
from dray.learners import registry

THIRD_PARTY = Path(__file__).parents[1] / "contract" / "third_party"
ROWS = 6_000


@pytest.fixture(scope="module", autouse=True)
def ray_with_ridge(third_party: None, three_cpus: Any) -> None:
    """Workers that start from now on find the package of the other learner too."""


@pytest.fixture(scope="module")
def third_party() -> Iterator[None]:
    """Install the package: it is on the path, with its entry point, as pip would have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(THIRD_PARTY))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(THIRD_PARTY), os.environ.get("PYTHONPATH", "")]))
        registry.find.cache_clear()
        yield
    registry.find.cache_clear()
    sys.modules.pop("dray_ridge", None)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(folder: Path, seed: int, rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 4))
    y = x @ [1.0, -2.0, 0.5, 0.0] + x[:, 0] * x[:, 1] + random.normal(size=rows) * 0.5
    return pa.table({f"x{index}": x[:, index] for index in range(4)} | {"y": y, "z": (y > 0).astype(np.int64)})


def written(folder: Path, make: Any, rows: int = ROWS) -> dict[str, Any]:
    """Write training and evaluation data of several row groups."""
    train = datasets.write(folder / "train", make(folder, 0, rows), files=3)
    return {"data": train, "eval": [datasets.write(folder / "eval", make(folder, 1, rows // 4), files=1)]}


def root_mean_square(errors: npt.NDArray[Any]) -> float:
    return float(np.sqrt((errors**2).mean()))


class TestXGBoost(LearnerContract):
    other: ClassVar[Settings] = {"params": {"max_depth": 3}, "rounds": 6, "seed": 7}
    long: ClassVar[Settings] = {"rounds": 400}
    early: ClassVar[Settings | None] = {"rounds": 200, "early_stop": 3, "params": {"eta": 0.9}}
    bad = (
        ({"label": "nothing"}, "nothing"),
        ({"objective": "binary", "label": "y", "ignore": ["z"]}, "y"),
        ({"rounds": 0}, "rounds"),
    )

    def values(self, folder: Path) -> dict[str, Any]:
        return {"label": "z", "ignore": ["y"], "rounds": 8, **written(folder, table)}

    def measured(self, rows: pa.Table, prediction: npt.NDArray[Any]) -> dict[str, float]:
        label, p = as_floats(rows["z"]), np.clip(prediction.astype(np.float64), 1e-15, 1 - 1e-15)
        return {"eval-logloss": float(-(label * np.log(p) + (1 - label) * np.log(1 - p)).mean())}


class TestRidge(LearnerContract):
    """dray knows nothing of it."""

    other: ClassVar[Settings] = {"params": {"penalty": 300}}
    bad = (({"params": {"penalty": -1}}, "penalty"), ({"label": "nothing"}, "nothing"))

    def values(self, folder: Path) -> dict[str, Any]:
        return {"model": "ridge", "label": "y", "ignore": ["z"], **written(folder, table)}

    def measured(self, rows: pa.Table, prediction: npt.NDArray[Any]) -> dict[str, float]:
        return {"eval-rmse": root_mean_square(prediction - as_floats(rows["y"]))}

    def test_it_is_one_file_of_less_than_150_lines(self) -> None:
        [file] = THIRD_PARTY.glob("*.py")
        assert len(file.read_text(encoding="utf-8").splitlines()) < 150


def ratings(folder: Path, seed: int, rows: int) -> pa.Table:
    """Ratings of pairs that each occur once; no pair of seed 0 has seed 1 too."""
    users, items = 150, 80
    order = np.random.default_rng(5).permutation(users * items)
    chosen = order[:rows] if seed == 0 else order[-rows:]
    user, item = chosen // items, chosen % items
    taste = np.random.default_rng(6)
    a, b = taste.normal(size=(users, 3)), taste.normal(size=(items, 3))
    rating = np.clip(np.rint(3 + (a[user] * b[item]).sum(axis=1)), 1, 5)
    return pa.table({"user": user, "item": item, "rating": rating})


class TestRatings(LearnerContract):
    other: ClassVar[Settings] = {"params": {"factors": 5, "learning_rate": 0.02}, "rounds": 3}
    long: ClassVar[Settings] = {"rounds": 60}
    early: ClassVar[Settings | None] = {
        "rounds": 60,
        "early_stop": 2,
        "params": {"factors": 6, "learning_rate": 0.1, "regularization": 0.0},
    }
    bad = (({"user": "nothing"}, "nothing"), ({"params": {"factors": 0}}, "factors"))

    def values(self, folder: Path) -> dict[str, Any]:
        keys = {"model": "factorization", "user": "user", "item": "item", "rating": "rating"}
        return {**keys, "rounds": 5, "params": {"factors": 8}, **written(folder, ratings)}

    def measured(self, rows: pa.Table, prediction: npt.NDArray[Any]) -> dict[str, float]:
        return {"eval-rmse": root_mean_square(prediction - as_floats(rows["rating"]))}


class TestEvents(TestRatings):
    other: ClassVar[Settings] = {"params": {"factors": 5, "alpha": 3.0}, "rounds": 3}
    long: ClassVar[Settings] = {"rounds": 400}
    early: ClassVar[Settings | None] = {"rounds": 60, "early_stop": 2}
    bad = (({"item": "nothing"}, "nothing"), ({"params": {"alpha": -1}}, "alpha"))

    def values(self, folder: Path) -> dict[str, Any]:
        return {name: value for name, value in super().values(folder).items() if name != "rating"}

    # Lists are ranked: tests/unit/learners/factorization has their metrics against a plain implementation.
    test_metrics_are_those_of_what_is_predicted = None  # type: ignore[assignment]
