"""Every command travels as JSON and comes out as it was; what cannot travel is refused before anything is sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dray
from dray.cli.map import map_
from dray.cli.recommend import recommend
from dray.clusters.resolve import Attached
from dray.errors import ConfigError
from dray.ingesting.limits import Limit
from dray.ingesting.recipe import HashSplit, Recipe, TimeSplit
from dray.ingesting.written import IngestResult
from dray.jobs.command import read_command, task_of
from dray.jobs.commands import recommending
from dray.jobs.commands.ingesting import Ingest
from dray.jobs.commands.mapping import Map
from dray.jobs.commands.predicting import Predict
from dray.jobs.commands.recommending import Recommend
from dray.jobs.shared import Head
from recommender_run import write_run

HERE = Head("lab", (os.getpid(),))
ELSEWHERE = Head("http://far:8265", ())
RECIPES = [
    Recipe(columns=("a",), dedup=(), sort=("-a",), split=HashSplit(share=0.2, columns=("b",), seed=3)),
    Recipe(filter="a > 1", partition_by=("a",), split=TimeSplit(column="t", moment="2026-01-01")),
    Recipe(dedup=("a", "b"), max_rejects=Limit(rows=7)),
]


def sent(command: Any) -> Any:
    """Return the command as the head gets it."""
    return read_command(json.loads(task_of(command, HERE).contents("dray-1", None)[".dray/job.json"]))


def test_a_prediction_travels_with_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = Predict(model="run", data="rows.csv", out="out", cache="s3://b/c", keep=["id"], workers=2, cluster="lab")
    there = sent(command)
    assert (there.model, there.data, there.out) == (f"{tmp_path}/run", [f"{tmp_path}/rows.csv"], f"{tmp_path}/out")
    assert (there.cache, there.keep, there.workers, there.cluster) == ("s3://b/c", ["id"], 2, "lab")
    assert there.storage == command.storage


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_travels_as_it_is(tmp_path: Path, recipe: Recipe) -> None:
    there = sent(Ingest(data=[str(tmp_path)], out=str(tmp_path / "out"), recipe=recipe, word="lab"))
    assert there.recipe == recipe
    assert (there.where, there.word) == ("cluster", "lab")


@pytest.mark.parametrize("data", [pa.table({"x": [1]}), pd.DataFrame({"x": [1]}), [pa.table({"x": [1]})]])
def test_a_table_of_this_process_is_refused(tmp_path: Path, data: Any) -> None:
    for command in (
        Predict(model="run", data=data, out="out"),
        Ingest(data=data, out=str(tmp_path / "out"), recipe=Recipe()),
        Recommend(model="run", events=data),
    ):
        with pytest.raises(ConfigError, match=r"is a (Table|DataFrame) in this process") as caught:
            task_of(command, HERE)
        assert "Write it to storage that the cluster reaches" in caught.value.fix


def test_paths_that_the_head_does_not_see_are_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for command in (
        Predict(model="s3://b/run", data="s3://b/rows", out=out),
        Recommend(model="s3://b/run", out=out),
        Recommend(model="s3://b/run", users=str(tmp_path / "ids.txt")),
        Ingest(data="s3://b/rows", out=out, recipe=Recipe()),
        Map(function="json:dumps", data=["s3://b/rows"], out=out),
    ):
        with pytest.raises(ConfigError, match="a path of this machine, and the command runs at"):
            task_of(command, ELSEWHERE)


def test_options_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    command = Ingest(data=str(tmp_path), out=str(tmp_path), recipe=Recipe(), read={"types": {"x": pa.int8()}})
    with pytest.raises(ConfigError, match="takes locations of data and plain values"):
        task_of(command, HERE)


def test_a_secret_does_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "0123456789abcdef")
    recipe = Recipe(filter='key == "0123456789abcdef"')
    with pytest.raises(ConfigError, match="The command holds the value of the environment variable MY_API_KEY"):
        task_of(Ingest(data=str(tmp_path), out=str(tmp_path), recipe=recipe), HERE)


def test_ids_travel_as_text_and_numbers_and_a_list_comes_back_as_it_was(tmp_path: Path) -> None:
    run = write_run(str(tmp_path / "shop"), text=False)
    command = Recommend(model=run, users=pa.array([7, 1]), items="3,4,5", top=2)
    there = sent(command)
    assert (there.users, there.items) == ([7, 1], "3,4,5")
    result = Recommend(model=run, users=[7, 1], top=2).execute(Attached("local"), [], job="dray-1")
    told = json.loads(json.dumps(result.to_json()))
    table = command.result_of(told).table
    assert table is not None and table.equals(result.table)


def test_lists_too_long_to_tell_are_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommending, "MOST_BYTES", 100)
    result = Recommend(model=write_run(str(tmp_path / "shop"))).execute(Attached("local"), [], job="dray-1")
    with pytest.raises(ConfigError, match="a job returns at most 100") as caught:
        result.to_json()
    assert "--out" in caught.value.fix


def test_the_functions_directory_goes_along_without_data_and_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packed_functions.py").write_text("def count(batch): return batch.num_rows\n")
    (tmp_path / "notes.md").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("x\n1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = Map(function="packed_functions:count", data=["data"], out="out", word="lab", excludes=("*.md",))
    task = task_of(command, HERE)
    assert [file.name for file in task.files] == ["packed_functions.py"]
    assert task.order["code"] is True
    ingest = Ingest(data="data", out="out", recipe=Recipe(transform="packed_functions:count"), word="lab")
    assert [file.name for file in task_of(ingest, HERE).files] == ["notes.md", "packed_functions.py"]
    with pytest.raises(ConfigError, match="is not the working directory"):
        task_of(Map(function="packed_functions:count", data=["data"], out="out", working_dir="data"), HERE)


def test_an_installed_function_needs_no_code(tmp_path: Path) -> None:
    task = task_of(Map(function="json:dumps", data=[str(tmp_path)], out=str(tmp_path / "out")), HERE)
    assert (task.files, task.order["code"]) == ((), False)


def test_a_transform_of_this_process_is_refused(tmp_path: Path) -> None:
    def inner(batch: Any) -> Any:
        return batch

    for function in (inner, lambda batch: batch):
        with pytest.raises(ConfigError, match="exists in this process only"):
            task_of(Ingest(data=str(tmp_path), out=str(tmp_path), recipe=Recipe(), function=function), HERE)


@pytest.mark.parametrize("where", ["here", "processes"])
def test_this_machine_and_a_cluster_elsewhere_exclude_each_other(tmp_path: Path, where: Any) -> None:
    for command in (
        Map(function="json:dumps", data=[str(tmp_path)], out=str(tmp_path / "out"), where=where),
        Ingest(data=str(tmp_path), out=str(tmp_path / "out"), recipe=Recipe(), where=where),
    ):
        with pytest.raises(ConfigError, match=f'where is "{where}", on this machine'):
            task_of(command, HERE)


def test_questions_that_need_this_machine_say_so() -> None:
    found = CliRunner().invoke(recommend, ["run", "--similar-to", "lamp", "--cluster", "http://far:8265"]).exception
    assert isinstance(found, ConfigError) and "Leave out --cluster" in found.fix
    found = CliRunner().invoke(map_, ["json:dumps", "data", "out", "--dry-run", "--cluster", "lab"]).exception
    assert isinstance(found, ConfigError) and "--dry-run measures on this machine" in found.what
    with pytest.raises(ConfigError, match="lab takes jobs") as caught:
        dray.map(str, [1], cluster="lab")
    assert "dray map MODULE:FUNCTION DATA OUT --cluster lab" in caught.value.fix


def test_a_result_that_a_job_told_is_that_result(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n2\n")
    command = Ingest(data=str(tmp_path / "rows.csv"), out=str(tmp_path / "out"), recipe=Recipe())
    result = command.execute(Attached("local"), [])
    assert isinstance(result, IngestResult)
    assert command.result_of(json.loads(json.dumps(result.to_json()))) == result


def test_recommending_mapping_and_ingesting_load_no_learner_of_trees() -> None:
    modules = ", ".join(f"dray.jobs.commands.{name}" for name in ("recommending", "mapping", "ingesting"))
    code = f"import sys, {modules}; assert not {{'xgboost', 'ray'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
