"""`dray predict` as people call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import datasets
import dray
from dray.cli.main import main
from s3_server import S3Server

KEYS = {
    "rows": int,
    "seconds": float,
    "rows_per_second": float,
    "peak_memory_bytes": int,
    "output": str,
    "files": int,
    "workers": int,
    "unseen": dict,
    "infinite": dict,
    "unreadable": dict,
    "missing_columns": list,
    "rows_rejected": int,
    "rejects": type(None),
    "model": str,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("predict")
    data = datasets.write(root / "data", datasets.multiclass(900))
    dray.train(data, label="label", ignore=["id", "weight"], rounds=3, workers=0, out=str(root / "run"))
    return root


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predict(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["predict", *map(str, arguments), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_result_as_json_has_every_key(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = predict(capsys, root / "run", root / "data", "out", "--workers", "0")
    assert {name: type(value) for name, value in document.items()} == KEYS
    assert document["rows"] == 900
    assert document["output"] == str(tmp_path / "out")
    assert document["peak_memory_bytes"] > 50e6


def test_flags_choose_what_is_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted((root / "data").iterdir())
    predict(capsys, root / "run/model.ubj", *files, "out", "--type", "class", "--keep", "id", "--keep", "label")
    table = datasets.read("out")
    assert table.column_names == ["id", "label", "prediction"]
    assert set(table["prediction"].to_pylist()) <= set(datasets.CLASSES)
    predict(capsys, root / "run", files[0], "one.parquet", "--type", "margin", "--contributions")
    assert "contribution_low_one" in datasets.read("one.parquet").column_names


def test_words_go_to_stderr_with_the_unseen_values(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = datasets.replaced(datasets.multiclass(300), colour=["mauve"] * 300)
    data = datasets.write(tmp_path / "data", table, files=1)
    assert main(["predict", str(root / "run"), data, "out", "--workers", "0"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "300 predictions" in captured.err
    assert 'Warning: 300 rows with a value of "colour" that the model does not know' in captured.err


def test_infinite_numbers_are_a_warning(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = datasets.replaced(datasets.multiclass(300), one=[float("inf"), *[0.5] * 298, float("-inf")])
    data = datasets.write(tmp_path / "data", table, files=1)
    assert main(["predict", str(root / "run"), data, "out", "--workers", "0"]) == 0
    assert 'Warning: 2 rows with an infinite or too large "one"; it counted as missing.' in capsys.readouterr().err
    assert predict(capsys, root / "run", data, "again", "--workers", "0")["infinite"] == {"one": 2}


def test_quiet_says_nothing(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(root / "run"), str(root / "data"), "out", "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


def test_a_bucket_is_reached_with_flags(
    root: Path, capsys: pytest.CaptureFixture[str], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_REGION")
    store = ["--endpoint", s3_server.endpoint, "--region", "us-east-1"]
    document = predict(capsys, root / "run", root / "data", s3_server.url("out"), *store)
    assert document["output"] == s3_server.url("out")
    written = sorted(file.name for file in (s3_server.directory / "out").glob("[!.]*"))
    assert written == sorted(file.name for file in (root / "data").iterdir())
