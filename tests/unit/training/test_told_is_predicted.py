"""The metric that a run tells is that of what it predicts: beyond the sample, with dart, and when a run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost

import dray
from dray.data.cuts import LARGEST
from dray.data.split import Split
from dray.errors import ConfigError, DataError
from dray.learners.xgboost.result import TrainResult
from dray.runs.directory import open_run
from small_data import write

ROWS = 4000


def heavy_tails(seed: int, scale: float = 1.0, rows: int = ROWS) -> dict[str, Any]:
    """A column whose gaps tell the label, with values far beyond most on either side."""
    random = np.random.default_rng(seed)
    amount, gap = random.lognormal(3, 2, rows) * scale, random.random(rows) < 0.05
    label = np.where(gap, random.random(rows) < 0.7, random.random(rows) < 0.02 + 0.2 * (amount > 100 * scale))
    return {
        "amount": pa.array(amount, mask=gap),
        "debt": pa.array(-amount, mask=random.random(rows) < 0.05),
        "y": label.astype(np.int64),
    }


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "train.parquet", heavy_tails(0))


@pytest.fixture
def wide(tmp_path: Path) -> str:
    return write(tmp_path / "wide.parquet", heavy_tails(1, scale=50))


def run(location: str, out: str, **settings: Any) -> TrainResult:
    result = dray.train(location, **{"label": "y", "rounds": 10, "workers": 0, "out": out, **settings})
    assert isinstance(result, TrainResult)
    return result


def log_loss(run: str, location: str, rows: npt.NDArray[np.bool_] | None = None) -> float:
    """Of what `dray predict` writes, for all rows of a file or for some."""
    out = f"{run}-predicted.parquet"
    dray.predict(run, location, out, workers=0)
    label, found = pq.read_table(location)["y"].to_numpy(), pq.read_table(out)["prediction"].to_numpy().astype(float)
    chosen = np.ones(len(label), bool) if rows is None else rows
    label, found = label[chosen], np.clip(found[chosen], 1e-16, 1 - 1e-16)
    return float(-np.mean(label * np.log(found) + (1 - label) * np.log(1 - found)))


@pytest.mark.parametrize("params", [{}, {"booster": "dart", "rate_drop": 0.3}, {"max_bin": 8}, {"max_depth": 12}])
def test_rows_beyond_the_sample_are_told_as_they_are_predicted(data: str, wide: str, params: dict[str, Any]) -> None:
    result = run(data, "run", eval=[wide], params=params)
    assert result.metrics["eval-logloss"] == pytest.approx(log_loss("run", wide), rel=1e-6)


def test_rows_beyond_the_sample_are_trained_on_as_they_are_predicted(tmp_path: Path, data: str) -> None:
    """One row in a hundred thousand is in no sample; here the sample is made so small."""
    ordinary, extreme = heavy_tails(2), heavy_tails(3, scale=1e6, rows=40)
    both = pa.concat_tables([pa.table(ordinary), pa.table(extreme)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dray.data.sample.MOST_ROWS_READ", ROWS)  # the first of two row groups
        result = run(write(tmp_path / "both.parquet", both, ROWS), "run", eval=[write(tmp_path / "e.parquet", extreme)])
    assert result.metrics["eval-logloss"] == pytest.approx(log_loss("run", str(tmp_path / "e.parquet")), rel=1e-6)


def test_no_split_is_beyond_the_numbers_and_a_large_one_is_not_missing(data: str) -> None:
    result = run(data, "run")
    dumped = result.booster.trees_to_dataframe()["Split"].dropna()
    assert np.isfinite(dumped).all()
    values = np.array([[1e38, -1e38], [3.4e38, -3.4e38], [LARGEST, -LARGEST], [np.nan, np.nan]], np.float32)
    large, larger, _, missing = result.booster.inplace_predict(values)
    assert large == larger != missing


@pytest.mark.parametrize("value", [LARGEST, np.inf, -np.inf, 1e300])
def test_what_has_no_place_within_the_bins_is_refused_with_its_column(tmp_path: Path, value: float) -> None:
    columns = {"x": [1.0, 2, 3, 4] * 10, "odd one": [1.0] * 39 + [float(value)], "y": [0, 1] * 20}
    with pytest.raises(DataError, match=r'"odd one" holds an infinite value, or one of 3\.4028235e\+38 or more'):
        run(write(tmp_path / "a.parquet", columns), str(tmp_path / "run"))


@pytest.mark.parametrize("params", [{}, {"booster": "dart", "rate_drop": 0.3}])
def test_going_on_with_wider_data_is_told_as_it_is_predicted(data: str, wide: str, params: dict[str, Any]) -> None:
    run(data, "first", params=params)
    result = run(wide, "more", continue_from="first", eval=[wide], params=params)
    assert result.booster.num_boosted_rounds() == 20
    assert result.metrics["eval-logloss"] == pytest.approx(log_loss("more", wide), rel=1e-6)


def test_dart_that_stops_early_is_the_model_of_its_best_round(data: str, wide: str) -> None:
    settings = {"params": {"booster": "dart", "rate_drop": 0.5, "eta": 0.8, "seed_per_iteration": True}, "eval": [wide]}
    stopped = run(data, "run", rounds=60, early_stop=4, **settings)
    assert stopped.rounds == stopped.best_round + 4
    assert stopped.booster.num_boosted_rounds() == stopped.best_round
    assert stopped.metrics["eval-logloss"] == pytest.approx(log_loss("run", wide), rel=1e-6)
    assert stopped.model_digest == run(data, "short", rounds=stopped.best_round, **settings).model_digest
    assert stopped.booster.attributes().keys() == {"dray"}


@pytest.mark.parametrize(("before", "after"), [("gbtree", "dart"), ("dart", "gbtree")])
def test_going_on_with_another_booster_is_refused(data: str, before: str, after: str) -> None:
    run(data, "first", params={"booster": before})
    with pytest.raises(ConfigError, match=f"has the booster {before}, not {after}"):
        run(data, "more", continue_from="first", params={"booster": after})


def test_dart_goes_on_as_dart_unasked(data: str) -> None:
    run(data, "first", params={"booster": "dart", "rate_drop": 0.3})
    more = run(data, "more", continue_from="first", params={"rate_drop": 0.3})
    whole = run(data, "whole", rounds=20, params={"booster": "dart", "rate_drop": 0.3})
    assert more.model_digest == whole.model_digest


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_the_model_that_a_run_goes_on_from_may_be_the_best(data: str, tmp_path: Path, booster: str) -> None:
    random = np.random.default_rng(9)
    noise = {"amount": random.normal(size=500), "debt": random.normal(size=500), "y": random.integers(0, 2, 500)}
    same_kind = write(tmp_path / "eval.parquet", heavy_tails(5))
    first = run(data, "first", eval=[same_kind], params={"booster": booster})
    spoilt = run(
        write(tmp_path / "noise.parquet", noise), "more", continue_from="first", eval=[same_kind], early_stop=3,
        params={"eta": 1.0, "booster": booster},
    )  # fmt: skip
    assert (spoilt.best_round, spoilt.rounds) == (0, 3)
    assert spoilt.model_digest == first.model_digest
    assert spoilt.metrics == first.metrics
    assert spoilt.metrics["eval-logloss"] == pytest.approx(log_loss("more", same_kind), rel=1e-6)
    assert any("No round was better" in warning for warning in spoilt.warnings)
    whole = run(
        str(tmp_path / "noise.parquet"), "all rounds", continue_from="first", eval=[same_kind], rounds=3,
        params={"eta": 1.0, "booster": booster},
    )  # fmt: skip
    assert (whole.best_round, whole.booster.num_boosted_rounds()) == (0, 13)
    assert not [warning for warning in whole.warnings if "No round was better" in warning]


def test_the_bins_of_a_run_that_went_on_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = np.arange(1000, dtype=np.float64)
    location = write(tmp_path / "a.parquet", {"x": values, "y": np.sin(values / 20)})
    run(location, "first", params={"max_bin": 600}, rounds=2)
    run(location, "second", continue_from="first", rounds=2)
    third = run(location, "third", continue_from="second", rounds=2)
    tables = [open_run(name).read_table("cuts.parquet") for name in ("first", "second", "third")]
    assert [table.num_rows for table in tables] == [601] * 3
    assert third.model_digest == run(location, "whole", params={"max_bin": 600}, rounds=6).model_digest
    with pytest.raises(ConfigError, match="max_bin 600, not 256"):
        run(location, "fourth", continue_from="third", params={"max_bin": 256})


def test_rows_that_an_earlier_run_was_trained_on_are_not_evaluated_on(data: str, wide: str) -> None:
    run(data, "all")
    with pytest.raises(ConfigError, match="trained on all of it"):
        run(data, "more", continue_from="all", eval_fraction=0.2)
    with pytest.raises(ConfigError, match="trained on all of it"):
        run(wide, "more", continue_from="all", eval=[data])
    run(wide, "second", continue_from="all")
    with pytest.raises(ConfigError, match="trained on all of it"):
        run(data, "more", continue_from="second", eval_fraction=0.2)
    assert not Path("more").exists()


def test_the_same_rows_are_held_out_again_and_told_honestly(data: str) -> None:
    run(data, "first", eval_fraction=0.25, seed=3, stratify=False)
    with pytest.raises(ConfigError, match=r"eval_fraction=0\.25 split_seed=3"):
        run(data, "more", continue_from="first", eval_fraction=0.2, seed=3, stratify=False)
    more = run(data, "more", continue_from="first", eval_fraction=0.25, seed=3, stratify=False)
    held_out = Split(0.25, 3).picks(np.arange(ROWS))
    assert more.eval_rows == held_out.sum()
    assert more.metrics["eval-logloss"] == pytest.approx(log_loss("more", data, held_out), rel=1e-6)
    assert not [warning for warning in more.warnings if "not known" in warning]


def test_a_run_that_does_not_say_what_came_before_it_is_not_trusted(data: str) -> None:
    run(data, "first", eval_fraction=0.2)
    run(data, "second", continue_from="first", eval_fraction=0.2)
    kept = json.loads(Path("second/data.json").read_text())
    Path("second/data.json").write_text(json.dumps({"train": kept["train"], "eval": []}))  # as 0.1 wrote it
    third = run(data, "third", continue_from="second", eval_fraction=0.2)
    assert any("not known whether the evaluation rows are new" in warning for warning in third.warnings)


def test_other_data_to_evaluate_on_is_told_to_be_unknown(data: str, wide: str) -> None:
    run(data, "first")
    for settings in ({"eval": [wide]}, {"eval_fraction": 0.2}):
        result = run(wide, "more", continue_from="first", **settings)
        assert any("not known whether the evaluation rows are new" in warning for warning in result.warnings)
        Path("more").rename(f"more-{len(settings['eval']) if 'eval' in settings else 0}")


def test_plain_xgboost_predicts_the_same_on_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    kind, size = random.choice(["a", "b", "c", "d"], 800), random.integers(-3, 3, 800)
    columns = {
        "kind": pa.array(kind).dictionary_encode(),
        "size": pd.Categorical(size),
        "x": random.normal(size=800),
        "y": (kind == "c") ^ (size > 0),
    }
    table = pd.DataFrame({"kind": kind, "size": columns["size"], "x": columns["x"], "y": columns["y"]})
    run(table, "run", rounds=10)
    dray.predict("run", table, "out.parquet", workers=0)
    expected = pq.read_table("out.parquet")["prediction"].to_numpy()
    chosen = kind != "b"
    frame = table[chosen].drop(columns="y")
    frame["kind"] = pd.Categorical(frame["kind"], categories=["d", "c", "a"])
    frame["size"] = pd.Categorical(frame["size"].astype("int64"), categories=[2, -3, -2, -1, 1, 0])
    plain = xgboost.Booster(model_file="run/model.ubj")
    found = plain.predict(xgboost.DMatrix(frame, enable_categorical=True))
    np.testing.assert_array_equal(found, expected[chosen])


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "reg:quantileerror", "params": {"quantile_alpha": [0.1, 0.9], "base_score": 0.4}},
        {"objective": "multiclass", "params": {"num_class": 3, "base_score": 0.4}},
        {"objective": "multiclass", "params": {"num_class": 3, "base_score": [0.1, 0.2, 0.3]}},
    ],
)
def test_one_starting_point_for_several_outputs_is_kept_by_the_model(data: str, settings: dict[str, Any]) -> None:
    result = run(data, "run", eval_fraction=0.2, **settings)
    asked = settings["params"]["base_score"]
    kept = json.loads(json.loads(result.booster.save_config())["learner"]["learner_model_param"]["base_score"])
    assert kept == pytest.approx(asked if isinstance(asked, list) else [asked] * len(kept))


def test_a_class_whose_rows_are_all_held_out_is_a_class(tmp_path: Path) -> None:
    held_out = int(np.flatnonzero(Split(0.2, 0).picks(np.arange(200)))[0])
    label = np.arange(200) % 3
    label[held_out] = 3
    columns = {"x": np.random.default_rng(0).normal(size=200), "y": label}
    location = write(tmp_path / "a.parquet", columns)
    settings = {"objective": "multiclass", "out": str(tmp_path / "run")}
    result = run(location, eval_fraction=0.2, **settings)
    assert np.isfinite(result.metrics["eval-mlogloss"])
    assert (
        len(json.loads(json.loads(result.booster.save_config())["learner"]["learner_model_param"]["base_score"])) == 4
    )
