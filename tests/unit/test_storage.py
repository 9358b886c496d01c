"""Locations, finding files, atomic writes and the errors of disks and object stores."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs as pafs

from dray.errors import DataError, StorageError
from dray.s3 import redact
from dray.storage import (
    DEFAULT,
    StorageOptions,
    absolute,
    expand,
    join,
    open_storage,
    remove_directory,
    translate_errors,
    write_atomically,
)
from s3_server import S3Server


def make_tree(root: Path, *names: str) -> None:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A location and the directory behind it, once on disk and once on S3."""
    if request.param == "local":
        return str(tmp_path / "data"), tmp_path / "data"
    server: S3Server = request.getfixturevalue("s3_server")
    return server.url("data"), server.directory / "data"


class TestExpand:
    def test_a_file_is_itself(self, place: tuple[str, Path]) -> None:
        location, root = place
        make_tree(root, "a.parquet")
        assert expand([join(location, "a.parquet")]) == [join(location, "a.parquet")]

    def test_a_directory_is_all_its_files_in_order_without_hidden_ones(self, place: tuple[str, Path]) -> None:
        location, root = place
        make_tree(root, "b.parquet", "a/c.parquet", "_SUCCESS", ".crc", "_log/1.json", "a/.d", "a/_e/f.parquet")
        assert expand([location]) == [join(location, "a/c.parquet"), join(location, "b.parquet")]

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*.parquet", ["1.parquet", "2.parquet"]),
            ("[!1].parquet", ["2.parquet"]),
            ("[1-9].parquet", ["1.parquet", "2.parquet"]),
            ("?.csv", ["1.csv"]),
            ("**/*.parquet", ["1.parquet", "2.parquet", "year=1/a/x.parquet", "year=2/y.parquet"]),
            ("year=*", ["year=1/a/x.parquet", "year=2/y.parquet"]),
            ("year=*/*.parquet", ["year=2/y.parquet"]),
            ("year=1/**", ["year=1/a/x.parquet"]),
            ("_h*/*", ["_hidden/z.parquet"]),
        ],
    )
    def test_a_glob_matches_names_and_whole_directories(
        self, place: tuple[str, Path], pattern: str, expected: list[str]
    ) -> None:
        location, root = place
        make_tree(root, "1.parquet", "2.parquet", "2.parquet.crc", "1.csv", "_hidden/z.parquet")
        make_tree(root, "year=1/a/x.parquet", "year=2/y.parquet", "_x.parquet")
        assert expand([join(location, pattern)]) == [join(location, name) for name in expected]

    def test_several_locations_are_merged_and_no_file_is_taken_twice(self, place: tuple[str, Path]) -> None:
        location, root = place
        make_tree(root, "b", "a")
        assert expand([location, join(location, "a")]) == [join(location, "a"), join(location, "b")]

    def test_what_matches_nothing_is_named(self, place: tuple[str, Path]) -> None:
        location, root = place
        make_tree(root, "a.csv")
        for missing in ("nothing", "*.parquet", "no/such/*"):
            with pytest.raises(DataError, match="No file found") as caught:
                expand([join(location, missing)])
            assert join(location, missing) in caught.value.what
            assert caught.value.fix

    def test_a_name_with_brackets_is_found_as_it_stands(self, tmp_path: Path) -> None:
        make_tree(tmp_path, "part[1].parquet")
        assert expand([str(tmp_path / "part[1].parquet")]) == [str(tmp_path / "part[1].parquet")]

    def test_relative_paths_become_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make_tree(tmp_path, "a")
        monkeypatch.chdir(tmp_path)
        assert expand(["a"]) == [str(tmp_path / "a")]
        with pytest.raises(DataError) as caught:
            expand(["b"])
        assert str(tmp_path / "b") in caught.value.what

    def test_no_location_at_all_is_an_error(self) -> None:
        with pytest.raises(DataError):
            expand([])


class TestWriteAtomically:
    def test_the_file_appears_with_its_parents(self, place: tuple[str, Path]) -> None:
        location, root = place
        write_atomically(join(location, "deep/er/file"), DEFAULT, lambda file: file.write(b"hello"))
        assert (root / "deep/er/file").read_bytes() == b"hello"

    def test_a_large_file_is_written_whole(self, place: tuple[str, Path]) -> None:
        location, root = place
        block = os.urandom(1 << 20)

        def write(file: pa.NativeFile) -> None:
            for _ in range(20):
                file.write(block)

        write_atomically(join(location, "large"), DEFAULT, write)
        assert (root / "large").read_bytes() == block * 20

    def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(self, place: tuple[str, Path]) -> None:
        location, root = place
        make_tree(root, "file")

        def fail(file: pa.NativeFile) -> None:
            file.write(b"half")
            raise RuntimeError("interrupted")

        with pytest.raises(RuntimeError):
            write_atomically(join(location, "file"), DEFAULT, fail)
        assert [path.name for path in root.iterdir()] == ["file"]
        assert (root / "file").read_text() == "file"

    def test_a_directory_is_removed_and_a_missing_one_is_no_error(self, place: tuple[str, Path]) -> None:
        location, root = place
        make_tree(root, "run/a", "run/b/c", "other")
        remove_directory(join(location, "run"))
        remove_directory(join(location, "run"))
        assert [path.name for path in root.iterdir()] == ["other"]


def list_files(location: str, options: StorageOptions = DEFAULT) -> list[str]:
    return expand([location], options)


def write_file(location: str, options: StorageOptions = DEFAULT) -> None:
    write_atomically(join(location, "file"), options, lambda file: file.write(b"x"))


@pytest.mark.parametrize("use", [list_files, write_file])
class TestS3Errors:
    """Each is a StorageError with a fix, and comes quickly."""

    def raised(self, use: Callable[..., object], location: str, options: StorageOptions = DEFAULT) -> StorageError:
        started = time.monotonic()
        with pytest.raises(StorageError) as caught:
            use(location, options)
        assert time.monotonic() - started < 10
        assert caught.value.fix
        return caught.value

    @pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
    def test_wrong_credentials(
        self, use: Callable[..., object], name: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "somethingelse")
        error = self.raised(use, s3_server.url("data"))
        assert "AWS_SECRET_ACCESS_KEY" in error.fix
        assert "somethingelse" not in str(error)

    def test_no_credentials(
        self, use: Callable[..., object], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        assert "AWS_ACCESS_KEY_ID" in self.raised(use, s3_server.url("data")).fix

    def test_a_missing_bucket(self, use: Callable[..., object], s3_server: S3Server) -> None:
        assert 'no bucket "nowhere"' in self.raised(use, "s3://nowhere/data").what

    @pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://no-such-host.invalid:9000"])
    def test_an_endpoint_that_does_not_answer(
        self, use: Callable[..., object], endpoint: str, s3_server: S3Server
    ) -> None:
        error = self.raised(use, s3_server.url("data"), StorageOptions(endpoint=endpoint))
        assert endpoint in error.what
        assert "reached" in error.what

    def test_credentials_in_the_location_are_refused_and_not_repeated(
        self, use: Callable[..., object], s3_server: S3Server
    ) -> None:
        for location in ("s3://key:hunter2@bucket/data", "s3://key:hunt/er2@bucket/data"):
            assert "er2" not in str(self.raised(use, location, DEFAULT))

    @pytest.mark.parametrize(
        "endpoint", ["http://key:hunter2@127.0.0.1:9000", "http://key:hun/ter2@127.0.0.1", "http://:hunter2@127.0.0.1"]
    )
    def test_credentials_in_an_endpoint_are_refused_wherever_it_comes_from_and_not_repeated(
        self, use: Callable[..., object], endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(StorageError, match="holds credentials") as caught:
            StorageOptions(endpoint=endpoint)
        assert "ter2" not in str(caught.value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        assert "ter2" not in str(self.raised(use, "s3://bucket/data", DEFAULT))


class TestS3Settings:
    def test_the_options_name_the_endpoint(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        make_tree(s3_server.directory, "a")
        options = StorageOptions(endpoint=s3_server.endpoint, region="eu-west-1")
        assert expand([s3_server.url()], options) == [s3_server.url("a")]

    def test_a_profile_gives_credentials_and_wins_over_the_environment_when_named(
        self, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_tree(s3_server.directory, "a")
        credentials, config = tmp_path / "credentials", tmp_path / "config"
        credentials.write_text(
            f"[work]\naws_access_key_id = {s3_server.access_key}\naws_secret_access_key = {s3_server.secret_key}\n"
        )
        config.write_text(f"[profile work]\nregion = eu-west-1\nendpoint_url = {s3_server.endpoint}\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrongwrongwrong")
        assert expand([s3_server.url()], StorageOptions(profile="work")) == [s3_server.url("a")]
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_PROFILE", "work")
        assert expand([s3_server.url()]) == [s3_server.url("a")]

    def test_a_profile_that_does_not_exist_is_named(self, s3_server: S3Server) -> None:
        with pytest.raises(StorageError, match='no profile "wrok"'):
            open_storage(s3_server.url(), StorageOptions(profile="wrok"))

    def test_making_a_client_leaves_the_environment_as_it_was(self, s3_server: S3Server) -> None:
        before = dict(os.environ)
        write_file(s3_server.url())
        assert dict(os.environ) == before

    def test_options_hold_no_credentials(self, s3_server: S3Server) -> None:
        open_storage(s3_server.url())
        assert s3_server.secret_key.encode() not in pickle.dumps(StorageOptions(endpoint=s3_server.endpoint))

    def test_secrets_of_the_environment_are_struck_out_of_text(self, s3_server: S3Server) -> None:
        assert redact(f"signed with {s3_server.secret_key}") == "signed with ***"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def nobody() -> Iterator[None]:
    """Be a user without special rights."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


class TestLocalErrors:
    def test_a_full_disk_leaves_nothing_behind(self, small_disk: Path) -> None:
        with pytest.raises(StorageError, match="No space left") as caught:
            write_atomically(str(small_disk / "run/model"), DEFAULT, lambda file: file.write(bytes(4 << 20)))
        assert "Free" in caught.value.fix
        assert list((small_disk / "run").iterdir()) == []

    def test_a_forbidden_directory(self, tmp_path: Path, nobody: None) -> None:
        for action in (lambda: write_file("/etc/dray-test"), lambda: expand(["/proc/1/map_files/*"])):
            with pytest.raises(StorageError, match="No permission") as caught:
                action()
            assert caught.value.fix

    def test_a_read_only_disk(self, small_disk: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        with pytest.raises(StorageError, match="Read-only"):
            write_file(str(small_disk))

    def test_a_file_in_the_way_of_a_directory(self, tmp_path: Path) -> None:
        make_tree(tmp_path, "file")
        with pytest.raises(StorageError, match="cannot be used"):
            write_file(str(tmp_path / "file"))

    def test_other_schemes_and_empty_paths_are_refused(self) -> None:
        for location in ("gs://bucket/key", "hdfs://host/path", ""):
            with pytest.raises(StorageError):
                open_storage(location)
        with pytest.raises(StorageError, match="no bucket"):
            open_storage("s3://")

    def test_a_file_url_is_a_path(self) -> None:
        assert open_storage("file:///a/b")[1] == "/a/b"

    def test_an_error_about_contents_is_left_to_the_reader(self) -> None:
        for error in (pa.ArrowInvalid("Parquet magic bytes not found"), OSError("Couldn't deserialize thrift")):
            with pytest.raises(type(error)) as caught, translate_errors("a.parquet"):
                raise error
            assert caught.value is error

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        missing = str(tmp_path / "missing")
        with pytest.raises(StorageError, match="missing does not exist"), translate_errors(missing):
            pafs.LocalFileSystem().open_input_file(missing)


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert absolute("~/data") == "/home/someone/data"


def test_a_location_of_another_kind_is_told_without_its_user() -> None:
    with pytest.raises(
        StorageError, match=r"Locations of https:// are not supported: https://\*\*\*@host/a\.csv\."
    ) as told:
        absolute("https://bob@host/a.csv")
    assert "bob" not in str(told.value)
