"""The directory on a machine: which one may be used, and that only what dray and Ray wrote is removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.fleet.host.logs import cleanup
from dray.clusters.fleet.host.nodes import claim, install, stop
from dray.clusters.fleet.host.place import TroubleError, read_state, write_state
from dray.clusters.fleet.host.ray_process import RayProcess

SESSION = "session_2026-01-02_03-04-05_678901_23"


def ask(directory: Path, **values: Any) -> dict[str, Any]:
    docker = {"command": "false", "image": "x", "shm_size": None, "network": "host"}  # Ray is not needed here
    given = {"cluster": "id", "name": "lab", "owner": "me@here", "token": "secret", "docker": docker}
    return {**given, "directory": str(directory), **values}


def claimed(directory: Path) -> Path:
    """Return a directory as it is while nodes run."""
    claim(ask(directory), RayProcess())
    state = read_state(directory)
    write_state(directory, {**state, "nodes": {"0": {}, "1": {}}})
    for index in "01":
        node = directory / "ray" / index
        (node / SESSION / "logs").mkdir(parents=True)
        (node / SESSION / "logs" / "raylet.out").write_text("x")
        (node / "session_latest").symlink_to(node / SESSION)
        (node / "ray_current_cluster").write_text("x")
        (node / "prom_metrics_service_discovery.json").symlink_to(node / SESSION / "prom.json")
    (directory / "logs").mkdir()
    (directory / "logs" / "start-1.log").write_text("x")
    return directory


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_symlink() or path.is_file()}


def test_a_directory_with_files_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(TroubleError, match=r"holds files that dray did not write: thesis\.tex"):
        claim(ask(tmp_path), RayProcess())
    assert stop(ask(tmp_path), RayProcess()) == ""
    assert names(tmp_path) == {"thesis.tex"}


def test_everything_that_dray_and_ray_wrote_goes_with_the_directory_that_dray_made(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    assert stop(ask(directory), RayProcess()) == ""
    assert not directory.exists()


def test_an_empty_directory_that_was_there_before_stays(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    claimed(directory)
    assert stop(ask(directory), RayProcess()) == ""
    assert directory.is_dir()
    assert not list(directory.iterdir())


def test_directories_of_others_are_kept_though_they_have_the_names_of_files_of_dray(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    for name in ("env-311", "token.7", "logs/start-3.log"):
        (directory / name).mkdir()
        (directory / name / "mine").write_text("x")
    assert "env-311" in stop(ask(directory), RayProcess())
    assert names(directory) == {"env-311/mine", "token.7/mine", "logs/start-3.log/mine"}


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_mark_does_not_make_up_for_a_directory_that_others_can_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    directory = claimed(tmp_path / "d")
    claim(ask(directory), RayProcess())
    directory.chmod(mode)
    if mode == 0o755:  # its owner is another user than this process
        info = os.stat_result((*list(directory.stat())[:4], 12345, *list(directory.stat())[5:]))
        monkeypatch.setattr(os, "fstat", lambda _: info)
    with pytest.raises(TroubleError, match=r"can be written by everyone|belongs to another user"):
        claim(ask(directory), RayProcess())


def test_a_virtual_environment_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    request = ask(tmp_path, venv=str(tmp_path / "file" / "a" / "venv"), requirements=[])
    with pytest.raises(TroubleError, match=r"venv .* failed"):
        install(request, lambda _: None)


def test_files_that_others_put_there_meanwhile_are_kept_and_named(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    mine = {"a.csv", "token.bak", "logs/mine.log", "ray/notes", "ray/1/result.parquet", "ray/x/y", "more/z"}
    for name in mine:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text("x")
    told = stop(ask(directory), RayProcess())
    assert names(directory) == mine
    assert told == f"{directory} was kept: it holds what dray did not write or may not remove " + (
        "(a.csv, logs/mine.log, more and 4 more)"
    )


def test_no_link_is_followed_out_of_the_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / SESSION).mkdir(parents=True)
    (outside / SESSION / "file").write_text("x")
    (outside / "start-1.log").write_text("x")
    directory = claimed(tmp_path / "d")
    (directory / "ray" / "1" / SESSION / "logs" / "old").symlink_to(outside)
    (directory / "ray" / "0" / "session_2020-01-01_1").symlink_to(outside)
    (directory / "ray" / "2").symlink_to(outside)
    (directory / "logs" / "start-1.log").unlink()
    (directory / "logs").rmdir()
    (directory / "logs").symlink_to(outside)
    assert cleanup(ask(directory, limit_bytes=0))["removed"] == 0
    stop(ask(directory, nodes=[0]), RayProcess())
    assert stop(ask(directory), RayProcess()).endswith("(logs, ray/2)")
    assert names(outside) == {f"{SESSION}/file", "start-1.log"}


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(TroubleError, match=f"is a link to {target}"):
        claim(ask(tmp_path / "link"), RayProcess())
    assert not list(target.iterdir())


def test_nothing_is_removed_through_a_link_that_was_put_in_its_place(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    directory.rename(tmp_path / "elsewhere")
    before = names(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TroubleError, match=r"has become a link .* nothing was removed"):
        stop(ask(directory), RayProcess())
    assert names(tmp_path / "elsewhere") == before


def test_the_root_a_home_directory_and_a_mount_point_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "linked").symlink_to(tmp_path)
    for directory, words in {
        "/": "is the root of the file system",
        "~": "is a home directory",
        str(tmp_path / "linked" / "home"): "is a home directory",
        "/dev/shm": "is a mount point",
    }.items():
        with pytest.raises(TroubleError, match=words):
            claim(ask(Path(directory)), RayProcess())
    assert not list(home.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="mounts")
def test_another_file_system_below_is_not_emptied(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "file").write_text("x")
    place = directory / "ray" / "1" / SESSION / "data"
    place.mkdir()
    subprocess.run(["mount", "--bind", str(disk), str(place)], check=True)
    try:
        told = stop(ask(directory), RayProcess())
        assert (disk / "file").exists()
        assert f"ray/1/{SESSION}" in told
        (tmp_path / "empty").mkdir()
        subprocess.run(["mount", "--bind", str(tmp_path / "empty"), str(tmp_path / "empty")], check=True)
        try:
            with pytest.raises(TroubleError, match="is a mount point"):
                claim(ask(tmp_path / "empty"), RayProcess())
        finally:
            subprocess.run(["umount", str(tmp_path / "empty")], check=True)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_the_directory_of_a_cluster_of_another_name_is_refused(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    with pytest.raises(TroubleError, match="belongs to the cluster lab"):
        claim(ask(directory, cluster="other", name="other"), RayProcess())
    claim(ask(directory, cluster="later"), RayProcess())
    assert read_state(directory)["cluster"] == "later"
    assert not list((directory / "ray").iterdir())
    stop(ask(directory, cluster="later"), RayProcess())
    assert not directory.exists()


def test_a_directory_that_everyone_may_write_to_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(TroubleError, match="can be written by everyone"):
        claim(ask(directory), RayProcess())


@pytest.mark.parametrize(
    "nodes", ['{"../../outside": {}}', '{"1": {"processes": [[1]]}}', "[]", '{"1": {"session": 1}}', '{"1": 3}', "{"]
)
def test_a_damaged_mark_ends_and_removes_nothing(tmp_path: Path, nodes: str) -> None:
    directory = claimed(tmp_path / "d")
    (tmp_path / "outside" / SESSION).mkdir(parents=True)
    state = (directory / "state.json").read_text()
    text = state[: state.index('"nodes"')] + f'"nodes": {nodes}, ' + state[state.index('"made"') :]
    (directory / "state.json").write_text(text)
    before = names(tmp_path)
    for do in (claim, stop):
        with pytest.raises(TroubleError, match=r"state\.json (is damaged|cannot be read)"):
            do(ask(directory), RayProcess())
    assert names(tmp_path) == before
    assert (tmp_path / "outside" / SESSION).is_dir()


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    directory = claimed(tmp_path / "d")
    victim = tmp_path / "victim"
    victim.write_text("x")
    (directory / f"state.json.{os.getpid()}").symlink_to(victim)
    claim(ask(directory), RayProcess())
    assert victim.read_text() == "x"
