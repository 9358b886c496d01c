"""A run in one process, interrupted for real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_training_in_order(tmp_path: Path, number: signal.Signals, code: int) -> None:
    values = np.random.default_rng(0).normal(size=(20_000, 3))
    table = pa.table({"a": values[:, 0], "b": values[:, 1], "y": (values.sum(axis=1) > 0).astype(int)})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=5_000)
    command = [sys.executable, "-c", "import sys; from dray.cli.main import main; sys.exit(main())", "train"]
    options = ["--label", "y", "--rounds", "1000000", "--workers", "0", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [*command, str(tmp_path / "data.parquet"), *options], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    events = tmp_path / "run" / "events.jsonl"
    deadline = time.monotonic() + 60
    while not (events.exists() and '"kind": "round"' in events.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, words = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in words
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert (tmp_path / "run" / "checkpoints" / "latest.json").exists()
