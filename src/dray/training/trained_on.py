"""Which rows a model has been trained on, so that nobody takes them for new ones. Pure but for reading a run.

Kept in data.json, run after run: the files, and which of their rows were held out. A row is known by its file and its
position; files are known by name, rows and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dray.data.split import Split
from dray.errors import ConfigError
from dray.telemetry.run_directory import RunDirectory

DATA = "data.json"
Contents = Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """What one run was trained on."""

    run: str
    files: tuple[tuple[str, int, int], ...]
    """Name, rows and bytes of each, in order."""
    split: Split | None
    """The rows that were held out."""

    def to_json(self) -> dict[str, Any]:
        held_out = None if self.split is None else {"fraction": self.split.fraction, "seed": self.split.seed}
        return {"run": self.run, "files": self.files, "split": held_out}

    @staticmethod
    def from_json(document: dict[str, Any]) -> TrainedOn:
        files = tuple((str(name), int(rows), int(size)) for name, rows, size in document["files"])
        return TrainedOn(document["run"], files, Split(**document["split"]) if document["split"] else None)


def trained_on(run: RunDirectory) -> tuple[TrainedOn, ...]:
    """Return what a finished run's model has seen: in that run, and in those that it went on from."""
    if not run.exists(DATA):
        return ()
    document, config = run.read_json(DATA), run.document["config"]
    fraction = config.get("eval_fraction")
    split = None if fraction is None else Split(fraction, config["seed"])
    own = TrainedOn.from_json({"run": run.run, "files": document["train"], "split": None})
    earlier = tuple(map(TrainedOn.from_json, document.get("earlier", ())))
    return (*earlier, TrainedOn(own.run, own.files, split))


def require_held_out(earlier: Sequence[TrainedOn], train: Contents, split: Split | None, evaluation: Contents) -> bool:
    """Say whether all evaluation rows are known to be new to the model; refuse if some are known not to be.

    Evaluation rows are those that `split` holds out of `train`, or all of `evaluation`.
    """
    for run in earlier:
        seen = dict(_placed(run.files))
        for file, position in _placed(train if split is not None else evaluation):
            if file not in seen or (split is not None and split == run.split and position == seen[file]):
                continue
            raise ConfigError(
                f"{file[0]} is to be evaluated on, but the run {run.run} was trained on "
                f"{'all of it' if run.split is None else 'most of it'}: the metrics would be those of known rows.",
                fix=_fix(run, split),
            )
    files = {file for run in earlier for file in run.files}
    return split is not None and all(file in files for file in map(tuple, train))


def _fix(run: TrainedOn, split: Split | None) -> str:
    if run.split is None or split is None:
        return "Evaluate on other data with --eval, or leave the evaluation out."
    same = f"--eval-fraction {run.split.fraction:g} --seed {run.split.seed}"
    return f"Hold out the same rows, by the same data with {same}; or evaluate on other data with --eval."


def _placed(files: Contents) -> Iterator[tuple[tuple[str, int, int], int]]:
    """Yield each file with the position of its first row."""
    position = 0
    for name, rows, size in files:
        yield (name, rows, size), position
        position += rows
