"""Model files that nobody vouches for: what is sound comes through as it is, and nothing else does."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from dray.errors import ModelError
from dray.learners.xgboost import unknown as xgboost_unknown
from dray.learners.xgboost.model import Model
from dray.learners.xgboost.trees import problem_of
from dray.learners.xgboost.ubjson import is_whole, span_of
from dray.learners.xgboost.unknown import MODEL, read_model, rewritten
from dray.runs.directory import RunDirectory, open_run


def trained(classes: int = 1, **params: Any) -> bytes:
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 3)).astype(np.float32)
    rows[:, 2] = random.integers(0, 5, 400)
    labels = (random.normal(size=(400, classes)) + rows[:, :1]).squeeze()
    kinds = ["q", "q", "q" if "multi_strategy" in params else "c"]
    data = xgboost.DMatrix(rows, labels, feature_types=kinds, enable_categorical=True)
    return bytes(xgboost.train({"max_depth": 4, "nthread": 1, **params}, data, 4).save_raw("ubj"))


@pytest.mark.parametrize(
    ("classes", "params"),
    [
        (1, {}),
        (1, {"max_cat_to_onehot": 1}),
        (1, {"booster": "dart", "rate_drop": 0.5}),
        (1, {"gamma": 5.0}),  # with nodes that were taken out again
        (1, {"num_parallel_tree": 3}),
        (2, {}),
        (2, {"multi_strategy": "multi_output_tree"}),
    ],
)
def test_every_kind_of_model_comes_through_unchanged(classes: int, params: dict[str, Any]) -> None:
    content = trained(classes, **params)
    assert rewritten(content, MODEL) == content


def test_a_model_without_trees_is_told_as_what_it_is() -> None:
    data = xgboost.DMatrix(np.eye(3, dtype=np.float32), np.arange(3))
    content = bytes(xgboost.train({"booster": "gblinear", "nthread": 1}, data, 2).save_raw("ubj"))
    with pytest.raises(ModelError, match="was not trained by dray: it is not made of trees"):
        rewritten(content, MODEL)


def changed(content: bytes, name: str, marker: str, position: int, value: int | float) -> bytes:
    """Return the model with one number of an array of its first tree changed."""
    start = content.index(name.encode() + b"[$" + marker.encode() + b"#L") + len(name) + 4 + 1 + 8
    shape = {"l": ">i", "d": ">f", "U": ">B"}[marker]
    at = start + position * struct.calcsize(shape)
    return content[:at] + struct.pack(shape, value) + content[at + struct.calcsize(shape) :]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left_children", 1_000_000),
        ("left_children", -7),
        ("left_children", 0),
        ("right_children", 1),
        ("split_indices", 3),
        ("split_indices", -1),
    ],
)
def test_a_tree_that_leads_out_of_its_arrays_or_in_a_circle_is_refused(name: str, value: int) -> None:
    content = changed(trained(), name, "l", 0, value)
    assert is_whole(content)
    with pytest.raises(ModelError, match="is not an XGBoost model"):
        rewritten(content, MODEL)


def test_what_ends_the_reading_process_is_an_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = Path(__file__).with_name("crashing_child.py")
    monkeypatch.setattr(xgboost_unknown.xgboost_child, "__file__", str(crashing))
    with pytest.raises(ModelError, match="is not an XGBoost model"):
        rewritten(trained(), MODEL)


def test_what_takes_too_long_to_read_is_an_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgboost_unknown.xgboost_child, "__file__", str(Path(__file__).with_name("crashing_child.py")))
    monkeypatch.setattr(xgboost_unknown, "_LIMIT_S", 0.0)
    begin = time.perf_counter()
    with pytest.raises(ModelError):
        rewritten(trained(), MODEL)
    assert time.perf_counter() - begin < 30


def test_nothing_is_wrong_with_a_model_but_with_one_whose_parts_are_gone() -> None:
    content = trained()
    assert problem_of(content) is None
    span = span_of(content, ("learner", "gradient_booster", "model", "trees"))
    assert span is not None
    assert problem_of(content[: span[0]] + b"[#L" + bytes(8) + content[span[1] :]) == "trees are missing"
    assert problem_of(b"{}") is not None


def finished(location: Path, content: bytes) -> RunDirectory:
    run = RunDirectory.create(str(location))
    run.write_result(MODEL, content)
    run.finish({})
    run.close()
    return open_run(str(location))


def test_a_model_that_is_not_what_its_run_wrote_is_not_given_to_xgboost(tmp_path: Path) -> None:
    content = trained()
    run = finished(tmp_path / "run", content)
    assert read_model(run) == content
    (tmp_path / "run" / MODEL).write_bytes(changed(content, "left_children", "l", 0, 1_000_000))
    with pytest.raises(ModelError, match="is not what the run wrote"):
        read_model(run)


def test_a_model_with_a_digest_needs_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = trained()
    run = finished(tmp_path / "run", content)
    monkeypatch.setattr(xgboost_unknown, "rewritten", lambda *_: pytest.fail("read twice"))
    assert read_model(run) == content


def test_the_model_of_a_run_without_a_digest_is_read_by_another_process_first(tmp_path: Path) -> None:
    content = trained()
    run = finished(tmp_path / "run", content)
    run.document = {name: value for name, value in run.document.items() if name != "files"}
    assert read_model(run) == content
    (tmp_path / "run" / MODEL).write_bytes(changed(content, "left_children", "l", 0, 1_000_000))
    with pytest.raises(ModelError, match="is not an XGBoost model"):
        read_model(run)


def test_a_damaged_description_of_the_columns_is_told() -> None:
    booster = xgboost.Booster(model_file=bytearray(trained()))
    for text in ("{", "[]", '{"features": 3}', '{"features": [], "label": {"name": "y", "kind": "number"}}'):
        booster.set_attr(dray=text)
        with pytest.raises(ModelError, match="is damaged"):
            Model.from_bytes(bytes(booster.save_raw("ubj")), MODEL)
