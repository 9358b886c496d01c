"""What travels with a job."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dray.errors import ConfigError
from dray.jobs import package
from dray.jobs.package import File, Ignore, pack, refuse_large, select


def make(root: Path, *names: str, size: int = 1) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


@pytest.mark.parametrize(
    ("pattern", "name", "directory", "ignored"),
    [
        ("*.csv", "a.csv", False, True),
        ("*.csv", "deep/down/a.csv", False, True),
        ("/a.csv", "deep/a.csv", False, False),
        ("data/", "data", True, True),
        ("data/", "data", False, False),
        ("data/*.bin", "data/a.bin", False, True),
        ("data/*.bin", "data/x/a.bin", False, False),
        ("data/**/a.bin", "data/x/y/a.bin", False, True),
        ("data/**", "data/x/y", False, True),
        ("**/cache", "x/cache", True, True),
        ("a?c", "abc", False, True),
        ("[ab].py", "b.py", False, True),
        ("[!ab].py", "b.py", False, False),
        ("# comment", "# comment", False, False),
        ("a+b", "a+b", False, True),
    ],
)
def test_patterns_mean_what_they_mean_to_git(pattern: str, name: str, directory: bool, ignored: bool) -> None:
    assert Ignore([pattern])(name, directory=directory) is ignored


def test_the_last_pattern_that_fits_decides() -> None:
    ignored = Ignore(["*.csv", "!keep.csv"])
    assert ignored("a.csv", directory=False)
    assert not ignored("keep.csv", directory=False)


def test_caches_secrets_and_what_git_ignores_stay_here_and_are_named(tmp_path: Path) -> None:
    make(tmp_path, "main.py", "lib/a.py", "lib/__pycache__/a.pyc", ".git/config", ".env", "key.pem", "data/big.bin")
    make(tmp_path, "runs/1/model.ubj", "lib/runs/kept.py", "notes.txt")
    (tmp_path / ".gitignore").write_text("data/\n")
    selection = select(tmp_path, excludes=["*.txt"])
    assert [file.name for file in selection.files] == [".gitignore", "main.py", "lib/a.py", "lib/runs/kept.py"]
    assert selection.left_out == (".env", ".git/", "data/", "key.pem", "lib/__pycache__/", "notes.txt", "runs/")


def test_a_link_to_nowhere_and_a_pipe_are_passed_over(tmp_path: Path) -> None:
    import os

    make(tmp_path, "main.py")
    (tmp_path / "broken").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    assert [file.name for file in select(tmp_path).files] == ["main.py"]


def test_a_directory_with_very_many_files_is_refused_before_all_are_looked_at(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}.txt" for number in range(6)))
    with pytest.raises(ConfigError, match="more than 5 files"):
        select(tmp_path, most=5)


def test_the_same_files_make_the_same_zip(tmp_path: Path) -> None:
    zips = []
    for name in ("one", "two"):
        root = tmp_path / name
        make(root, "main.py", "lib/a.py", size=5000)
        pack(tmp_path / f"{name}.zip", root, select(root).files, {".dray/job.json": b"{}"})
        zips.append((tmp_path / f"{name}.zip").read_bytes())
    assert zips[0] == zips[1]
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == [".dray/job.json", "main.py", "lib/a.py"]
        assert archive.read("lib/a.py") == b"x" * 5000


def test_a_program_stays_executable(tmp_path: Path) -> None:
    make(tmp_path, "tool.sh")
    (tmp_path / "tool.sh").chmod(0o755)
    pack(tmp_path / "job.zip", tmp_path, [File("tool.sh", 1)], {})
    with zipfile.ZipFile(tmp_path / "job.zip") as archive:
        assert archive.getinfo("tool.sh").external_attr >> 16 & 0o777 == 0o755


def test_an_upload_over_the_limit_is_refused_and_the_largest_files_are_named() -> None:
    files = [File("small.py", 10), File("data/a.bin", 80 << 20), File("data/b.bin", 30 << 20)]
    with pytest.raises(
        ConfigError, match=r"100 MiB.*The largest: data/a\.bin \(84 MB\), data/b\.bin \(31 MB\)"
    ) as caught:
        refuse_large(files, total_bytes=(100 << 20) + 1)
    assert "--exclude 'data/a.bin'" in caught.value.fix
    refuse_large(files, total_bytes=100 << 20)


def test_packing_stops_soon_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    monkeypatch.setattr(package, "LIMIT_BYTES", 200_000)
    for number in range(20):
        (tmp_path / f"{number:02}.bin").write_bytes(random.Random(number).randbytes(100_000))
    packed = pack(tmp_path / "job.zip", tmp_path, select(tmp_path).files, {})
    assert len(packed) == 20
    assert 200_000 < (tmp_path / "job.zip").stat().st_size < 400_000
