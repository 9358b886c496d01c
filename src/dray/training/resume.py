"""`dray resume`: go on with a run that ended before its time, to the same model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.config.run_file import ModelName, RunConfig, make_config
from dray.data.parquet import open_dataset
from dray.errors import ModelError
from dray.ingesting.cache import as_parquet
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
from dray.training.trained_on import DATA


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
        # A copy is named by what it was made from. Runs of 0.1 named it otherwise: of theirs, the files are compared.
        named_anew = "version" not in before and parquet != tuple(locations)
        was = {_name(name, named_anew): (rows, size) for name, rows, size in before[role]}
        found = {_name(name, named_anew): (rows, size) for name, rows, size in contents}
        for name in sorted(was.keys() | found.keys()):
            if was.get(name) != found.get(name):
                change = "is gone" if name not in found else "is new" if name not in was else "has changed"
                raise ModelError(
                    f"The data is not what it was when the run began: {name} {change}.",
                    fix="Put it back as it was, or train anew.",
                )


def _name(file: str, within_copy: bool) -> str:
    return file.rpartition("/")[2] if within_copy else file


def _changed_versions(before: Mapping[str, str], model: ModelName) -> list[str]:
    now = versions(model)
    return [
        f"{name} was {before[name]} when the run began and is {now[name]} now: the model may differ."
        for name in ("dray", LEARNERS[model], "numpy")
        if name in before and before[name] != now[name]
    ]
