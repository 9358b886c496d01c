"""The example that `make run` runs, from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import datasets

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_first_run_makes_data_trains_on_two_workers_and_predicts(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(EXAMPLES / "first_run.sh"), "here"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "here" / "run" / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["result"]["workers"] == 2
    assert 0.7 < run["result"]["metrics"]["eval-auc"] < 0.95
    table = datasets.read(tmp_path / "here" / "predictions")
    assert table.column_names == ["label", "prediction"]
    rows = run["result"]["rows"] + run["result"]["eval_rows"]
    assert table.num_rows == rows
    some = slice(0, 5000)
    area = datasets.auc(table["label"].to_numpy()[some], table["prediction"].to_numpy()[some])
    assert area == pytest.approx(run["result"]["metrics"]["eval-auc"], abs=0.1)
    for place in ("here/run", "here/predictions"):
        assert place in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
