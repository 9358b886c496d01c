"""Outputs: free, or replaced if dray wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.batch.output import MARK, Output
from dray.errors import StorageError
from dray.mapping.results_files import result_files
from dray.storage import DEFAULT, write_atomically
from s3_server import S3Server


def write(out: str, content: str, *, is_file: bool = False, overwrite: bool = False, name: str = "a/part") -> None:
    with Output(out, DEFAULT, is_file=is_file, overwrite=overwrite) as output:
        place = output.out if is_file else f"{output.out}/{name}"
        write_atomically(output.writing(place), DEFAULT, lambda file: file.write(content.encode()))


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_what_dray_wrote_is_replaced_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(str(out), "old", name="old")
    write(str(out), "new", name="new", overwrite=True)
    assert names(tmp_path) == {"out/new", f"out/{MARK}"}
    write(str(out), "third", name="new", overwrite=True)
    assert (out / "new").read_text() == "third"


def test_without_overwriting_it_is_refused_with_the_flag(tmp_path: Path) -> None:
    write(f"{tmp_path}/out", "old")
    with pytest.raises(StorageError) as caught:
        write(f"{tmp_path}/out", "new")
    assert "--overwrite" in caught.value.fix


@pytest.mark.parametrize("is_file", [True, False])
def test_the_old_one_stays_when_the_new_one_fails(is_file: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(str(out), "old", is_file=is_file)
    before = names(tmp_path)
    with pytest.raises(RuntimeError), Output(str(out), DEFAULT, is_file=is_file, overwrite=True) as output:
        if not is_file:
            write_atomically(output.writing(f"{out}/half"), DEFAULT, lambda file: file.write(b"half"))
            assert names(out) == {"a/part", MARK}  # meanwhile
        raise RuntimeError
    assert names(tmp_path) == before


def test_a_directory_with_a_file_of_something_else_is_refused_and_the_file_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(str(out), "old")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"did not write notes\.txt"):
        write(str(out), "new", overwrite=True)
    (out / "notes.txt").unlink()
    (out / "a/part").write_text("changed by another program")
    with pytest.raises(StorageError, match="did not write a/part"):
        write(str(out), "new", overwrite=True)


def test_a_directory_without_a_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.parquet").touch()
    with pytest.raises(StorageError, match="no mark of dray"):
        write(f"{tmp_path}/out", "new", overwrite=True)


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(f"{tmp_path}/real", "old")
    (tmp_path / "out").symlink_to(tmp_path / "real")
    with pytest.raises(StorageError, match="is a link"):
        write(f"{tmp_path}/out", "new", overwrite=True)
    (tmp_path / "real/inner").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="did not write inner"):
        write(f"{tmp_path}/real", "new", overwrite=True)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(StorageError, match="is a link"):
        write(f"{tmp_path}/link", "new", is_file=True, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_replaces_a_file_and_a_directory_a_directory(tmp_path: Path) -> None:
    write(f"{tmp_path}/f.csv", "old", is_file=True)
    write(f"{tmp_path}/f.csv", "new", is_file=True, overwrite=True)
    assert (tmp_path / "f.csv").read_text() == "new"
    with pytest.raises(StorageError, match="is a file"):
        write(f"{tmp_path}/f.csv", "new", overwrite=True)
    write(f"{tmp_path}/out", "old")
    with pytest.raises(StorageError, match="is a directory"):
        write(f"{tmp_path}/out", "new", is_file=True, overwrite=True)


def test_what_is_not_there_or_empty_is_written_as_ever(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        write(f"{tmp_path}/{name}", "new", overwrite=True)
        assert names(tmp_path / name) == {"a/part", MARK}


def test_objects_of_a_store_are_replaced(s3_server: S3Server) -> None:
    write(s3_server.url("out"), "old", name="old")
    write(s3_server.url("out"), "new", name="new", overwrite=True)
    assert names(s3_server.directory / "out") == {"new", MARK}
    write_atomically(s3_server.url("out/mine"), DEFAULT, lambda file: file.write(b"mine"))
    with pytest.raises(StorageError, match="did not write mine"):
        write(s3_server.url("out"), "new", overwrite=True)


def test_two_processes_do_not_replace_the_same_output_at_once(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    write(out, "old")
    with Output(out, DEFAULT, is_file=False, overwrite=True) as output:
        write_atomically(output.writing(f"{out}/first"), DEFAULT, lambda file: file.write(b"first"))
        with pytest.raises(StorageError, match="Another process"):
            write(out, "second", overwrite=True)
    assert names(tmp_path) == {"out/first", f"out/{MARK}"}
    (tmp_path / ".out.dray-new").mkdir()  # of one that was killed
    (tmp_path / ".out.dray-new/half").touch()
    write(out, "third", overwrite=True)
    assert names(tmp_path) == {"out/a/part", f"out/{MARK}"}


def test_a_list_beside_a_single_file_is_refused_or_removed_as_the_file_is(tmp_path: Path) -> None:
    out, list_ = f"{tmp_path}/out.csv", tmp_path / "out.csv.rejects.jsonl"
    list_.write_text("of an earlier output")
    with pytest.raises(StorageError, match=r"rejects\.jsonl exists") as caught:
        Output(out, DEFAULT, is_file=True, companion=str(list_))
    assert "--overwrite" in caught.value.fix
    with pytest.raises(RuntimeError), Output(out, DEFAULT, is_file=True, overwrite=True, companion=str(list_)):
        raise RuntimeError
    assert list_.exists()
    with Output(out, DEFAULT, is_file=True, overwrite=True, companion=str(list_)) as output:
        output.remove_companion()
    assert not list_.exists()
    with Output(out, DEFAULT, is_file=True, companion=str(list_)) as output:
        output.remove_companion()  # there is none


def test_a_list_of_failures_of_an_earlier_map_does_not_stay_beside_new_results(tmp_path: Path) -> None:
    out, list_ = f"{tmp_path}/out.jsonl", tmp_path / "out.jsonl.failures.jsonl"
    list_.write_text("of an earlier map")
    with pytest.raises(StorageError, match=r"failures\.jsonl exists"), result_files(out, DEFAULT):
        pass
    with result_files(out, DEFAULT, overwrite=True) as files:
        files.add(1)
        assert files.publish() == [out]
    assert not list_.exists()
