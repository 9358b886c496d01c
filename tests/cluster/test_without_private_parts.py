"""A Ray without any of the private parts that dray uses trains all the same, only slower."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import datasets
import dray

SCRIPT = """
import sys
import dray
from dray.clusters import ray_private

def gone(module, name=""):
    raise ray_private.MissingPartError(f"{module} {name}")

ray_private.part = gone
data, out = sys.argv[1:]
dray.train(data, label="label", ignore=["id", "weight"], rounds=3, workers=2, out=out, progress=False)
"""


def test_two_workers_train_the_same_model_with_every_private_part_missing(tmp_path: Path) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary())
    alone = dray.train(data, label="label", ignore=["id", "weight"], rounds=3, workers=0, out=str(tmp_path / "alone"))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, data, str(tmp_path / "run")],
        env={**os.environ, **token},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    together = dray.load(str(tmp_path / "run"))
    assert together.booster.get_dump() == alone.booster.get_dump()
    assert token["RAY_AUTH_TOKEN"] not in (tmp_path / "run" / "run.json").read_text()
