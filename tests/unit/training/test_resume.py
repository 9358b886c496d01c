"""A run in one process that is interrupted and resumed: the same model, as if nothing had been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import datasets
import dray
from dray.data.parquet import open_dataset
from dray.errors import ConfigError, DrayError, ModelError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.learners.configs import make_config
from dray.learners.xgboost import ring as xgboost_ring
from dray.learners.xgboost import worker as working
from dray.learners.xgboost.result import TrainResult
from dray.runs.checkpoints import Checkpoints
from dray.runs.directory import open_run
from dray.storage import DEFAULT
from dray.training import same_data
from dray.training.resume import resume
from dray.training.train import train
from fake_group import Recorder
from s3_server import S3Server

ROUNDS = 60


class AfterRound:
    """A sink that does something once, after a round."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._number, self._act, self._done = number, act, False

    def event(self, event: Event) -> None:
        if event.kind == "round" and event.data["round"] >= self._number and not self._done:
            self._done = True
            self._act()

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return datasets.write(tmp_path / "data", datasets.binary(600))


def settings(data: str, **changes: Any) -> dict[str, Any]:
    usual = {"data": data, "label": "label", "ignore": ["id", "weight"], "rounds": ROUNDS, "workers": 0, "threads": 1}
    return usual | {"eval_fraction": 0.3, "out": "run"} | changes


def interrupted(data: str, after: int = 3, **changes: Any) -> int:
    """Train till a round, with Ctrl-C as the user does it; return the round of the checkpoint."""
    agree = xgboost_ring.agree

    def slowly(flag: bool) -> bool:
        time.sleep(0.03)
        return agree(flag)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xgboost_ring, "agree", slowly)
        with pytest.raises(KeyboardInterrupt):
            train(make_config(settings(data, **changes)), sinks=[AfterRound(after, interrupt)])
    checkpoint = Checkpoints(open_run("run")).read()
    assert checkpoint is not None
    assert after <= checkpoint.round < ROUNDS
    return checkpoint.round


def resumed(told: Recorder | None = None, **overrides: Any) -> TrainResult:
    return resume("run", DEFAULT, overrides, [told] if told else [])


def files(directory: str = "run") -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(directory).rglob("*")) if path.is_file()}


def test_an_interrupted_run_is_stopped_and_has_all_that_is_needed_to_go_on(data: str) -> None:
    done = interrupted(data)
    document = open_run("run").document
    assert document["status"] == "stopped"
    assert document["error"]["what"] == "The run was interrupted."
    assert not Path("run/model.ubj").exists()
    assert not Path("run/alive").exists()
    latest = json.loads(Path("run/checkpoints/latest.json").read_text())
    assert [row["round"] for row in latest["rounds"]] == list(range(1, done + 1))
    assert pq.read_table("run/rounds.parquet")["round"].to_pylist() == list(range(1, done + 1))
    kinds = [json.loads(line)["kind"] for line in Path("run/events.jsonl").read_text().splitlines()]
    assert kinds[-1] == "run_failed"
    assert "traceback" not in Path("run/events.jsonl").read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"params": {"colsample_bytree": 0.5, "colsample_bynode": 0.7}},
        {"params": {"booster": "dart", "rate_drop": 0.3}, "eval_fraction": None},
        {"params": {"subsample": 0.6}},
    ],
    ids=["plain", "columns", "dart", "rows"],
)
def test_a_resumed_run_comes_to_the_same_model_with_every_round_once(data: str, changes: dict[str, Any]) -> None:
    done = interrupted(data, **changes)
    told = Recorder()
    result = resumed(told)
    whole = train(make_config(settings(data, out="whole", **changes)))
    assert result.model_digest == whole.model_digest
    assert (result.metrics, result.rounds, result.best_round) == (whole.metrics, ROUNDS, whole.best_round)
    assert (result.rows, result.eval_rows) == (whole.rows, whole.eval_rows)
    assert (Path(result.directory), result.run) == (Path("run").resolve(), open_run("run").document["run"])
    rounds, expected = (pq.read_table(f"{run}/rounds.parquet") for run in ("run", "whole"))
    assert rounds["round"].to_pylist() == list(range(1, ROUNDS + 1))
    assert rounds.drop_columns("seconds") == expected.drop_columns("seconds")
    assert [event["round"] for event in told.of("round")] == list(range(done + 1, ROUNDS + 1))
    assert [event["round"] for event in told.of("resumed")] == [done]
    assert not Path("run/checkpoints").exists()
    document = open_run("run").document
    assert (document["status"], document["resumed"]) == ("finished", 1)
    assert "error" not in document
    assert dray.load("run").digest() == whole.model_digest


def test_a_run_may_be_interrupted_and_resumed_again_and_again(data: str) -> None:
    interrupted(data)
    agree = xgboost_ring.agree
    for after in (12, 25):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(xgboost_ring, "agree", lambda flag: (time.sleep(0.03), agree(flag))[1])
            resume("run", DEFAULT, {}, [AfterRound(after, interrupt)])
        assert open_run("run").document["status"] == "stopped"
    assert resumed().model_digest == train(make_config(settings(data, out="whole"))).model_digest
    assert pq.read_table("run/rounds.parquet")["round"].to_pylist() == list(range(1, ROUNDS + 1))


@pytest.mark.parametrize("booster", [{}, {"booster": "dart", "rate_drop": 0.3}], ids=["gbtree", "dart"])
def test_a_resumed_run_stops_early_where_the_whole_one_does(data: str, booster: dict[str, Any]) -> None:
    changes = {"early_stop": 8, "params": {"eta": 0.6, "max_depth": 3} | booster}
    done = interrupted(data, after=1, **changes)
    whole = train(make_config(settings(data, out="whole", **changes)))
    assert done < whole.rounds < ROUNDS
    result = resumed()
    assert (result.model_digest, result.rounds, result.best_round) == (
        whole.model_digest,
        whole.rounds,
        whole.best_round,
    )


def test_a_run_that_goes_on_from_another_can_be_resumed(data: str) -> None:
    first = train(make_config(settings(data, rounds=5, out="first")))
    interrupted(data, continue_from="first")
    result = resumed()
    whole = train(make_config(settings(data, continue_from="first", out="whole")))
    assert result.model_digest == whole.model_digest != first.model_digest
    assert result.booster.num_boosted_rounds() == 5 + ROUNDS


def test_without_a_checkpoint_a_run_begins_anew(data: str) -> None:
    interrupted(data)
    Checkpoints(open_run("run")).clear()
    result = resumed()
    assert result.model_digest == train(make_config(settings(data, out="whole"))).model_digest
    assert pq.read_table("run/rounds.parquet")["round"].to_pylist() == list(range(1, ROUNDS + 1))


def test_a_checkpoint_of_a_killed_run_is_enough(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the disk while the run is at work, taken away from it at any moment."""
    monkeypatch.setattr(working, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(working, "CHECKPOINT_SHARE", 1e9)
    taken: list[Mapping[str, bytes]] = []
    agree = xgboost_ring.agree
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xgboost_ring, "agree", lambda flag: (time.sleep(0.03), agree(flag))[1])
        whole = train(make_config(settings(data)), sinks=[AfterRound(30, lambda: taken.append(files()))])
    [left] = taken
    assert any("latest.json" in name for name in left)
    for path in [path for path in Path("run").rglob("*") if path.is_file()]:
        path.unlink()
    for name, content in left.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    document = json.loads(Path("run/run.json").read_text())
    assert document["status"] == "running"
    document["process"]["created"] -= 1000  # another process had that number
    Path("run/run.json").write_text(json.dumps(document))
    told = Recorder()
    assert resumed(told).model_digest == whole.model_digest
    assert told.of("resumed")[0]["round"] > 0
    assert pq.read_table("run/rounds.parquet")["round"].to_pylist() == list(range(1, ROUNDS + 1))


def test_a_finished_run_is_not_resumed(data: str) -> None:
    train(make_config(settings(data, rounds=2)))
    before = files()
    with pytest.raises(ModelError, match="is finished: there is nothing to resume") as caught:
        resumed()
    assert "--continue-from run" in caught.value.fix
    assert files() == before


def test_what_is_no_run_is_not_resumed(data: str) -> None:
    with pytest.raises(ModelError, match="is not a run"):
        resumed()
    assert not Path("run").exists()


def rewrite(data: str) -> None:
    datasets.write(Path(data), datasets.binary(600, seed=5))


def grow(data: str) -> None:
    pq.write_table(datasets.binary(20), Path(data) / "part-9.parquet")


def shrink(data: str) -> None:
    (Path(data) / "part-1.parquet").unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rewrite, r"part-0.parquet has changed"),
        (grow, r"part-9.parquet is new"),
        (shrink, r"part-1.parquet is gone"),
    ],
)
def test_a_run_is_not_resumed_on_other_data(data: str, change: Callable[[str], None], words: str) -> None:
    interrupted(data)
    kept = files(data)
    change(data)
    before = files()
    with pytest.raises(ModelError, match=rf"The data is not what it was when the run began: .*{words}") as caught:
        resumed()
    assert "train anew" in caught.value.fix
    assert files() == before
    for path in Path(data).iterdir():
        path.unlink()
    for name, content in kept.items():
        Path(name).write_bytes(content)
    assert resumed().rounds == ROUNDS


def plainly(data: str, labels: list[int]) -> None:
    """Write the first file with these labels in a way that takes as many bytes for any."""
    file = Path(data) / "part-0.parquet"
    table = pq.read_table(file)
    table = table.set_column(table.schema.get_field_index("label"), "label", pa.array(labels))
    pq.write_table(table, file, compression="none", use_dictionary=False, write_statistics=False)


def in_place(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def renamed(file: Path, content: bytes) -> None:
    file.with_name("_new").write_bytes(content)
    file.with_name("_new").replace(file)


@pytest.mark.parametrize("way", [in_place, renamed])
def test_flipped_labels_in_a_file_of_the_same_size_rows_footer_and_time_are_noticed(
    data: str, way: Callable[[Path, bytes], None]
) -> None:
    file = Path(data) / "part-0.parquet"
    labels = pq.read_table(file)["label"].to_pylist()
    plainly(data, labels)
    before, content = file.stat(), file.read_bytes()
    footer = pq.read_metadata(file)
    interrupted(data)
    plainly(data, [1 - label for label in labels])
    flipped = file.read_bytes()
    file.write_bytes(content)
    way(file, flipped)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert pq.read_metadata(file).equals(footer)
    with pytest.raises(ModelError, match=r"when the run began: .*part-0.parquet holds other values"):
        resumed()


@pytest.mark.parametrize("way", [in_place, renamed])
def test_files_that_were_touched_or_copied_again_as_they_were_are_gone_on_with(
    data: str, way: Callable[[Path, bytes], None]
) -> None:
    interrupted(data)
    for file in Path(data).iterdir():
        way(file, file.read_bytes())
        os.utime(file, (1, 1))
    assert resumed().model_digest == train(make_config(settings(data, out="whole"))).model_digest


def test_a_file_that_was_written_again_is_refused_where_no_digest_was_made_in_time(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_data, "MOST_BYTES", 0)
    interrupted(data)
    file = Path(data) / "part-0.parquet"
    os.utime(file, (1, 1))
    with pytest.raises(ModelError, match=r"part-0.parquet was written again, and the run ended before it had a digest"):
        resumed()


def test_no_digest_is_kept_of_a_file_that_was_written_while_the_run_was_at_work(data: str, tmp_path: Path) -> None:
    dataset = open_dataset([data], DEFAULT)
    marks = same_data.marks_of(dataset)
    first, *others = marks
    os.utime(first, (1, 1))
    found: dict[str, str] = {}
    same_data.ContentDigests(marks, found.update)._thread.join()
    assert list(found) == others


def test_an_object_is_known_by_its_etag(data: str, s3_server: S3Server) -> None:
    shutil.copytree(data, s3_server.directory / "data")
    url = s3_server.url("data")
    before = json.loads(json.dumps(same_data.marks_of(open_dataset([url], DEFAULT))))
    assert same_data.first_change(before, open_dataset([url], DEFAULT)) is None
    name = next(iter(before))
    touched = before | {name: before[name] | {"stamp": [*before[name]["stamp"][:1], 1, before[name]["stamp"][-1]]}}
    assert same_data.first_change(touched, open_dataset([url], DEFAULT)) is None
    other = before | {name: before[name] | {"stamp": [*before[name]["stamp"][:-1], "another"]}}
    assert "another ETag" in str(same_data.first_change(other, open_dataset([url], DEFAULT)))


def test_data_of_an_earlier_version_of_dray_is_compared_by_rows_and_bytes(data: str) -> None:
    interrupted(data)
    document = json.loads(Path("run/data.json").read_text())
    Path("run/data.json").write_text(json.dumps({role: document[role] for role in ("train", "eval")}))
    assert resumed().rounds == ROUNDS


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"train": [["a"]], "eval": []}', '{"train": [], "eval": [], "files": 1}']
)
def test_a_damaged_note_of_the_data_is_told(data: str, content: str) -> None:
    interrupted(data)
    Path("run/data.json").write_text(content)
    with pytest.raises(ModelError, match=r"data\.json is damaged"):
        resumed()


def as_csv(data: str, label: Callable[[int], int] = int) -> str:
    """Write the rows as CSV, with the label as it is or as another one."""
    table = pq.read_table(data)
    labels = pa.array([label(value) for value in table["label"].to_pylist()])
    pacsv.write_csv(table.set_column(table.schema.get_field_index("label"), "label", labels), "data.csv")
    return "data.csv"


def test_a_source_that_was_only_touched_is_gone_on_with(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    interrupted(as_csv(data))
    os.utime("data.csv", (1, 1))  # as a copy from a backup has another time, and its Parquet copy another name
    assert resumed().model_digest == train(make_config(settings("data.csv", out="whole"))).model_digest


def test_text_to_evaluate_on_is_gone_on_with_whatever_it_looks_like(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it would be read with other types than beside the training data."""
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    train_data = as_csv(data)
    header, *rows = Path(train_data).read_text().splitlines()
    name = next(column for column in header.replace('"', "").split(",") if column not in ("id", "label", "weight"))
    place = header.replace('"', "").split(",").index(name)
    cells = [row.split(",") for row in rows[:100]]
    cells[5][place] = "n.v."
    Path("eval.csv").write_text("\n".join([header, *map(",".join, cells)]))
    interrupted(train_data, eval=["eval.csv"], eval_fraction=None)
    assert resumed().eval_rows == 100
    cells[5][place] = "0"
    Path("eval.csv").write_text("\n".join([header, *map(",".join, cells)]))
    shutil.rmtree("run")
    interrupted(train_data, eval=["eval.csv"], eval_fraction=None)
    cells[6][place] = "n.v."
    Path("eval.csv").write_text("\n".join([header, *map(",".join, cells)]))
    with pytest.raises(ModelError, match="The data is not what it was"):
        resumed()


def test_a_copy_that_is_gone_is_made_again_of_the_same_source_only(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    interrupted(as_csv(data))
    shutil.rmtree("cache")
    as_csv(data, label=lambda value: 1 - value)
    with pytest.raises(ModelError, match="or the copy that the run was begun on is gone"):
        resumed()


def test_a_source_that_did_not_change_is_copied_again(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    interrupted(as_csv(data))
    shutil.rmtree("cache")
    assert resumed().rounds == ROUNDS


def test_a_source_with_other_values_of_the_same_size_is_not_gone_on_with(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    interrupted(as_csv(data))
    as_csv(data, label=lambda value: 1 - value)
    with pytest.raises(ModelError, match="The data is not what it was"):
        resumed()


def test_a_changed_evaluation_set_is_seen_too(data: str) -> None:
    other = datasets.write(Path("eval"), datasets.binary(200, seed=3), files=1)
    interrupted(data, eval=[other], eval_fraction=None)
    datasets.write(Path("eval"), datasets.binary(210, seed=3), files=1)
    before = files()
    with pytest.raises(ModelError, match=r"eval/part-0.parquet has changed"):
        resumed()
    assert files() == before


def test_a_run_that_is_alive_is_not_resumed(data: str) -> None:
    errors: list[BaseException] = []
    looked: list[tuple[bytes, bytes]] = []

    def try_it() -> None:
        before = Path("run/run.json").read_bytes()
        try:
            resumed()
        except DrayError as error:
            errors.append(error)
        looked.append((before, Path("run/run.json").read_bytes()))

    train(make_config(settings(data, rounds=20)), sinks=[AfterRound(1, try_it)])
    [error] = errors
    assert isinstance(error, ModelError)
    assert f"is still running: process {os.getpid()}" in error.what
    assert f"kill {os.getpid()}" in error.fix
    [(before, after)] = looked
    assert before == after
    assert open_run("run").document["status"] == "finished"


def test_a_damaged_checkpoint_is_told_and_nothing_is_touched(data: str) -> None:
    interrupted(data)
    [model] = Path("run/checkpoints").glob("*.model")
    model.write_bytes(model.read_bytes()[:-10])
    before = files()
    with pytest.raises(ModelError, match="is damaged"):
        resumed()
    assert files() == before


def test_a_wrong_override_is_told_and_nothing_is_touched(data: str) -> None:
    interrupted(data)
    before = files()
    with pytest.raises(ConfigError):
        resumed(threads=-2)
    assert files() == before


def test_no_thread_is_left_by_an_interrupted_run(data: str) -> None:
    before = threading.active_count()
    interrupted(data)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
