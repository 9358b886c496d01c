"""Paths that mean the same on both sides."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dray.errors import ConfigError, StorageError
from dray.jobs.commands.training import Train
from dray.jobs.shared import Head, as_absolute, check_output, check_paths, find_head, is_network, nearest_directory
from dray.learners.configs import make_config
from dray.storage import StorageOptions
from s3_server import CACHE_S, S3Server

MOUNTS = r"""/dev/sda1 / ext4 rw 0 0
server:/export /mnt/shared nfs4 rw 0 0
/dev/sdb1 /mnt/shared/local xfs rw 0 0
s3fs /mnt/bucket fuse.s3fs rw 0 0
portal /run/user/1000/doc fuse.portal rw 0 0
server:/odd /mnt/with\040space nfs rw 0 0
tmpfs /tmp tmpfs rw 0 0
"""
ELSEWHERE = Head("http://head:8265", ())


def here() -> Head:
    return Head("http://127.0.0.1:8265", (os.getpid(),))


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/home/me", False),
        ("/mnt/shared", True),
        ("/mnt/shared/runs/1", True),
        ("/mnt/shared/local/runs", False),
        ("/mnt/sharedother", False),
        ("/mnt/bucket/x", True),
        ("/run/user/1000/doc/x", False),
        ("/mnt/with space/x", True),
        ("/tmp/x", False),
    ],
)
def test_a_network_file_system_is_known_by_its_mount(path: str, network: bool) -> None:
    assert is_network(path, MOUNTS) is network


def test_a_local_path_is_refused_when_the_head_is_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"out is .*, a path of this machine") as caught:
        check_paths([("data", "s3://bucket/data"), ("out", str(tmp_path / "run"))], ELSEWHERE, MOUNTS)
    assert "s3://" in caught.value.fix
    check_paths([("out", "/mnt/shared/run"), ("data", "postgresql://host/db")], ELSEWHERE, MOUNTS)


def test_a_head_on_this_machine_sees_what_its_processes_see(tmp_path: Path) -> None:
    check_paths([("out", str(tmp_path / "new" / "run"))], here(), MOUNTS)
    assert not Head("http://127.0.0.1:8265", (2**22 - 1,)).sees(str(tmp_path))


def test_an_unknown_session_is_not_on_this_machine() -> None:
    assert not find_head("http://127.0.0.1:8265", "session_1999-01-01_00-00-00_000000_1").here
    assert not find_head("http://127.0.0.1:8265", "").here


def test_a_glob_is_looked_for_where_its_fixed_part_ends(tmp_path: Path) -> None:
    assert nearest_directory(f"{tmp_path}/*/part-?.parquet") == tmp_path
    assert nearest_directory(f"{tmp_path}/missing/deeper") == tmp_path


def test_relative_paths_become_absolute_and_addresses_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_absolute(["data", "s3://b/k", "postgresql://h/d", "/x"]) == [
        f"{tmp_path}/data",
        "s3://b/k",
        "postgresql://h/d",
        "/x",
    ]


def test_a_run_that_happens_elsewhere_needs_an_output_that_both_see() -> None:
    config = make_config({"data": ["s3://bucket/data"], "label": "y"})
    with pytest.raises(ConfigError, match="no output directory that both sides see") as caught:
        Train(config).settled(ELSEWHERE)
    assert "--out s3://" in caught.value.fix


def test_a_run_on_this_machine_has_its_output_in_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = make_config({"data": ["data"], "label": "y", "cluster": "http://127.0.0.1:8265"})
    settled = Train(config).settled(here()).config
    assert settled.data == (f"{tmp_path}/data",)
    assert str(settled.out).startswith(f"{tmp_path}/runs/")
    assert settled.cluster == here().url  # the word that the run keeps


def test_an_output_on_s3_is_tried_and_left_as_it_was(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    options = StorageOptions(endpoint=s3_server.endpoint)
    check_output(s3_server.url("jobs-output/run"), options)
    assert not (s3_server.directory / "jobs-output").exists()
    (s3_server.directory / "jobs-output" / "taken").mkdir(parents=True)
    (s3_server.directory / "jobs-output" / "taken" / "run.json").write_text("{}")
    time.sleep(2 * CACHE_S)
    with pytest.raises(StorageError, match="not empty"):
        check_output(s3_server.url("jobs-output/taken"), options)
    assert [path.name for path in (s3_server.directory / "jobs-output" / "taken").iterdir()] == ["run.json"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError):
        check_output(s3_server.url("jobs-output/other"), options)
