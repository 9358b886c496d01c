"""What a job shall do, as it is packed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dray.errors import ConfigError, StorageError
from dray.jobs.command import task_of
from dray.jobs.commands.training import Train
from dray.jobs.shared import Head
from dray.jobs.task import ENTRYPOINT, Options, script
from dray.learners.configs import make_config

HERE = Head("http://127.0.0.1:8265", (os.getpid(),))


def test_a_scripts_directory_goes_along_and_its_arguments_are_in_the_package(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("")
    (tmp_path / "helper.py").write_text("")
    task = script(str(tmp_path / "main.py"), ["--x", "1"])
    assert [file.name for file in task.files] == ["helper.py", "main.py"]
    order = json.loads(task.contents("dray-1", 60.0)[".dray/job.json"])
    assert (order["script"], order["arguments"], order["timeout_s"]) == ("main.py", ["--x", "1"], 60.0)
    assert "main.py" not in ENTRYPOINT


def test_a_working_directory_above_the_script_keeps_its_path(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "main.py").write_text("")
    assert script(str(tmp_path / "jobs" / "main.py"), working_dir=str(tmp_path)).order["script"] == "jobs/main.py"
    with pytest.raises(ConfigError, match="not in the working directory"):
        (tmp_path / "other").mkdir()
        script(str(tmp_path / "jobs" / "main.py"), working_dir=str(tmp_path / "other"))


def test_bad_scripts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "main.py").write_text("")
    with pytest.raises(ConfigError, match="There is no script"):
        script(str(tmp_path / "gone.py"))
    with pytest.raises(ConfigError, match="would not be sent"):
        script(str(tmp_path / "main.py"), excludes=["*.py"])
    with pytest.raises(ConfigError, match="There is no directory"):
        script(str(tmp_path / "main.py"), working_dir=str(tmp_path / "gone"))
    monkeypatch.setenv("MY_API_KEY", "0123456789abcdef")
    with pytest.raises(ConfigError, match="An argument holds the value of the environment variable MY_API_KEY"):
        script(str(tmp_path / "main.py"), ["--key=0123456789abcdef"])


@pytest.mark.parametrize("options", [Options(timeout_s=0), Options(timeout_s=float("nan")), Options(retries=-1)])
def test_bad_options_are_refused(options: Options) -> None:
    with pytest.raises(ConfigError):
        options.check()


def test_a_run_carries_its_configuration_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecretverysecret")
    config = make_config({"data": [str(tmp_path)], "label": "y", "out": str(tmp_path / "run")})
    contents = task_of(Train(config), HERE).contents("dray-1", None)
    order = json.loads(contents[".dray/job.json"])
    assert order["values"]["out"] == str(tmp_path / "run")
    assert not any(b"verysecretverysecret" in content for content in contents.values())
    with pytest.raises(ConfigError, match="holds the value of the environment variable AWS_SECRET_ACCESS_KEY"):
        task_of(Train(make_config({"data": [str(tmp_path)], "label": "verysecretverysecret"})), HERE)


def test_a_recommenders_run_is_checked_here_and_carries_its_configuration(tmp_path: Path) -> None:
    values = {"data": [str(tmp_path)], "model": "factorization", "user": "u", "item": "i", "out": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match='no parameter "factr"'):
        task_of(Train(make_config(values | {"params": {"factr": 3}})), HERE)
    order = json.loads(task_of(Train(make_config(values)), HERE).contents("dray-1", None)[".dray/job.json"])
    assert make_config(order["values"]) == make_config(values | {"cluster": HERE.url})


def test_an_output_on_a_store_that_cannot_be_reached_is_refused_before_anything_is_submitted(tmp_path: Path) -> None:
    values = {"data": [str(tmp_path)], "label": "y", "out": "s3://bucket/run"}
    config = make_config(values | {"storage": {"endpoint": "http://127.0.0.1:9"}})
    with pytest.raises(StorageError, match="cannot be reached"):
        task_of(Train(config), HERE)
