"""What travels with a job."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dray.errors import ConfigError
from dray.jobs import package
from dray.jobs.package import File, pack, refuse_large
from dray.jobs.selecting import select


def make(root: Path, *names: str, size: int = 1) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


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


def test_a_file_that_became_a_link_out_of_the_directory_is_not_packed(tmp_path: Path) -> None:
    make(tmp_path, "secret.txt", "code/main.py", "code/data.txt")
    files = select(tmp_path / "code").files
    (tmp_path / "code" / "data.txt").unlink()
    (tmp_path / "code" / "data.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ConfigError, match=r"data\.txt cannot be packed: it is a link that leads out"):
        pack(tmp_path / "job.zip", tmp_path / "code", files, {})


def test_a_file_that_went_away_meanwhile_is_named(tmp_path: Path) -> None:
    make(tmp_path, "code/main.py")
    files = select(tmp_path / "code").files
    (tmp_path / "code" / "main.py").unlink()
    with pytest.raises(ConfigError, match=r"main\.py cannot be packed: No such file"):
        pack(tmp_path / "job.zip", tmp_path / "code", files, {})
