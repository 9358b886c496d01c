"""`dray resume`: go on with a run that ended before its time, to the same model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.batch.engine import silence
from dray.config.run_file import RunConfig
from dray.data.parquet import Dataset, open_dataset
from dray.elastic.checkpoint_writer import as_checkpoint
from dray.errors import ModelError
from dray.events.telemetry import Sink
from dray.ingesting.cache import as_parquet, copy_key, is_query, same_rows
from dray.learners.configs import make_config
from dray.learners.registry import find
from dray.learners.result import RunResult
from dray.runs.checkpoints import Checkpoints
from dray.runs.directory import RunDirectory, open_resumable
from dray.runs.trained_on import DATA, Contents, read_data
from dray.storage import StorageOptions
from dray.training.checks import require_library
from dray.training.run import run as run_training
from dray.training.run_data import reading, reading_of_eval
from dray.training.same_data import first_change
from dray.training.train import versions


def resume(
    location: str, storage: StorageOptions, overrides: Mapping[str, Any], sinks: Sequence[Sink] = ()
) -> RunResult:
    """Go on from the last checkpoint of a run, or from its beginning when there is none.

    `overrides` are keys of the run file that do not change the model: workers, threads, cluster, on_failure.
    """
    run = open_resumable(location, storage)
    checkpoint = Checkpoints(run).read()
    config = _config(run, storage, overrides)
    require_library(config.model)
    data_storage = StorageOptions(**config.storage.model_dump())
    _refuse_changed_data(run, config, data_storage)  # before the run is touched
    directory = RunDirectory.reopen(location, storage, checkpoint)
    warnings = _changed_versions(run.document.get("versions") or {}, config.model)
    return run_training(config, data_storage, directory, sinks, latest=as_checkpoint(checkpoint), resumed=warnings)


def _config(run: RunDirectory, storage: StorageOptions, overrides: Mapping[str, Any]) -> RunConfig:
    """The run's own configuration; where its data is reached may have changed with the machine."""
    if run.document["config"] is None:
        raise run.damaged("run.json", "its configuration is gone")
    values = dict(run.document["config"]) | dict(overrides)
    given = {
        name: value
        for name, value in (
            ("endpoint", storage.endpoint),
            ("region", storage.region),
            ("profile", storage.profile),
            ("role", storage.role),
        )
        if value is not None
    }
    if not isinstance(values.get("storage"), dict | None):
        raise run.damaged("run.json", f'"storage" is {str(values["storage"])[:40]!r}')
    values["storage"] = dict(values.get("storage") or {}) | given
    return make_config(values, origin=run.path("run.json"))


def _refuse_changed_data(run: RunDirectory, config: RunConfig, storage: StorageOptions) -> None:
    if not run.exists(DATA):  # it ended before it had looked at any
        return
    before = read_data(run)
    opened = None
    for role, locations in (("train", config.data), ("eval", config.eval)):
        how = reading(config, before.get("copies"))
        if opened is not None and locations:  # the training data was opened before
            how = reading_of_eval(config, opened, how, storage)
        if is_query(locations, how) and copy_key(locations) not in how.copies:
            raise ModelError(
                f"The run was begun on rows of {copy_key(locations)}, and does not know where they were copied to.",
                fix="Train anew: a database does not give the rows of that moment again.",
            )
        parquet = as_parquet(locations, storage, how, silence) if locations else ()
        opened = open_dataset(parquet, storage) if parquet else None
        if opened is not None and parquet != tuple(locations) and not is_query(locations, how):
            change = _change_of_copy(before[role], opened.contents, storage)
        else:
            change = _change_of_files(before, role, opened)
        if change is not None:
            raise ModelError(
                f"The data is not what it was when the run began: {change}.",
                fix="Put it back as it was, or train anew.",
            )


def _change_of_files(before: Mapping[str, Any], role: str, dataset: Dataset | None) -> str | None:
    contents = () if dataset is None else dataset.contents
    change = _change({name: rest for name, *rest in before[role]}, {name: rest for name, *rest in contents})
    return change if change is not None or dataset is None else first_change(before.get("files", {}), dataset)


def _change(was: Mapping[str, list[int]], found: Mapping[str, list[int]]) -> str | None:
    for name in sorted(was.keys() | found.keys()):
        if name not in found:
            return f"{name} is gone"
        if name not in was:
            return f"{name} is new"
        if was[name] != found[name]:
            return f"{name} has changed"
    return None


def _change_of_copy(before: Contents, now: Contents, storage: StorageOptions) -> str | None:
    """A copy has another name when its source was only moved or touched: what is in it counts, so it must be there."""
    was, found = ({name.rpartition("/")[2]: (name, rows) for name, rows, _ in files} for files in (before, now))
    for name in sorted(was.keys() | found.keys()):
        if name not in found or name not in was or was[name][1] != found[name][1]:
            return f"{(found.get(name) or was[name])[0]} holds other rows"
        if not same_rows(was[name][0], found[name][0], storage):
            return f"{found[name][0]} has changed, or the copy that the run was begun on is gone"
    return None


def _changed_versions(before: Mapping[str, str], model: str) -> list[str]:
    now = versions(model)
    return [
        f"{name} was {before[name]} when the run began and is {now[name]} now: the model may differ."
        for name in ("dray", find(model).library, "numpy")
        if name in before and before[name] != now[name]
    ]
