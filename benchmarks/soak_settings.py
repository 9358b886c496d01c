"""The few trainings of a soak: small data of every task, and the digest that each must come to."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import measure

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import datasets

ROWS = 30_000
ROW_GROUP_ROWS = 1500
_BESIDES = ["--ignore", "id", "--ignore", "weight", "--param", "max_depth=7"]
# Slow learning and deep trees: the rounds shall take long enough for something to happen in them.
ARGUMENTS: Mapping[str, list[str]] = {
    "binary": ["--rounds", "400", "--param", "eta=0.04", "--eval-fraction", "0.2", "--early-stop", "15"],
    "multiclass": ["--rounds", "100", "--param", "eta=0.1"],
    "regression": ["--rounds", "250", "--param", "colsample_bytree=0.6"],
    "ranking": ["--rounds", "220", "--group", "query", "--objective", "ranking"],
}


class Settings:
    """Makes data and digests as they are needed."""

    def __init__(self, directory: Path, env: Mapping[str, str], dray: str) -> None:
        self._directory = directory
        self._env = env
        self._dray = dray
        self._digests: dict[str, str] = {}
        self.rounds: dict[str, int] = {}

    def arguments(self, setting: str) -> list[str]:
        """Return the arguments of `dray` for this training, the workers left out."""
        place = self._directory / setting
        if not place.is_dir():
            table = getattr(datasets, setting)(ROWS)
            datasets.write(place, table, files=4, row_group_rows=ROW_GROUP_ROWS)
        return ["train", str(place), "--label", "label", *ARGUMENTS[setting], *_BESIDES]

    def digest(self, setting: str) -> str:
        """Return the digest of the training in one process."""
        if setting not in self._digests:
            out = self._directory / f"{setting}-alone"
            command = [self._dray, *self.arguments(setting), "--workers", "0", "--out", str(out), "--json"]
            done = subprocess.run(command, env=dict(self._env), capture_output=True, text=True, check=False)
            if done.returncode:
                raise measure.CommandFailedError(
                    f"{setting} in one process: exit code {done.returncode}\n{done.stderr}"
                )
            result = json.loads(done.stdout)
            if not result["identity"]["holds"]:
                raise measure.CommandFailedError(f"{setting} promises no digest: {result['identity']['why']}")
            self._digests[setting], self.rounds[setting] = result["model_digest"], result["rounds"]
        return self._digests[setting]
