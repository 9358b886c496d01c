"""`--overwrite`: a run, an ingest or an output takes the place of an earlier one when it is complete."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import datasets
import dray
from dray.errors import DrayError, ModelError, StorageError
from dray.events.telemetry import Sink
from dray.runs.directory import open_run
from dray.runs.replacing import beside
from s3_server import S3Server


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(datasets.write(tmp_path / "data", datasets.binary(300)))


def train(data: str, out: str, **settings: Any) -> Any:
    return dray.train(data, label="label", ignore=["id"], workers=0, out=out, **{"rounds": 2, **settings})


def test_a_run_is_replaced_when_the_new_one_is_finished(data: str) -> None:
    before = train(data, "models/now").model_digest
    with pytest.raises(StorageError) as refused:
        train(data, "models/now")
    assert "with overwrite" in refused.value.fix
    seen = []

    class Watching(Sink):
        def event(self, event: Any) -> None:
            if event.kind == "round":
                seen.append(open_run("models/now").document["result"]["model_digest"])

        def sample(self, samples: Any) -> None: ...

        def close(self) -> None: ...

    from dray.learners.configs import make_config
    from dray.training.train import train as train_configured

    values = {"data": data, "label": "label", "ignore": ["id"], "workers": 0, "rounds": 4, "out": "models/now"}
    result = train_configured(make_config(values | {"overwrite": True}, origin="here"), [Watching()])
    assert seen and set(seen) == {before}
    assert [path.name for path in Path("models").iterdir()] == ["now"]
    document = json.loads(Path("models/now/run.json").read_text())
    assert document["result"]["directory"] == result.directory == str(Path("models/now").absolute())
    assert document["result"]["model_digest"] == result.model_digest != before
    assert "replaces" not in document and result.model == f"{result.directory}/model.ubj"
    assert dray.load("models/now").booster.num_boosted_rounds() == 4
    lines = Path("models/now/events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["kind"] == "run_finished"


def test_what_is_not_a_run_is_never_replaced(data: str) -> None:
    Path("mine").mkdir()
    Path("mine/precious").touch()
    with pytest.raises(ModelError, match="is not a run"):
        train(data, "mine", overwrite=True)
    train(data, "run")
    Path("run/precious").touch()
    with pytest.raises(StorageError, match="did not write precious"):
        train(data, "run", overwrite=True)
    Path("link").symlink_to("run")
    with pytest.raises(StorageError, match="is a link"):
        train(data, "link", overwrite=True)
    assert Path("mine/precious").exists() and Path("run/model.ubj").exists()


def test_a_mistake_leaves_the_old_run_and_nothing_else(data: str) -> None:
    digest = train(data, "models/now").model_digest
    with pytest.raises(DrayError):
        train(data, "models/now", overwrite=True, objective="no:such")
    assert open_run("models/now").document["result"]["model_digest"] == digest
    assert [path.name for path in Path("models").iterdir()] == ["now"]


def test_one_that_was_stopped_waits_beside_is_resumed_and_then_takes_the_place(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray.runs.directory import RunDirectory

    digest = train(data, "models/now").model_digest
    finish = RunDirectory.finish

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        train(data, "models/now", rounds=4, overwrite=True)
    assert open_run("models/now").document["result"]["model_digest"] == digest
    monkeypatch.setattr(RunDirectory, "finish", finish)
    result = dray.resume(beside("models/now"))
    assert result.directory == str(Path("models/now").absolute())
    assert open_run("models/now").document["result"]["rounds"] == 4
    assert [path.name for path in Path("models").iterdir()] == ["now"]


def test_one_that_was_stopped_is_replaced_by_the_next(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train(data, "now")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("dray.runs.directory.RunDirectory.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        train(data, "now", overwrite=True)
    assert Path(beside("now")).exists()
    train(data, "now", rounds=3, overwrite=True)
    assert open_run("now").document["result"]["rounds"] == 3
    assert not Path(beside("now")).exists()


def test_a_run_on_a_store_is_replaced(data: str, s3_server: S3Server) -> None:
    train(data, s3_server.url("runs/now"))
    assert train(data, s3_server.url("runs/now"), rounds=3, overwrite=True).rounds == 3


def test_a_run_on_a_store_stays_when_the_new_one_cannot_begin(data: str, s3_server: S3Server) -> None:
    out = s3_server.url("runs/now")
    digest = train(data, out).model_digest
    with pytest.raises(dray.DataError, match='no column "z"'):
        train(data, out, weight="z", overwrite=True)
    with pytest.raises(dray.DataError, match="gone"):
        train("gone.parquet", out, overwrite=True)
    with pytest.raises(dray.StorageError, match="read by the same command"):
        train(data, out, continue_from=out, overwrite=True)
    assert dray.load(out).digest() == digest


class Seen(Sink):
    """Keeps what a user would be shown."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.closed = False

    def event(self, event: Any) -> None:
        self.events.append(event)

    def sample(self, samples: Any) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_a_run_that_replaces_one_on_a_store_reads_its_query_once_and_tells_so(
    data: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray.learners.configs import make_config
    from dray.training.train import train as train_configured

    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    with closing(sqlite3.connect("rows.db")) as base, base:
        base.execute("create table t (id integer primary key, x integer, y integer)")
        base.executemany("insert into t values (?, ?, ?)", [(i, i % 7, i % 2) for i in range(200)])
        base.execute("insert into t values (200, 'bad', 1)")
    values = {"data": "sqlite:///rows.db", "read": {"table": "t", "types": {"x": "int64"}}, "label": "y", "workers": 0}
    values |= {"rounds": 2, "ignore": ["id"], "out": s3_server.url("runs/query"), "overwrite": True}
    for copies in (1, 2):
        seen = Seen()
        result = train_configured(make_config(values, origin="here"), [seen])
        assert len(list(Path("cache/dray").iterdir())) == copies
        kinds = [event.kind for event in seen.events]
        assert kinds.count("copied") == 1 and kinds.index("progress") < kinds.index("copied")
        assert kinds.index("copied") < kinds.index("run_started") and seen.closed
        told = [event.message for event in seen.events if event.kind == "warning"]
        assert sum("Rejected rows" in message for message in told) == 1
        assert sum("Rejected rows" in message for message in result.warnings) == 1
        assert 0 < result.seconds.copy < result.seconds.total and result.seconds.start >= 0
    run = open_run(values["out"])
    lines = [json.loads(line) for line in run.read_bytes("events.jsonl").splitlines()]
    assert [line["kind"] for line in lines].count("copied") == 1 and lines[0]["kind"] == "run_started"
    [copy] = run.read_json("data.json")["copies"].values()
    assert json.loads(Path(copy, "_kept_for.json").read_text())["run"] == run.location


def test_a_sink_is_closed_when_the_run_that_would_replace_another_cannot_begin(data: str, s3_server: S3Server) -> None:
    from dray.learners.configs import make_config
    from dray.training.train import train as train_configured

    values = {"data": data, "label": "nope", "workers": 0, "out": s3_server.url("runs/never"), "overwrite": True}
    seen = Seen()
    with pytest.raises(dray.DataError, match="nope"):
        train_configured(make_config(values, origin="here"), [seen])
    assert seen.closed


def test_an_ingest_is_replaced_and_only_an_ingest(data: str) -> None:
    dray.ingest(data, "out")
    dray.ingest(data, "out", filter="id > 100", overwrite=True)
    document = json.loads(Path("out/_ingest.json").read_text())
    assert document["result"]["output"] == str(Path("out").absolute())
    assert {path.name for path in Path().iterdir()} == {"data", "out"}
    kept = document["result"]["rows_kept"]
    Path("out/mine.txt").touch()
    with pytest.raises(StorageError, match=r"did not write mine\.txt"):
        dray.ingest(data, "out", overwrite=True)
    Path("out/mine.txt").unlink()
    Path("out/_ingest.json").unlink()
    with pytest.raises(StorageError, match=r"no _ingest\.json"):
        dray.ingest(data, "out", overwrite=True)
    assert 0 < kept < 300


def write_nights(*ids: str) -> None:
    """Write one CSV file a night; a night's id that is not a number is a row that is rejected."""
    Path("nights").mkdir(exist_ok=True)
    for night, one in enumerate(ids):
        Path(f"nights/{night}.csv").write_text("id\n" + f"{one}\n" * 10)


INTEGERS = {"types": {"id": "int64"}}


@pytest.mark.parametrize("first", ["1", "bad"], ids=["beside", "in place"])
@pytest.mark.parametrize("where", ["local", "store"])
def test_a_night_that_failed_is_in_no_other_nights_way(data: str, first: str, where: str, s3_server: S3Server) -> None:
    out = "out" if where == "local" else s3_server.url("out")
    nights = [first, "bad"]
    write_nights(first)
    if first == "1":
        assert dray.ingest("nights", out, read=INTEGERS, overwrite=True).rows_kept == 10
    for _ in range(2):  # the second one has the same data: it goes on, to the same end
        write_nights(*nights)
        with pytest.raises(DrayError, match="could not be read"):
            dray.ingest("nights", out, read=INTEGERS, overwrite=True)
    write_nights("1", "2", "3")
    with pytest.raises(DrayError, match='"none"'):  # a mistake costs nothing of what is unfinished
        dray.ingest("nights", out, read=INTEGERS, overwrite=True, sort=["none"])
    result = dray.ingest("nights", out, read=INTEGERS, overwrite=True)
    assert (result.rows_kept, dray.describe(out).rows.value) == (30, 30)
    assert {path.name for path in Path().iterdir()} <= {"data", "nights", "out"}


def test_an_ingest_with_other_options_begins_anew_unless_the_output_holds_something_else(data: str) -> None:
    write_nights("1", "bad")
    with pytest.raises(DrayError, match="could not be read"):
        dray.ingest("nights", "out", read=INTEGERS)
    Path("out/mine.txt").touch()
    with pytest.raises(StorageError, match=r"did not write mine\.txt"):
        dray.ingest("nights", "out", read=INTEGERS, filter="id < 5", max_rejects="50%", overwrite=True)
    Path("out/mine.txt").unlink()
    with pytest.raises(DrayError, match="with other options"):
        dray.ingest("nights", "out", read=INTEGERS, filter="id < 5", max_rejects="50%")
    dray.ingest("nights", "out", read=INTEGERS, filter="id < 5", max_rejects="50%", overwrite=True)
    assert dray.describe("out").rows.value == 10


def test_an_unfinished_ingest_whose_process_lives_is_not_replaced(data: str) -> None:
    from dray.ingesting.journal import Journal
    from dray.storage import DEFAULT

    write_nights("1", "bad")
    with pytest.raises(DrayError, match="could not be read"):
        dray.ingest("nights", "out", read=INTEGERS)
    write_nights("1", "2")
    with Journal("out", DEFAULT).claimed(), pytest.raises(StorageError, match="is writing"):
        dray.ingest("nights", "out", read=INTEGERS, overwrite=True)
    assert dray.ingest("nights", "out", read=INTEGERS, overwrite=True).rows_kept == 20


def test_an_ingest_that_was_killed_at_its_very_end_is_replaced(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its result and the removal of its journal; and complete, but beside what it was to replace."""
    with monkeypatch.context() as patched:
        patched.setattr("dray.ingesting.journal.Journal.delete_folder", lambda *_: None)
        patched.setattr("dray.runs.files.RunFiles.delete_folder", lambda *_: None)
        dray.ingest(data, "out")
    assert Path("out/_ingest/plan.json").exists() and Path("out/_ingest.json").exists()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("dray.ingesting.ingest.take_the_place", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        dray.ingest(data, "out", overwrite=True)
    assert Path(beside("out"), "_ingest.json").exists()
    assert dray.ingest(data, "out", filter="id > 100", overwrite=True).rows_kept < 300
    assert {path.name for path in Path().iterdir()} == {"data", "out"} and not Path("out/_ingest").exists()


def test_predictions_are_replaced_by_a_name_of_today(data: str) -> None:
    train(data, "runs/%Y")
    for overwrite in (False, True):
        result = dray.predict("latest", data, "out/%Y-x", overwrite=overwrite, workers=0)
    assert "%" not in result.output
    assert Path(result.output, ".dray-output.json").exists()


def test_what_was_put_into_an_output_while_the_new_one_was_made_stays(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray.runs import replacing

    train(data, "run")
    dray.predict("run", data, "out", workers=0)
    dray.ingest(data, "rows")
    rename = replacing.os.rename

    def meanwhile(old: str, new: str) -> None:
        if str(new).endswith(".dray-old"):
            Path(old, "notes").mkdir()
            Path(old, "notes/mine.txt").write_text("precious")
            Path(old, "link").symlink_to("notes")
        rename(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(replacing.os, "rename", meanwhile)
        train(data, "run", rounds=3, overwrite=True)
        dray.predict("run", data, "out", workers=0, overwrite=True)
        dray.ingest(data, "rows", overwrite=True)
    assert open_run("run").document["result"]["rounds"] == 3
    for out in ("run", "out", "rows"):
        assert Path(out, "notes/mine.txt").read_text() == "precious"
        assert Path(out, "link").is_symlink()
    assert {path.name for path in Path().iterdir()} == {"data", "run", "out", "rows"}


def test_what_a_killed_process_left_of_an_old_output_is_not_taken_for_something_else(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray.runs import replacing

    train(data, "run")
    dray.predict("run", data, "out", workers=0)
    mark = Path("out/.dray-output.json")

    def killed(place: str) -> None:
        Path(place, mark.name).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(replacing.shutil, "rmtree", lambda place: killed(place) if Path(place).exists() else None)
        Path("out/.dray-output.json").touch()
        replacing.os.mkdir(beside("out"))
        Path(beside("out"), "new").touch()
        from dray.batch.output import _foreign

        replacing.take_the_place("out", _foreign)
    assert [path.name for path in Path("out").iterdir()] == ["new"]
    Path("out/new").unlink()
    dray.predict("run", data, "out", workers=0)
    dray.predict("run", data, "out", workers=0, overwrite=True)
    assert {path.name for path in Path().iterdir()} == {"data", "run", "out"}


def test_an_ingest_on_a_store_stays_when_the_new_one_cannot_be_made(data: str, s3_server: S3Server) -> None:
    rows = s3_server.url("rows")
    dray.ingest(data, rows)
    for source, asked in ((rows, {}), (data, {"filter": "id >"}), (data, {"columns": ["nope"]})):
        with pytest.raises(DrayError):
            dray.ingest(source, rows, overwrite=True, **asked)
        assert dray.describe(rows).rows.value == 300
    assert dray.ingest(data, rows, filter="id > 100", overwrite=True).rows_kept < 300


def test_a_file_that_the_command_reads_or_that_belongs_to_a_model_is_never_replaced(data: str) -> None:
    import pyarrow.parquet as pq

    train(data, "run")
    pq.write_table(pq.read_table(data), "rows.parquet")
    content = Path("rows.parquet").read_bytes()
    Path("elsewhere").symlink_to(".")
    for read in ("rows.parquet", "./rows.parquet", "rows*.parquet", ["rows.parquet"], "elsewhere/rows.parquet"):
        with pytest.raises(StorageError, match="is read by the same command"):
            dray.predict("run", read, "rows.parquet", workers=0, overwrite=True)
    with pytest.raises(StorageError, match="is a file of the run"):
        dray.predict("run", "rows.parquet", "run/rounds.parquet", workers=0, overwrite=True)
    assert Path("rows.parquet").read_bytes() == content
    for overwrite in (False, True):
        dray.predict("run", "rows.parquet", "run/predicted.parquet", workers=0, overwrite=overwrite)


def test_an_output_on_a_store_is_not_removed_before_it_is_read(data: str, s3_server: S3Server) -> None:
    out = s3_server.url("out")
    train(data, "run")
    dray.predict(
        "run",
        data,
        out,
        keep=["one", "gaps", "whole", "flag", "colour", "shape", "day", "moment", "price", "weight"],
        workers=0,
    )
    columns = len(dray.describe(out).columns)
    with pytest.raises(StorageError, match="is read by the same command"):
        dray.predict("run", out, out, workers=0, overwrite=True)
    assert len(dray.describe(out).columns) == columns


def test_what_was_left_between_two_renames_goes_with_the_next_one(data: str) -> None:
    train(data, "run")
    Path("run").rename(".run.dray-old")
    Path(".run.dray-old/mine.txt").touch()
    train(data, "run", overwrite=True)  # there is none to replace
    assert Path(".run.dray-old").exists()
    train(data, "run", overwrite=True)
    assert {path.name for path in Path().iterdir()} == {"data", "run"}
    assert Path("run/mine.txt").exists()
