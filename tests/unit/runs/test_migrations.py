"""Documents of earlier versions, as the code of then wrote them, and those of later ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.errors import ModelError
from dray.jobs.commands.training import Train
from dray.learners.configs import make_config
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.xgboost.config import XGBoostConfig
from dray.runs.directory import RunDirectory, open_run
from dray.runs.listing import list_runs
from dray.runs.migrations import VERSION, held_out_by, migrated, own_keys

KEPT = Path(__file__).parents[1] / "legacy" / "kept"
EARLIER = sorted(path.parents[1].name for path in KEPT.glob("*/run/run.json"))


def stored(case: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((KEPT / case / "run" / "run.json").read_text())
    return document


@pytest.mark.parametrize("case", EARLIER)
def test_an_earlier_run_has_the_keys_of_its_own_model(case: str) -> None:
    before = stored(case)
    assert "version" not in before and {"label", "user"} <= before["config"].keys()
    document = open_run(str(KEPT / case / "run")).document
    config = make_config(document["config"])
    assert isinstance(config, XGBoostConfig if before["config"]["model"] == "xgboost" else FactorizationConfig)
    now = json.loads(config.model_dump_json())
    assert now == {**now, **document["config"]}
    assert (document["version"], config.split_seed) == (VERSION, before["config"]["seed"])


@pytest.mark.parametrize("case", EARLIER)
def test_a_job_of_an_older_driver_is_read(case: str) -> None:
    sent = stored(case)["config"]
    config = Train.from_json(sent).config
    assert (config.model, config.split_seed) == (sent["model"], sent["seed"])
    assert Train.from_json(Train(config).to_json()).config == config


def test_a_new_run_has_the_version(tmp_path: Path) -> None:
    RunDirectory.create(str(tmp_path / "run")).close()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["version"] == VERSION == 2


def test_what_is_of_this_version_stays_as_it_is() -> None:
    document = {"version": VERSION, "run": "r", "config": {"model": "ridge", "label": "y", "seed": 1, "split_seed": 2}}
    assert migrated(document, "run.json") == document
    assert own_keys(document["config"]) == document["config"]


def test_a_later_version_is_refused_in_words(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    later = stored("binary") | {"version": VERSION + 1, "dray_version": "9.1.0"}
    (run / "run.json").write_text(json.dumps(later))
    with pytest.raises(
        ModelError, match=r"is of version 3, written by dray 9\.1\.0.*reads versions up to 2.*--upgrade"
    ):
        open_run(str(run))
    [listed] = list_runs(str(tmp_path))
    assert listed.status == "broken" and "version 3" in str(listed.problem)


@pytest.mark.parametrize("version", ["2", 0, None, True, 1.5])
def test_a_version_that_is_none_is_damage(version: Any) -> None:
    with pytest.raises(ModelError, match="its version is"):
        migrated({"version": version, "config": None}, "run.json")


def test_the_seed_of_a_split_was_called_seed() -> None:
    assert held_out_by({"eval_fraction": 0.2, "seed": 3}) == {"eval_fraction": 0.2, "split_seed": 3}
    assert held_out_by({"eval_last": 2}) == {"eval_last": 2}
    assert held_out_by(None) is None
