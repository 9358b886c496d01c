"""An XGBoost callback that writes down who trains which round, so that a benchmark knows whom to kill, and when."""

import json
import os
from pathlib import Path
from typing import Any

from xgboost import Booster
from xgboost.callback import TrainingCallback


class Progress(TrainingCallback):
    """Appends a line at the begin of a training and after every round."""

    def __init__(self, file: Path, rank: int | None = None) -> None:
        self._file = file
        self._rank = rank

    def before_training(self, model: Booster) -> Booster:
        self._append(model, begun=True)
        return model

    def after_iteration(self, model: Booster, epoch: int, evals_log: dict[str, Any]) -> bool:  # noqa: ARG002
        self._append(model, begun=False)
        return False

    def _append(self, model: Booster, *, begun: bool) -> None:
        from xgboost import collective

        rank = collective.get_rank() if self._rank is None else self._rank
        line = {"rank": rank, "pid": os.getpid(), "round": model.num_boosted_rounds(), "begun": begun}
        with self._file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
