"""A run is gone on with where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.errors import ConfigError, DrayError, ModelError
from dray.jobs.anywhere import resume
from dray.jobs.commands.training import where_it_ran
from dray.storage import DEFAULT


def stored(place: Path, **fields: Any) -> str:
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"run": "1", "status": "stopped", **fields}))
    return str(place)


@pytest.mark.parametrize("word", ["auto", "local", "head:6379", "http://head:8265", "demo"])
def test_the_word_of_the_run_says_where(word: str) -> None:
    assert where_it_ran("run", {"config": {"cluster": word}, "job": "dray-1"}) == word


def test_a_run_that_was_elsewhere_does_not_go_on_here_by_itself(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", config={"cluster": "http://127.0.0.1:9"}, job="dray-1")
    with pytest.raises(DrayError, match=r"cannot go on at http://127.0.0.1:9: .*Nothing ") as caught:
        resume(run, DEFAULT, {})
    assert f"dray resume {run} --cluster local" in caught.value.fix


def test_a_run_on_a_cluster_that_is_forgotten_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "home"))
    run = stored(tmp_path / "run", config={"cluster": "demo"}, job="dray-1")
    with pytest.raises(DrayError, match="cannot go on at demo: "):
        resume(run, DEFAULT, {})


def test_a_run_of_a_job_with_a_cluster_of_its_own_says_how_to_go_on(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", config={"cluster": "auto"}, job="kubernetes/default/train-a")
    with pytest.raises(
        ConfigError, match="was the job train-a on Kubernetes, and its cluster ended with the job"
    ) as caught:
        resume(run, DEFAULT, {})
    assert "--cluster NAME" in caught.value.fix and "--cluster local" in caught.value.fix


@pytest.mark.parametrize("config", [None, {}, {"cluster": 3}, []])
def test_a_run_that_names_no_cluster_is_refused(config: Any) -> None:
    with pytest.raises(ModelError, match="does not say on which cluster"):
        where_it_ran("run", {"config": config})
