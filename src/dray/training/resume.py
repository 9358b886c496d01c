"""`dray resume`: go on with a run that ended before its time, to the same model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.config.run_file import ModelName, RunConfig, make_config
from dray.data.parquet import open_dataset
from dray.errors import ModelError
from dray.ingesting.cache import as_parquet, same_rows
from dray.learners.factorization.settings import require_numba
from dray.mapping.engine import silence
from dray.storage import StorageOptions
from dray.telemetry.checkpoints import Checkpoints
from dray.telemetry.events import Sink
from dray.telemetry.run_directory import RunDirectory, open_resumable
from dray.training.conduct import conduct
from dray.training.keeper import as_standing
from dray.training.outcome import Result
from dray.training.run_steps import reading
from dray.training.train import LEARNERS, versions
from dray.training.trained_on import DATA, Contents


def resume(location: str, storage: StorageOptions, overrides: Mapping[str, Any], sinks: Sequence[Sink] = ()) -> Result:
    """Go on from the last checkpoint of a run, or from its beginning when there is none.

    `overrides` are keys of the run file that do not change the model: workers, threads, cluster, on_failure.
    """
    run = open_resumable(location, storage)
    checkpoint = Checkpoints(run).read()
    config = _config(run, storage, overrides)
    if config.model == "factorization":
        require_numba()
    data_storage = StorageOptions(**config.storage.model_dump())
    _refuse_changed_data(run, config, data_storage)  # before the run is touched
    directory = RunDirectory.reopen(location, storage, checkpoint)
    warnings = _changed_versions(run.document.get("versions") or {}, config.model)
    return conduct(config, data_storage, directory, sinks, standing=as_standing(checkpoint), resumed=warnings)


def _config(run: RunDirectory, storage: StorageOptions, overrides: Mapping[str, Any]) -> RunConfig:
    """The run's own configuration; where its data is reached may have changed with the machine."""
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
    values["storage"] = dict(values.get("storage") or {}) | given
    return make_config(values, origin=run.path("run.json"))


def _refuse_changed_data(run: RunDirectory, config: RunConfig, storage: StorageOptions) -> None:
    if not run.exists(DATA):  # it ended before it had looked at any
        return
    before = run.read_json(DATA)
    for role, locations in (("train", config.data), ("eval", config.eval)):
        parquet = as_parquet(locations, storage, reading(config), silence) if locations else ()
        contents = open_dataset(parquet, storage).contents if parquet else ()
        if parquet != tuple(locations):
            change = _change_of_copy(before[role], contents, storage)
        else:
            change = _change({name: rest for name, *rest in before[role]}, {name: rest for name, *rest in contents})
        if change is not None:
            raise ModelError(
                f"The data is not what it was when the run began: {change}.",
                fix="Put it back as it was, or train anew.",
            )


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


def _changed_versions(before: Mapping[str, str], model: ModelName) -> list[str]:
    now = versions(model)
    return [
        f"{name} was {before[name]} when the run began and is {now[name]} now: the model may differ."
        for name in ("dray", LEARNERS[model], "numpy")
        if name in before and before[name] != now[name]
    ]
