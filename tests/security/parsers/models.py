"""Files of models: UBJSON, and what XGBoost and the recommenders are given."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dray.learners.factorization import blocks
from dray.learners.factorization.model import FactorModel
from dray.learners.xgboost import child as xgboost_child
from dray.learners.xgboost import unknown as xgboost_unknown
from dray.learners.xgboost.categories import without_categories
from dray.learners.xgboost.model import Model, splits_of
from dray.learners.xgboost.ubjson import is_whole
from security.attack import Parser
from security.real import KEPT, run_of

KINDS = ("binary", "multiclass", "dart", "ranking", "regression")


def _models() -> list[bytes]:
    return [(KEPT / kind / "run" / "model.ubj").read_bytes() for kind in KINDS]


def _models_and_json() -> list[bytes]:
    import xgboost

    texts = [bytes(xgboost.Booster(model_file=bytearray(model)).save_raw("json")) for model in _models()[:2]]
    return [*_models(), *texts]


def _whole(content: bytes) -> bytes | None:
    return without_categories(content) if is_whole(content) else None


def _in_a_fork(content: bytes) -> bytes | None:
    """What the process of its own says, without the time that its start takes."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        signal.setitimer(signal.ITIMER_PROF, 5.0)
        signal.setitimer(signal.ITIMER_REAL, 30.0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.close(reading)
        code = 1
        try:
            with os.fdopen(writing, "wb") as answer:
                xgboost_child.rewrite(io.BytesIO(content), answer, _library())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        saved = answer.read()
    _, status = os.waitpid(pid, 0)
    return saved if status == 0 else None


def _library() -> str:
    from xgboost.libpath import find_lib_path

    return str(find_lib_path()[0])


def _unknown(content: bytes) -> Any:
    """Load a model file of elsewhere, and follow its trees. Returns what it predicts."""
    xgboost_unknown._saved_apart = _in_a_fork  # type: ignore[assignment]
    model = Model.from_bytes(xgboost_unknown.rewritten(content, "model.ubj"), "model.ubj")
    model.use_threads(1)  # a process with threads of OpenMP cannot be forked
    predicted = model.predict(_rows(len(model.features)), "margin")
    model.to_bytes()
    model.digest()
    splits_of(without_categories(model.to_bytes()))
    return predicted


@cache
def _rows(features: int) -> Any:
    random = np.random.default_rng(0)
    rows = random.normal(size=(40, features)).astype(np.float32) * 100
    rows[:10] = np.nan
    rows[20:] = random.integers(-1, 8, (20, features))
    return rows


def _recommender(model: FactorModel) -> list[Any]:
    """Ask a model in every way; return what it recommends to one user."""
    users, items = model.user_ids.to_pylist()[:5], model.item_ids.to_pylist()[:5]
    model.describe()
    recommended = model.recommend(users[0], 3)
    model.similar(items[0], 3)
    model.score(users, items)
    list(model.recommend_many(n=3))
    folded = model.fold_in(items, [1.0] * len(items))
    model.recommend_folded(folded, 3, exclude=items[:1])
    model.fold_in_item(users, [1.0] * len(users))
    return recommended.items.to_pylist()  # type: ignore[no-any-return]


def _part(name: str, *, structured: bool = False) -> Parser:
    """Return a parser of one file of a recommender, among its other files."""
    places: list[Path] = []

    def inputs() -> Sequence[bytes]:
        places.append(Path(run_of("implicit"), "model"))
        return [(places[0] / name).read_bytes()]

    def parse(content: bytes) -> list[Any]:
        (places[0] / name).unlink()  # a new file: the old one may still be mapped
        (places[0] / name).write_bytes(content)
        return _recommender(FactorModel.load(str(places[0])))

    return Parser(inputs, parse, lambda recommended: len(recommended) == 3, structured)


def _epochs() -> list[bytes]:
    return [(KEPT / "killed-explicit" / "run" / "checkpoints" / "round-000010.model").read_bytes()]


PARSERS = {
    "model_json": _part("model.json", structured=True),
    "factors": _part("user_factors.npy"),
    "starts": _part("seen_starts.npy"),
    "seen": _part("seen_items.npy"),
    "order": _part("items_order.npy"),
    "popular": _part("popular.npy"),
    "ids": _part("users.arrow"),
    "item_ids": _part("items.arrow"),
    "epochs": Parser(_epochs, blocks.from_bytes, lambda read: read is not None),
    "ubjson": Parser(_models, _whole, lambda read: read is not None and is_whole(read)),
    "unknown_model": Parser(_models_and_json, _unknown, lambda margins: len(margins) == 40 and np.ptp(margins) > 0),
}
