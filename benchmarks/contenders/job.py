"""What every contender is asked to do, and how it answers: one JSON document on the last line of stdout."""

import argparse
import json
import time
from pathlib import Path

LABEL = "label"
PARAMS = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data", type=Path, help="directory of Parquet files")
    arguments.add_argument("out", type=Path, help="the model to write")
    arguments.add_argument("--rounds", type=int, default=100)
    return arguments


class Stopwatch:
    """Names the seconds since the last call."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def report(self, **seconds: float) -> None:
        print(json.dumps({"seconds": {**self.seconds, **seconds}}), flush=True)
