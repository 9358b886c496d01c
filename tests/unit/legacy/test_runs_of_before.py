"""Runs that an earlier dray wrote (`make.py` says which): they predict what they did, resume, and are gone on from."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.split import Split
from truth.metrics import Rows, metric

KEPT = Path(__file__).parent / "kept"
DATA = {case: case for case in ("binary", "multiclass", "regression", "ranking")}
DATA |= {
    "dart": "binary",
    "continued": "regression",
    "explicit": "ratings",
    "implicit": "ratings",
    "implicit-0.2": "ratings",
}
FINISHED = ("binary", "multiclass", "regression", "continued", "dart", "ranking")
RECOMMENDERS = ("explicit", "implicit", "implicit-0.2")
KILLED = {"killed": "binary", "killed-0.2": "binary", "killed-csv": "killed-csv", "killed-explicit": "ratings"}
KILLED_ROUNDS = {"killed": 40, "killed-0.2": 40, "killed-csv": 40, "killed-explicit": 30}
CLASSES = ("bad", "fair", "good")
HERE = {"workers": 0, "threads": 1}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(case: str, data: str, here: Path) -> None:
    """Lay a case out as it was when it was made: the run, its data, the paths that it names."""
    shutil.copytree(KEPT / case, here, dirs_exist_ok=True)
    shutil.copytree(KEPT / "data" / data, here / "data")
    name = _copy_name(here / "data" / "train.csv") if (here / "cache").exists() else ""
    for file in [*here.rglob("*.json"), *here.rglob("*.jsonl")]:
        file.write_text(file.read_text().replace("@HERE@", str(here)).replace("@KEY@", name))
    if name:
        (here / "cache" / "@KEY@").rename(here / "cache" / name)


def _copy_name(csv: Path) -> str:
    """What dray 0.1.0 called the Parquet copy of a CSV file."""
    identity = [[str(csv), csv.stat().st_size, csv.stat().st_mtime_ns]]
    return hashlib.sha256(json.dumps([1, "csv", {}, identity], sort_keys=True).encode()).hexdigest()[:20]


def labels(file: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = pq.read_table(file)["label"].to_pylist()
    numbers = [CLASSES.index(value) if isinstance(value, str) else value for value in values]
    return np.asarray(numbers, np.float32).astype(np.float64)


def judged(run: str, file: str) -> Rows:
    """The rows of a file with what `dray predict` says of them."""
    dray.predict(run, file, "judged.parquet", **HERE)
    found = pq.read_table("judged.parquet")
    columns = [found[name].to_numpy().astype(np.float64) for name in found.column_names]
    group = pq.read_table(file)["query"].to_numpy() if "query" in pq.read_schema(file).names else None
    return Rows(labels(file), np.stack(columns, axis=1) if len(columns) > 1 else columns[0], None, group)


def check_told(told: dict[str, float], rows: Rows) -> None:
    assert told
    assert told == {name: pytest.approx(metric(name, rows), rel=1e-6) for name in told}


@pytest.mark.parametrize("name", ["eval", "wide"])
@pytest.mark.parametrize("case", FINISHED)
def test_it_predicts_what_it_did(case: str, name: str, here: Path) -> None:
    put(case, DATA[case], here)
    dray.predict("run", f"data/{name}.parquet", "now.parquet", keep=["id"], **HERE)
    now, then = pq.read_table("now.parquet"), pq.read_table(f"predicted-{name}.parquet")
    assert now.schema.equals(then.schema)
    for column in then.column_names:
        np.testing.assert_allclose(now[column].to_numpy(), then[column].to_numpy(), rtol=1e-6)


@pytest.mark.parametrize("case", RECOMMENDERS)
def test_a_recommender_scores_as_it_did(case: str, here: Path) -> None:
    put(case, DATA[case], here)
    dray.predict("run", "data/eval.parquet", "now.parquet", keep=["user", "item"], **HERE)
    now, then = pq.read_table("now.parquet"), pq.read_table("predicted-eval.parquet")
    assert now.select(["user", "item"]).equals(then.select(["user", "item"]))
    np.testing.assert_allclose(now["score"].to_numpy(), then["score"].to_numpy(), rtol=1e-6)
    known = set(pq.read_table("data/train.parquet")["item"].to_pylist())
    assert set(dray.recommend("run", top=3, **HERE).table["item"].to_pylist()) <= known


@pytest.mark.parametrize("case", KILLED)
def test_a_killed_run_is_resumed_to_its_end(case: str, here: Path) -> None:
    put(case, KILLED[case], here)
    assert json.loads(Path("run/checkpoints/latest.json").read_text())["round"] == 10
    before = json.loads(Path("run/checkpoints/latest.json").read_text())["rounds"]
    result = dray.resume("run")
    assert result.rounds == KILLED_ROUNDS[case]
    assert json.loads(Path("run/run.json").read_text())["status"] == "finished"
    rounds = pq.read_table("run/rounds.parquet")
    assert rounds["round"].to_pylist() == list(range(1, KILLED_ROUNDS[case] + 1))
    decisive = list(before[0]["metrics"])[-1]
    assert rounds[decisive].to_pylist()[:10] == [row["metrics"][decisive] for row in before]
    assert not Path("run/checkpoints").exists()


@pytest.mark.parametrize(("case", "seed"), [("killed", 0), ("killed-0.2", 5)])
def test_what_a_resumed_run_tells_is_what_it_predicts(case: str, seed: int, here: Path) -> None:
    put(case, "binary", here)
    result = dray.resume("run")
    rows = judged("run", "data/train.parquet")
    held_out = Split(0.25, seed).picks(np.arange(len(rows.label)))
    check_told(result.metrics, Rows(rows.label[held_out], rows.prediction[held_out]))


@pytest.mark.parametrize("name", ["eval", "wide"])
@pytest.mark.parametrize("case", FINISHED)
def test_it_is_gone_on_from_and_what_is_told_is_what_is_predicted(case: str, name: str, here: Path) -> None:
    put(case, DATA[case], here)
    document = json.loads(Path("run/run.json").read_text())["config"]
    booster = {"booster": "dart", "rate_drop": 0.3} if case == "dart" else {}
    settings = {"label": "label", "ignore": ["id"], "rounds": 3, "group": document["group"], **HERE}
    before = dray.load("run").booster.num_boosted_rounds()
    result = dray.train(
        "data/train.parquet",
        continue_from="run",
        eval=[f"data/{name}.parquet"],
        params={"max_depth": 3, **booster},
        out="next",
        **settings,
    )
    assert result.booster.num_boosted_rounds() == before + 3
    check_told(result.metrics, judged("next", f"data/{name}.parquet"))


def test_going_on_with_the_same_share_held_out_tells_what_is_predicted(here: Path) -> None:
    put("binary", "binary", here)
    settings = {"label": "label", "ignore": ["id"], "rounds": 3, "eval_fraction": 0.25, **HERE}
    result = dray.train("data/train.parquet", continue_from="run", out="next", **settings)
    rows = judged("next", "data/train.parquet")
    held_out = Split(0.25, 0).picks(np.arange(len(rows.label)))
    assert result.eval_rows == held_out.sum()
    check_told(result.metrics, Rows(rows.label[held_out], rows.prediction[held_out]))


def test_going_on_twice_keeps_every_cut(here: Path) -> None:
    """The continued run's own configuration does not say max_bin: it had it from the run before."""
    put("continued", "regression", here)
    settings = {"label": "label", "ignore": ["id"], "rounds": 2, **HERE}
    dray.train("data/train.parquet", continue_from="run", out="next", **settings)
    before, after = (pq.read_table(f"{run}/cuts.parquet")["amount"].to_numpy() for run in ("run", "next"))
    assert np.isfinite(before).sum() == 600
    assert np.isin(before[1:], after).all()  # the first one only says where the first bin begins


@pytest.mark.parametrize("case", RECOMMENDERS)
def test_a_recommender_is_gone_on_from(case: str, here: Path) -> None:
    put(case, DATA[case], here)
    kind = {"rating": "stars"} if case == "explicit" else {"event": "type"}
    settings = {"user": "user", "item": "item", "rounds": 2, "params": {"factors": 4}, **kind, **HERE}
    result = dray.train(
        "data/train.parquet", model="factorization", continue_from="run", eval_fraction=0.2, out="next", **settings
    )
    assert result.metrics
    dray.predict("next", "data/eval.parquet", "now.parquet", **HERE)
    assert np.isfinite(pq.read_table("now.parquet")["score"].to_numpy()).all()
