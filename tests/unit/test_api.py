"""The Python API: the same as the commands, silent, with typed results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xgboost
import yaml

import datasets
import dray
from dray.errors import ConfigError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return datasets.write(tmp_path / "data", datasets.binary(600))


def test_the_public_names_are_these() -> None:
    assert set(dray.__all__) == {
        "ClusterError", "ConfigError", "DataError", "DrayError", "FactorModel", "FactorResult", "FitResult",
        "IngestResult", "ItemError", "Model", "ModelError", "PredictResult", "RecommendResult", "Session",
        "StorageError", "TrainResult", "WorkerError", "__version__", "describe", "ingest", "load", "map", "predict",
        "recommend", "resume", "session", "train",
    }  # fmt: skip
    assert dir(dray) == dray.__all__
    for name in dray.__all__:
        assert getattr(dray, name) is not None
    with pytest.raises(AttributeError, match="trian"):
        dray.trian  # noqa: B018


def test_importing_dray_imports_nothing_heavy() -> None:
    code = "import sys, dray; print(*{'numpy', 'pyarrow', 'ray', 'xgboost', 'pydantic'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_train_predict_and_load_say_nothing(data: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = dray.train(data, label="label", workers=0, rounds=3, eval_fraction=0.2)
    predicted = dray.predict(result.directory, data, "out", workers=0)
    model = dray.load(result.directory)
    assert capfd.readouterr() == ("", "")
    assert isinstance(result, dray.TrainResult)
    assert isinstance(predicted, dray.PredictResult)
    assert isinstance(model, dray.Model)
    assert isinstance(result.booster, xgboost.Booster)
    assert result.booster.num_boosted_rounds() == 3
    assert model.digest() == dray.load(result.model).digest() == result.model_digest
    assert predicted.rows == 600
    matrix = np.full((1, result.features), np.nan, np.float32)
    assert model.predict(matrix, "probability") == result.booster.inplace_predict(matrix, validate_features=False)


def test_progress_is_shown_when_asked_for(data: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = dray.train(data, label="label", workers=0, rounds=3, progress=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert result.run in captured.err


def test_settings_are_the_keys_of_a_run_file(data: str) -> None:
    settings = {"rounds": 3, "workers": 0, "params": {"max_depth": 3}, "ignore": ["id"], "weight": "weight"}
    Path("run.yaml").write_text(yaml.safe_dump({"data": data, "label": "label", **settings}))
    by_file = dray.train("run.yaml")
    by_name = dray.train([data], label="label", **settings)
    assert by_file.model_digest == by_name.model_digest
    assert dray.train("run.yaml", rounds=1).rounds == 1


def test_mistakes_are_exceptions(data: str) -> None:
    with pytest.raises(ConfigError, match=r'Unknown key "round".*Did you mean "rounds"'):
        dray.train(data, label="label", round=3)
    with pytest.raises(ConfigError, match='"label" is missing'):
        dray.train(data)
    with pytest.raises(ConfigError, match=r'no type of prediction "probabilities".*Did you mean "probability"'):
        dray.predict("run", data, "out", output="probabilities")  # type: ignore[arg-type]
    with pytest.raises(dray.DrayError, match="nowhere"):
        dray.load("nowhere")


def test_paths_of_pathlib_are_taken_wherever_locations_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{i};{i % 7};{i % 2}\n" for i in range(100)))  # without a header
    run = tmp_path / "run"
    settings = {"label": "f2", "workers": 0, "rounds": 2, "read": {"header": False}}
    trained = dray.train(file, out=run, eval=file, **settings)
    assert trained.model_digest == dray.train([str(file)], eval=[str(file)], **settings).model_digest
    assert dray.load(run).digest() == trained.model_digest
    # How the run was told to read its data holds for the new data.
    assert dray.predict(run, file, tmp_path / "out.csv", workers=0).rows == 100  # type: ignore[arg-type]
    assert dray.predict(run, [file], "of-a-list", workers=0).rows == 100  # type: ignore[arg-type]
    assert dray.ingest([file], tmp_path / "rows", read={"header": False}).rows_kept == 100  # type: ignore[arg-type]
    assert dray.describe(file, read={"header": False}).rows.value == 100


def test_it_may_be_called_from_another_thread(data: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(dray.train, data, label="label", workers=0, rounds=3, threads=1) for _ in range(2)]
        assert len({run.result().model_digest for run in runs}) == 1
        assert len({run.result().directory for run in runs}) == 2


def test_ingest_does_what_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a,b\n1,x\n2,y\n3,x\n4,\n", encoding="utf-8")
    result = dray.ingest("rows.csv", "out", filter="a > 1", columns=["b", "a"], test=0.5, split_by=["b"], where="here")
    assert (result.rows_read, result.rows_kept, result.rows_filtered) == (4, 3, 1)
    assert sum(result.parts.values()) == 3
    assert datasets.read("out").schema.names == ["b", "a"]


def test_describe_takes_what_train_takes(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,y\n", encoding="utf-8")
    assert dray.describe(str(path)).to_json()["rows"]["value"] == 2
