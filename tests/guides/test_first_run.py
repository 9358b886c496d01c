"""The example that `make run` runs, from end to end."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_run" / "run.sh"


def test_the_first_run_goes_from_a_csv_file_to_predictions_with_one_model_here_and_on_workers(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(EXAMPLE), "here"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here, there = (json.loads((tmp_path / "here" / run / "run.json").read_text()) for run in ("run", "run_on_workers"))
    assert (here["status"], here["result"]["workers"], there["result"]["workers"]) == ("finished", 0, 2)
    assert here["result"]["model_digest"] == there["result"]["model_digest"]
    told = here["result"]
    assert told["metrics"]["eval-rmse"] < 0.4 * told["baseline"]["eval-rmse"]
    assert told["rows"] + told["eval_rows"] == 2 * 365 * 24
    with (tmp_path / "here" / "predictions.csv").open() as file:
        hours = list(csv.DictReader(file))
    assert list(hours[0]) == ["time", "prediction"]
    assert len(hours) == 7 * 24
    by_hour = [sum(float(row["prediction"]) for row in hours[at::24]) for at in range(24)]
    assert by_hour[17] > 5 * by_hour[3]  # people ride home, not at night
    for said in ("What matters", "time_hour", "one digest for both", "here/run", "here/predictions.csv"):
        assert said in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
