"""Every mistake is told with what and fix, ends with exit code 2, and leaves nothing half-written behind."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datasets
import dray
from dray.cli.main import main
from s3_server import S3Server

Refused = Callable[..., str]
TRAIN = ("train", "data", "--label", "label", "--workers", "0", "--rounds", "2", "--out", "runs/one")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own to work in, with a place for temporary files that is looked at too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refused:
    """Run a command that must be refused with these words; return all it said."""

    def check(arguments: Sequence[str], *words: str) -> str:
        before = everything(tmp_path)
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        assert code == 2, captured.err
        lines = captured.err.splitlines()
        [error] = [index for index, line in enumerate(lines) if line.startswith("Error: ")]
        assert lines[error + 1].startswith("Fix: ")
        told = "\n".join(lines[error:])
        assert "Traceback" not in captured.err
        assert "Stack trace" not in captured.err
        for word in words:
            assert word.lower() in told.lower()
        if "--json" in arguments:
            document = json.loads(captured.out)["error"]
            assert document["what"] in told
            assert document["fix"] in told
        else:
            assert captured.out == ""
        assert everything(tmp_path) == before
        return told

    return check


def everything(directory: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


def write(table: pa.Table, **layout: Any) -> pa.Table:
    datasets.write(Path("data"), table, **layout)
    return table


def small(**changed: Any) -> pa.Table:
    """300 rows, some columns changed."""
    return datasets.replaced(datasets.binary(300).drop_columns(["id", "weight"]), **changed)


def with_value(values: list[Any], value: Any, row: int = 100) -> list[Any]:
    return [*values[:row], value, *values[row + 1 :]]


# The data


def test_an_unreadable_file(refused: Refused) -> None:
    write(small())
    Path("data/part-1.parquet").write_text("a,b\n1,2\n" * 100)
    refused(TRAIN, "part-1.parquet", "Parquet")


def test_a_truncated_file(refused: Refused) -> None:
    write(small())
    file = Path("data/part-1.parquet")
    file.write_bytes(file.read_bytes()[:-300])
    refused(TRAIN, "part-1.parquet", "complete")


def test_a_file_that_is_damaged_in_the_middle(refused: Refused) -> None:
    write(small(), row_group_rows=50)
    file = Path("data/part-2.parquet")
    content = bytearray(file.read_bytes())
    for column in range(9):
        start = pq.read_metadata(file).row_group(1).column(column).data_page_offset
        content[start : start + 40] = b"\xff" * 40
    file.write_bytes(content)
    refused(TRAIN, "part-2.parquet", "complete")


def test_an_empty_file(refused: Refused) -> None:
    write(small())
    Path("data/part-1.parquet").write_bytes(b"")
    refused(TRAIN, "part-1.parquet")


def test_no_file_at_all(refused: Refused) -> None:
    refused(["train", "nowhere", "--label", "label"], "nowhere")
    Path("empty").mkdir()
    refused(["train", "empty", "--label", "label"], "empty")


def test_schemas_that_differ_in_a_type(refused: Refused) -> None:
    table = write(small())
    other = datasets.replaced(table, whole=table["whole"].cast(pa.string()).combine_chunks())
    pq.write_table(other, "data/part-9.parquet")
    refused(TRAIN, '"whole"', "part-9.parquet", "part-0.parquet", "int32", "string")


def test_schemas_that_differ_in_a_column(refused: Refused) -> None:
    table = write(small())
    pq.write_table(table.drop_columns(["price"]), "data/part-9.parquet")
    refused([*TRAIN, "--read", "columns=same"], '"price" is missing in 1 of 4 files', "part-9.parquet", "columns=union")


def test_a_missing_label(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--label", "lable"], '"lable"', 'Did you mean "label"?', "Columns: one")
    refused([*TRAIN, "--label", "LABEL"], '"LABEL"', 'Did you mean "label"?')


def test_a_constant_label(refused: Refused) -> None:
    write(small(label=[1] * 300))
    refused(TRAIN, '"label" is 1 in every row')


def test_a_constant_label_of_strings(refused: Refused) -> None:
    write(small(label=["yes"] * 300))
    refused(TRAIN, '"label" is yes in every row')


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        ("binary", [0, 1, 2] * 100),
        ("binary", [-1, 1, 2] * 100),
        ("binary", ["a", "b", "c"] * 100),
        ("multiclass", [0.5, 1, 2] * 100),
        ("multiclass", [-0.5, 0, 1] * 100),
        ("regression", ["a", "b", "c"] * 100),
        ("count:poisson", [-1, 0, 1] * 100),
        ("reg:gamma", [0, 1, 2] * 100),
    ],
)
def test_labels_that_do_not_fit_the_objective(refused: Refused, objective: str, label: list[Any]) -> None:
    write(small(label=label))
    refused([*TRAIN, "--objective", objective], '"label" does not fit')


@pytest.mark.parametrize("value", [None, float("nan")])
def test_labels_without_a_value_where_none_may_be_missing(refused: Refused, value: float | None) -> None:
    labels = [float(index % 2) for index in range(300)]
    write(small(label=with_value(labels, value)))
    strict = [*TRAIN, "--missing-label", "error"]
    refused(strict, '1 of 300 rows have no value in the label "label"', "--missing-label drop")
    datasets.write(Path("eval"), small(label=pa.array(with_value(labels, value), pa.float64())))
    write(small())
    refused([*strict, "--eval", "eval"], "rows have no value in the label", "--missing-label drop")


def test_a_label_that_is_infinite(refused: Refused) -> None:
    write(small(label=with_value([float(index % 2) for index in range(300)], float("inf"))))
    refused(TRAIN, '1 of 300 rows have an infinite value in the label "label"')


def test_zero_rows(refused: Refused) -> None:
    write(small().slice(0, 0), files=1)
    refused(TRAIN, "no rows in data")


def test_fewer_rows_than_workers(refused: Refused) -> None:
    write(small().slice(0, 1), files=1)
    refused([*TRAIN, "--workers", "2"], "The rows can be divided among 1 worker at most, not 2", "--workers 1")


def test_an_infinite_feature(refused: Refused) -> None:
    ones = [float(index) for index in range(300)]
    write(small(one=with_value(ones, float("inf"))))
    refused(TRAIN, '"one" holds an infinite value', "null")


def test_text_that_is_no_category(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.data.scan.MOST_CATEGORIES", 100)
    write(small(name=[f"person {index}" for index in range(300)]))
    refused(TRAIN, '"name" has more than 100 different values', "--ignore name")


def test_a_column_without_a_meaning(refused: Refused) -> None:
    write(small(vector=[[1.0, 2.0]] * 300))
    refused(TRAIN, '"vector"', "list", "--ignore vector")


def test_nothing_left_to_learn_from(refused: Refused) -> None:
    write(small().select(["label", "one"]))
    refused([*TRAIN, "--ignore", "one"], "No column is left")


def test_groups_that_do_not_stand_together(refused: Refused) -> None:
    write(small(query=[index % 7 for index in range(300)]))
    refused([*TRAIN, "--group", "query"], '"query"', "Sort the data")


def test_rows_without_a_group(refused: Refused) -> None:
    write(small(query=with_value([index // 7 for index in range(300)], None)))
    refused([*TRAIN, "--group", "query"], '"query"', "1 rows have no value")


@pytest.mark.parametrize("value", [-1.0, None, float("nan"), float("inf")])
def test_weights_that_are_none(refused: Refused, value: float | None) -> None:
    write(small(weight=with_value([1.0] * 300, value)))
    refused([*TRAIN, "--weight", "weight"], '"weight"', "1 rows")


@pytest.mark.parametrize("objective", ["binary", "reg:absoluteerror", "count:poisson"])
def test_weights_that_are_zero_in_every_row(refused: Refused, objective: str) -> None:
    write(small(weight=[0.0] * 300))
    refused([*TRAIN, "--weight", "weight", "--objective", objective], '"weight" is 0 in every row')


def test_weights_that_are_zero_in_every_row_of_the_evaluation_set(refused: Refused) -> None:
    write(small(weight=[1.0] * 300))
    datasets.write(Path("eval"), small(weight=[0.0] * 300))
    refused([*TRAIN, "--weight", "weight", "--eval", "eval"], "0 in every row of the evaluation set")


@pytest.mark.parametrize(
    ("objective", "relevance", "words"),
    [
        ("ranking", [0, 32], "a whole number up to 31"),
        ("ranking", [0, 0.5], "a whole number up to 31"),
        ("rank:map", [0, 2], "relevance is 0 or 1"),
    ],
)
def test_relevance_that_does_not_fit(refused: Refused, objective: str, relevance: list[float], words: str) -> None:
    write(small(label=relevance * 150, query=[index // 10 for index in range(300)]))
    told = refused([*TRAIN, "--group", "query", "--objective", objective], words)
    assert objective == "rank:map" or "ndcg_exp_gain=false" in told


def test_a_class_that_only_the_evaluation_set_has(refused: Refused) -> None:
    write(small(label=[index % 3 for index in range(300)]))
    datasets.write(Path("eval"), small(label=[index % 5 for index in range(300)]))
    refused([*TRAIN, "--objective", "multiclass", "--eval", "eval"], "has the class 4", "the training rows have 0 to 2")
    datasets.write(Path("other"), small(label=[7] * 300))
    write(small())
    refused([*TRAIN, "--eval", "other"], "runs from 7 to 7")


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("aucc", 'Did you mean "auc"?'),
        ("mlogloss", "does not fit binary:logistic"),
        ("ndcg@5", "does not fit binary:logistic"),
        ("tweedie-nloglik@3", "variance power between 1 and 2"),
    ],
)
def test_metrics_that_cannot_be(refused: Refused, metric: str, words: str) -> None:
    write(small())
    refused([*TRAIN, "--eval-fraction", "0.3", "--param", f"eval_metric={metric}"], words)


def test_an_unknown_metric_is_refused_before_the_data_is_looked_at(refused: Refused) -> None:
    refused(["train", "nowhere", "--label", "y", "--param", "eval_metric=aucc"], 'no metric "aucc"')
    refused(["train", "nowhere", "--label", "y", "--objective", "reg:gama"], 'Did you mean "reg:gamma"?')
    quantile = ["train", "nowhere", "--label", "y", "--objective", "reg:quantileerror"]
    refused(quantile, "which quantile", "quantile_alpha=0.9")
    refused([*quantile, "--param", "quantile_alpha=[0.1,2]"], "between 0 and 1")


def test_the_area_under_the_curve_of_a_regression(refused: Refused) -> None:
    write(small(label=[float(index) for index in range(300)]))
    refused([*TRAIN, "--eval-fraction", "0.3", "--param", "eval_metric=auc"], "labels from 0 to 1")


def test_weights_that_are_no_numbers(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--weight", "colour"], '"colour" is text')
    write(small(day=[datetime.date(2024, 1, 1)] * 300))
    refused([*TRAIN, "--weight", "day"], '"day" is date32[day]', "Weights are numbers")


def test_an_evaluation_set_without_a_column(refused: Refused) -> None:
    table = write(small())
    datasets.write(Path("eval"), table.drop_columns(["price"]))
    refused([*TRAIN, "--eval", "eval"], '"price"', "evaluation")


def test_an_evaluation_set_without_a_row(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--eval-fraction", "0.0001"], "No row went to the evaluation set")


# The machine, the cluster and the store


def test_more_cpus_than_the_machine_has(refused: Refused) -> None:
    write(small())
    began = time.monotonic()
    refused([*TRAIN, "--workers", "2", "--threads", "1000"], "need 2000 CPUs")
    refused([*TRAIN, "--threads", "1000"], "--threads 1000")
    assert time.monotonic() - began < 10


def test_an_unreachable_cluster(refused: Refused) -> None:
    write(small())
    began = time.monotonic()
    refused([*TRAIN, "--workers", "1", "--cluster", "127.0.0.1:9"], "Nothing answers at 127.0.0.1:9")
    refused([*TRAIN, "--workers", "1", "--cluster", "nonsense"], "nonsense", "host:port")
    assert time.monotonic() - began < 10


def test_an_output_that_exists(refused: Refused) -> None:
    write(small())
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/mine").write_text("precious")
    refused(TRAIN, "runs/one exists and is not empty", "--out")


def test_an_output_that_is_a_file(refused: Refused) -> None:
    write(small())
    Path("taken").write_text("precious")
    refused([*TRAIN, "--out", "taken"], "taken")
    refused([*TRAIN, "--out", "taken/below"], "taken")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_full_from_the_start(refused: Refused, tiny_disk: Path) -> None:
    write(small())
    (tiny_disk / "filler").write_bytes(bytes(64 << 10))
    refused([*TRAIN, "--out", str(tiny_disk / "run")], "No space left", "Free some space")


def test_a_disk_that_fills_up_while_the_model_is_saved(
    refused: Refused, tiny_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A checkpoint of the first rounds would fit: a run that has one is kept, to be resumed.
    monkeypatch.setattr("dray.learners.xgboost.worker.CHECKPOINT_S", 1e9)
    write(small())
    refused([*TRAIN, "--rounds", "60", "--out", str(tiny_disk / "run")], "No space left", "Free some space")


def test_a_disk_that_fills_up_with_predictions(refused: Refused, tiny_disk: Path) -> None:
    write(datasets.binary(20_000).select(["one", "id", "label"]))
    dray.train("data", label="label", ignore=["id"], workers=0, rounds=1, out="run")
    refused(["predict", "run", "data", str(tiny_disk / "out"), "--keep", "id", "--workers", "0"], "No space left")


def test_wrong_credentials(refused: Refused, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    write(small())
    datasets.write(s3_server.directory / "data", small())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anothersecretkey")
    for arguments in ([*TRAIN, "--out", s3_server.url("run")], ["train", s3_server.url("data"), *TRAIN[2:]]):
        told = refused(arguments, "credentials")
        assert "anothersecretkey" not in told
    assert sorted(path.name for path in s3_server.directory.iterdir()) == ["data"]


def test_a_bucket_that_does_not_exist(refused: Refused, s3_server: S3Server) -> None:
    refused(["train", "s3://nobucket/data", *TRAIN[2:]], "nobucket")


def test_a_store_that_does_not_answer(refused: Refused, s3_server: S3Server) -> None:
    began = time.monotonic()
    refused(["train", s3_server.url("data"), *TRAIN[2:], "--endpoint", "http://127.0.0.1:9"], "127.0.0.1:9")
    assert time.monotonic() - began < 30


def test_mistakes_found_late_leave_nothing_in_a_bucket(refused: Refused, s3_server: S3Server) -> None:
    write(small(label=[1] * 300))
    refused([*TRAIN, "--out", s3_server.url("runs/one")], "in every row")
    # Keys are files here; a folder without any is this server's own, and nothing in a bucket.
    assert [key for key in s3_server.directory.rglob("*") if key.is_file()] == []


# What was asked for


def test_a_misspelt_key_in_a_run_file(refused: Refused) -> None:
    write(small())
    Path("run.yaml").write_text("data: data\nlabel: label\nroundz: 3\n")
    refused(["train", "run.yaml", "--workers", "0"], '"roundz"', "run.yaml", 'Did you mean "rounds"?', "Known keys")
    Path("run.yaml").write_text("data: data\nlabel: label\nstorage:\n  endpiont: http://x\n")
    refused(["train", "run.yaml", "--workers", "0"], '"storage.endpiont"', 'Did you mean "endpoint"?')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data: [data\nlabel: label\n", ["run.yaml", "not YAML", "line"]),
        ("", ["run.yaml", "keys and values"]),
        ("- data\n", ["run.yaml", "keys and values"]),
        ("data: data\nlabel: label\nrounds: many\n", ['"rounds"', "'many'"]),
        ("data: data\nlabel: label\nworkers: some\n", ['"workers"', "auto"]),
        ("label: label\n", ['"data" is missing', "run.yaml"]),
        ("data: data\n", ['"label" is missing', "--label"]),
        ("data: []\nlabel: label\n", ["data is empty", "name a file"]),
    ],
)
def test_a_broken_run_file(refused: Refused, text: str, words: list[str]) -> None:
    write(small())
    Path("run.yaml").write_text(text)
    refused(["train", "run.yaml"], *words)


def test_a_run_file_that_is_not_there_or_no_text(refused: Refused) -> None:
    refused(["train", "missing.yaml"], "missing.yaml")
    Path("run.yaml").write_bytes(b"\xff\xfe\x00")
    refused(["train", "run.yaml"], "run.yaml")


def test_a_run_file_beside_data(refused: Refused) -> None:
    write(small())
    Path("run.yaml").write_text("label: label\n")
    refused(["train", "data", "run.yaml"], "other data is named beside it")


def test_a_misspelt_parameter(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--param", "max_dept=3"], '"max_dept"', 'Did you mean "max_depth"?')


@pytest.mark.parametrize(
    ("param", "words"),
    [
        ("nthread=4", ["--threads"]),
        ("n_estimators=4", ["--rounds"]),
        ("early_stopping_rounds=4", ["--early-stop"]),
        ("max_depth=deep", ["deep"]),
        ("max_depth=-3", ["-3"]),
        ("eta=[", ["eta=["]),
        ("subsample=2", ["subsample"]),
        ("max_bin=few", ["max_bin", "few"]),
        ("tree_method=exact", ["exact"]),
        ("booster=gblinear", ["gblinear"]),
        ("eval_metric=auk", ["auk"]),
        ("objective=binary:logistics", ["binary:logistics"]),
        ("grow_policy=sideways", ["sideways"]),
        ("monotone_constraints={nocolumn: 1}", ["nocolumn"]),
        ("max_depth", ["name=value"]),
    ],
)
def test_a_parameter_that_is_wrong(refused: Refused, param: str, words: list[str]) -> None:
    write(small())
    refused([*TRAIN, "--eval-fraction", "0.3", "--param", param], *words)


def test_an_unknown_objective(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--objective", "binarry"], "binarry")


def test_two_objectives(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--objective", "binary", "--param", "objective=reg:squarederror"], "Two objectives")


def test_ranking_without_groups_and_groups_without_ranking(refused: Refused) -> None:
    write(small(query=[index // 7 for index in range(300)]))
    refused([*TRAIN, "--objective", "ranking"], "--group")
    refused([*TRAIN, "--objective", "binary", "--group", "query"], "ranking")


def test_too_few_classes_announced(refused: Refused) -> None:
    write(small(label=["a", "b", "c"] * 100))
    refused([*TRAIN, "--param", "num_class=2"], "num_class is 2", "3 classes")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--early-stop", "3"], ["--early-stop needs an evaluation set", "--eval-fraction"]),
        (["--eval", "data", "--eval-fraction", "0.2"], ["exclude each other"]),
        (["--eval-fraction", "1.5"], ['"eval_fraction"', "1.5"]),
        (["--rounds", "0"], ['"rounds"']),
        (["--seed", "-1"], ['"seed"']),
        (["--threads", "0"], ['"threads"']),
        (["--workers", "-1"], ['"workers"']),
        (["--workers", "many"], ["many"]),
        (["--weight", "label"], ["different columns"]),
        (["--weight", "wait"], ['"wait" (--weight)']),
        (["--ignore", "colur"], ['"colur" (--ignore)', 'Did you mean "colour"?']),
        (["--rownds", "3"], ["--rownds"]),
    ],
)
def test_flags_that_cannot_be(refused: Refused, flags: list[str], words: list[str]) -> None:
    write(small())
    refused([*TRAIN, *flags], *words)


RECOMMEND = ("train", "data", "--model", "factorization", "--user", "u", "--item", "i", "--out", "runs/one")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "data", "--model", "svd"], ["svd", "factorization"]),
        (["train", "data", "--model", "factorization", "--item", "i"], ['"user" is missing', "--user COLUMN"]),
        (["train", "data", "--model", "factorization", "--user", "u"], ['"item" is missing', "--item COLUMN"]),
        (
            ["train", "data", "--user", "u", "--item", "i"],
            ["--user is a key of model factorization", "--model factorization"],
        ),
        ([*RECOMMEND, "--label", "y"], ["--label is a key of model xgboost", "leave --label out"]),
        ([*RECOMMEND, "--objective", "binary"], ["--objective is a key of model xgboost"]),
        ([*RECOMMEND, "--rating", "r", "--event", "e"], ["--rating and --event exclude each other"]),
        ([*RECOMMEND, "--rating", "i"], ["different columns"]),
        ([*RECOMMEND, "--half-life-days", "3"], ["--half-life-days needs --time"]),
        ([*RECOMMEND, "--half-life-days", "0", "--time", "t"], ['"half_life_days"', "greater than 0"]),
        ([*RECOMMEND, "--eval-last", "1"], ["--eval-last needs --time"]),
        ([*RECOMMEND, "--eval-by", "time", "--eval-fraction", "0.1"], ["--eval-by time needs --time"]),
        ([*RECOMMEND, "--eval-by", "time", "--time", "t"], ["--eval-by time needs --eval-fraction"]),
        ([*RECOMMEND, "--eval-by", "chance"], ["chance", "random"]),
        ([*RECOMMEND, "--eval-at", "0", "--eval-fraction", "0.1"], ['"eval_at']),
        ([*RECOMMEND, "--early-stop", "3"], ["--early-stop needs an evaluation set"]),
        ([*RECOMMEND, "--time", "t", "--eval-last", "1", "--eval-fraction", "0.1"], ["exclude each other"]),
        ([*RECOMMEND, "--event", "e", "--event-weight", "view=much"], ['weight of "view"', "--event-weight"]),
        ([*RECOMMEND, "--event", "e", "--event-weight", "view=.inf"], ['weight of "view"', "finite"]),
        ([*RECOMMEND, "--event", "e", "--event-weight", "view"], ["--event-weight name=value"]),
        ([*RECOMMEND, "--event-weight", "view=2"], ["--event-weight needs --event"]),
        ([*RECOMMEND, "--param", "factor=3"], ['Did you mean "factors"?']),
        ([*RECOMMEND, "--param", "factors=0"], ["a whole number from 1 to 4096"]),
        ([*RECOMMEND, "--param", "learning_rate=0.1"], ["is for explicit ratings"]),
        ([*RECOMMEND, "--rating", "r", "--param", "solver=lu"], ["is for events"]),
        ([*RECOMMEND, "--param", "epochs=3"], ["Use --rounds"]),
    ],
)
def test_recommenders_that_cannot_be(refused: Refused, arguments: list[str], words: list[str]) -> None:
    refused(arguments, *words)


def test_rows_of_a_copy_are_named_by_their_source(refused: Refused, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = str(tmp_path_factory.mktemp("cache"))
    Path("e.jsonl").write_text('{"u": "a", "i": "x", "r": "3"}\n{"u": "b", "i": "y", "r": "good"}\n')
    train = ["train", "e.jsonl", "--model", "factorization", "--user", "u", "--item", "i", "--rating", "r"]
    refused([*train, "--workers", "0", "--cache", cache], '"good" in the Parquet copy of e.jsonl.')


def test_going_on_from_nowhere(refused: Refused) -> None:
    write(small())
    refused([*TRAIN, "--continue-from", "nowhere"], "nowhere")


def test_going_on_with_other_data(refused: Refused) -> None:
    table = write(small())
    dray.train("data", label="label", workers=0, rounds=1, out="first")
    again = [*TRAIN, "--continue-from", "first"]
    refused([*again, "--label", "flag"], 'predicts "label"', "same label")
    refused([*again, "--ignore", "price"], '"price"')
    refused([*again, "--objective", "regression"], "binary:logistic")
    write(datasets.replaced(table, more=np.arange(300)))
    refused(again, '"more"', "--ignore more")


def test_going_on_with_other_classes(refused: Refused) -> None:
    write(small(label=[index % 3 for index in range(300)]))
    dray.train("data", label="label", objective="multiclass", workers=0, rounds=1, out="first")
    again = [*TRAIN, "--continue-from", "first"]
    write(small(label=[index % 4 for index in range(300)]))
    refused(again, "a class that the earlier run did not know: 3", "it knows 0 to 2", "Train a new model")
    refused([*again, "--param", "num_class=4"], "num_class is 4", "earlier run has 3 classes")
    write(small(label=[index % 3 for index in range(300)]))
    refused([*again, "--param", "base_score=0.5"], "base_score cannot change")


def test_going_on_with_another_class_of_text(refused: Refused) -> None:
    write(small(label=["a", "b", "c"] * 100))
    dray.train("data", label="label", workers=0, rounds=1, out="first")
    write(small(label=["a", "b", "d"] * 100))
    refused([*TRAIN, "--continue-from", "first"], "training does not know", '"d" is not one of "a", "b", "c"')


def test_going_on_with_fewer_classes_works(tmp_path: Path) -> None:
    write(small(label=[index % 3 for index in range(300)]))
    dray.train("data", label="label", objective="multiclass", workers=0, rounds=1, out="first")
    write(small(label=[index % 2 for index in range(300)]))
    result = dray.train("data", label="label", workers=0, rounds=1, continue_from="first", eval_fraction=0.3, out="two")
    assert list(result.metrics) == ["eval-merror", "eval-mlogloss"]
    assert result.booster.num_boosted_rounds() == 2


def test_going_on_from_a_run_that_failed(refused: Refused) -> None:
    write(small())
    dray.train("data", label="label", workers=0, rounds=1, out="first")
    document = json.loads(Path("first/run.json").read_text())
    Path("first/run.json").write_text(json.dumps({**document, "status": "failed"}))
    refused([*TRAIN, "--continue-from", "first"], "failed, not finished")
    refused(["predict", "first", "data", "out"], "failed")
    Path("first/run.json").write_text("{")
    refused([*TRAIN, "--continue-from", "first"], "damaged")


def test_going_on_from_a_damaged_model(refused: Refused) -> None:
    write(small())
    dray.train("data", label="label", workers=0, rounds=1, out="first")
    content = Path("first/model.ubj").read_bytes()
    for damaged in (content[: len(content) // 2], b"", bytes(range(256))):
        Path("first/model.ubj").write_bytes(damaged)
        refused([*TRAIN, "--continue-from", "first"], "model.ubj")
    Path("first/model.ubj").unlink()
    refused([*TRAIN, "--continue-from", "first"], "model.ubj")


def test_with_json_the_mistake_is_a_document(refused: Refused) -> None:
    write(small(label=[1] * 300))
    refused([*TRAIN, "--json"], "in every row")
    refused([*TRAIN, "--json", "--rownds", "3"], "--rownds")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "nowhere", "data", "out"], ["nowhere"]),
        (["predict", "run", "nowhere", "out"], ["nowhere"]),
        (["predict", "run", "data", "out", "--keep", "idd"], ['"idd" (--keep)']),
        (["predict", "run", "data", "out", "--type", "odds"], ["odds", "probability"]),
        (["predict", "run", "data", "data"], ["exists"]),
        (["predict", "run", "data", "out", "--threads", "0"], ["--threads"]),
        (["predict", "run", "data", "out", "--workers", "-1"], ["--workers"]),
        (["predict", "run", "data", "out", "--workers", "2", "--threads", "1000"], ["2000 CPUs"]),
        (["predict", "run", "data", "out", "--workers", "1", "--cluster", "127.0.0.1:9"], ["127.0.0.1:9"]),
        (["predict", "run"], ["DATA"]),
    ],
)
def test_predictions_that_cannot_be(refused: Refused, arguments: list[str], words: list[str]) -> None:
    write(small())
    dray.train("data", label="label", workers=0, rounds=1, out="run")
    refused(arguments, *words)
