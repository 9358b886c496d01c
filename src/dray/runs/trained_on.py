"""Which rows a model has been trained on, so that they are not taken for new ones. Pure but for reading a run.

Kept in data.json, run after run: the files, and how rows were held out of them. A row is known by its file and its
position; files are known by name, rows and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.errors import DAMAGE, ConfigError, ModelError
from dray.runs.directory import RunDirectory
from dray.runs.files import RunFiles
from dray.runs.migrations import held_out_by

DATA = "data.json"
UNKNOWN = (
    "It is not known whether the evaluation rows are new to the model: the earlier run was trained on other files, "
    "which may hold the same rows."
)
UNKNOWN_FILES = "?"
Contents = Sequence[tuple[str, int, int]]
HeldOut = Mapping[str, Any]
"""The keys of a run file that say which rows are held out, those that are not left out."""


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """What one run was trained on."""

    run: str
    files: tuple[tuple[str, int, int], ...]
    """Name, rows and bytes of each, in order."""
    held_out: HeldOut | None
    """How some of the rows were held out; None: all were trained on."""

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "files": self.files, "held_out": self.held_out}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> TrainedOn:
        files = tuple((str(name), int(rows), int(size)) for name, rows, size in document["files"])
        return TrainedOn(document["run"], files, held_out_by(document["held_out"]))


def held_out(config: Mapping[str, Any]) -> HeldOut | None:
    """Return what the configuration of a run says of rows to be held out."""
    if config.get("eval_last") is not None:
        return {"eval_last": config["eval_last"]}
    if config.get("eval_from") is not None:
        return {"eval_by": config["eval_by"], "eval_from": config["eval_from"]}
    if config.get("eval_fraction") is None:
        return None
    if config.get("eval_by") not in (None, "random"):
        return {"eval_fraction": config["eval_fraction"], "eval_by": config["eval_by"]}
    group = {} if config.get("split_by") is None else {"split_by": config["split_by"]}
    stratify = {"stratify": True} if config.get("stratify") and not group else {}
    return {"eval_fraction": config["eval_fraction"], "split_seed": config["split_seed"], **group, **stratify}


def as_split(how: HeldOut | None, earlier: Sequence[TrainedOn], *, classes: bool) -> HeldOut | None:
    """Return how rows are held out in the end: not by class where there are none, nor where an earlier run did not.

    A run that goes on with the share of an earlier one goes on with its rows.
    """
    if how is None or "stratify" not in how:
        return how
    plain = {key: value for key, value in how.items() if key != "stratify"}
    return how if classes and all(run.held_out != plain for run in earlier) else plain


def read_data(run: RunFiles) -> dict[str, Any]:
    """Return what a run noted down of its data. What cannot be that is a ModelError."""
    document = run.read_json(DATA)
    try:
        earlier = [seen["files"] for seen in document.get("earlier", ())]
        for files in (document["train"], document["eval"], *earlier):
            for name, rows, size in files:
                if not (isinstance(name, str) and isinstance(rows, int) and isinstance(size, int)):
                    raise TypeError(name)
        for mark in document.get("files", {}).values():
            if not (isinstance(mark["footer"], str) and isinstance(mark["stamp"], list)) or "content" not in mark:
                raise TypeError(mark)
        if not all(isinstance(copy, str) for copy in document.get("copies", {}).values()):
            raise TypeError(document["copies"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ModelError(
            f"{run.path(DATA)} is damaged: it does not tell which files the run was trained on.",
            fix="Put the file back if there is a copy, or train again.",
        ) from error
    return dict(document)


def trained_on(run: RunDirectory) -> tuple[TrainedOn, ...]:
    """Return what a finished run's model has seen: in that run, and in those that it went on from."""
    if not run.exists(DATA):
        return ()
    document, config = read_data(run), run.document["config"]
    if config is None:
        raise run.damaged("run.json", "its configuration is gone")
    earlier = document.get("earlier", ())
    if not earlier and config.get("continue_from"):  # runs of 0.1 did not keep what came before them
        earlier = [{"run": config["continue_from"], "files": [(UNKNOWN_FILES, 0, 0)], "held_out": None}]
    try:
        own = {"run": run.run, "files": document["train"], "held_out": held_out(config)}
        return tuple(map(TrainedOn.from_json, (*earlier, own)))
    except DAMAGE as error:
        raise run.damaged("run.json", f"{type(error).__name__} {error}") from error


def require_held_out(earlier: Sequence[TrainedOn], train: Contents, how: HeldOut | None, evaluation: Contents) -> bool:
    """Say whether all evaluation rows are known to be new to the model; refuse if some are known not to be.

    Evaluation rows are those that `how` holds out of `train`, or all of `evaluation`.
    """
    for run in earlier:
        seen, whole = dict(_placed(run.files)), list(map(tuple, run.files)) == list(map(tuple, train))
        for file, position in _placed(evaluation if how is None else train):
            same = how is not None and how == run.held_out and position == seen.get(file)
            if file not in seen or (same and (not _by_all_rows(how) or whole)):
                continue
            raise ConfigError(
                f"{file[0]} is to be evaluated on, but the run {run.run} was trained on "
                f"{'all of it' if run.held_out is None else 'most of it'}: the metrics would be those of known rows.",
                fix=_fix(run.held_out, how),
            )
    # Other files, before or now, may hold the same rows under another name.
    seen_files, now = {file for run in earlier for file in run.files}, {tuple(file) for file in train}
    return how is not None and seen_files == now


def _fix(before: HeldOut | None, how: HeldOut | None) -> str:
    if before is None or how is None:
        return "Evaluate on other data with --eval, or leave the evaluation out."
    given = {key: value for key, value in before.items() if key != "stratify"}
    same = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in given.items())
    if before.get("stratify") != how.get("stratify"):
        same += " --stratify" if before.get("stratify") else " --no-stratify"
    return f"Hold out the same rows, by the same data with {same}; or evaluate on other data with --eval."


def _by_all_rows(how: HeldOut | None) -> bool:
    """Whether further rows change which of the others are held out."""
    return how is not None and "stratify" in how


def _placed(files: Contents) -> Iterator[tuple[tuple[str, int, int], int]]:
    """Yield each file with the position of its first row."""
    position = 0
    for name, rows, size in files:
        yield (name, rows, size), position
        position += rows
