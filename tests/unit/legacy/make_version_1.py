"""Make the cases of `kept/` that end in -0.2: what dray 0.2 wrote in development (9b16f0e). Not to be run again.

Its run.json has no version yet, and the keys of every model. As in `make.py`, what lies in `kept/` stays as the code of
that commit made it; the data is that of `make.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dray
from unit.legacy.make import KEPT, without_places

COMMON: dict[str, Any] = {"data": "data/train.parquet", "workers": 0, "threads": 1, "seed": 5, "out": "run"}
TREES = {"label": "label", "ignore": ["id"], "rounds": 40, "eval_fraction": 0.25, "params": {"max_depth": 2}}
EVENTS = {"model": "factorization", "user": "user", "item": "item", "event": "type", "rounds": 3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "killed-0.2": ("binary", COMMON | TREES),
    "implicit-0.2": ("ratings", COMMON | EVENTS | {"params": {"factors": 4}, "eval_fraction": 0.2}),
}

KILLED = """
import os, signal, sys, time
from dray.config.run_file import make_config
from dray.elastic import worker
from dray.events.kinds import CheckpointWritten
from dray.learners.xgboost import ring
from dray.training.train import train

class KillItself:
    def event(self, event):
        if isinstance(event, CheckpointWritten) and event.round >= 10:
            os.kill(os.getpid(), signal.SIGKILL)
    def sample(self, samples): pass
    def close(self): pass

worker.CHECKPOINT_S, worker.CHECKPOINT_SHARE = 0.0, 1e9
agree = ring.agree
ring.agree = lambda flag: (time.sleep(0.05), agree(flag))[1]
train(make_config(eval(sys.argv[1])), sinks=[KillItself()])
"""


def main() -> None:
    for case, (data, settings) in CASES.items():
        with tempfile.TemporaryDirectory() as made:
            root = Path(made).resolve()
            os.chdir(root)
            shutil.copytree(KEPT / "data" / data, "data")
            if case.startswith("killed"):
                ended = subprocess.run([sys.executable, "-c", KILLED, repr(settings)], check=False)
                assert ended.returncode == -9, ended
            else:
                dray.train(**settings)
                columns = ["user", "item"]
                dray.predict("run", "data/eval.parquet", "predicted-eval.parquet", keep=columns, workers=0, threads=1)
            without_places(root)
            os.chdir("/")
            shutil.copytree(root, KEPT / case, ignore=shutil.ignore_patterns("data"))


if __name__ == "__main__":
    main()
