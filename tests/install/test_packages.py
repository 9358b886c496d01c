"""dray as others get it: a wheel and a source archive, installed where there is nothing, not even a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dray

ROOT = Path(dray.__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
ROWS = "x,city,y\n" + "".join(f"{n % 17},{'abc'[n % 3]},{n % 17 + 5 * (n % 3)}\n" for n in range(400))


def interpreter(version: str) -> str | None:
    """Return a Python of that version that runs: pyenv's (whose names on the PATH may lead nowhere), or the PATH's."""
    places = [*sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)]
    candidates = [*map(str, places), shutil.which(f"python{version}")]
    runs = (
        place for place in candidates if place and not subprocess.run([place, "-V"], capture_output=True).returncode
    )
    return next(runs, None)


def without_compilers(bin: Path) -> dict[str, str]:
    """Return an environment in which nothing can be compiled, and nothing of this project's own is found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PATH": f"{bin}{os.pathsep}/usr/bin{os.pathsep}/bin", "CC": "/bin/false", "CXX": "/bin/false"}


@dataclass(frozen=True)
class Packages:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT, check=True)
    return Packages(next(out.glob("*.whl")), next(out.glob("*.tar.gz")))


@dataclass(frozen=True)
class Place:
    """An environment with dray and what it needs, and nothing else."""

    python: Path
    environment: Mapping[str, str]

    def dray(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-m", "dray", *arguments]
        return subprocess.run(command, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False)


def installed(python: str, package: Path, directory: Path) -> Place:
    subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True)
    place = directory / "bin" / "python"
    environment = without_compilers(place.parent)
    only_wheels = ["--only-binary", ":all:", *(["--no-binary", "dray"] if package.suffix == ".gz" else [])]
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(place), *only_wheels]
    subprocess.run([*uv, str(package)], env=environment, check=True)
    return Place(place, environment)


@pytest.fixture(scope="module", params=VERSIONS)
def place(
    request: pytest.FixtureRequest, packages: Packages, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"there is no Python {request.param} here")
    directory = tmp_path_factory.mktemp("venv")
    yield installed(python, packages.wheel, directory)
    shutil.rmtree(directory, ignore_errors=True)  # 1.4 GB


def test_the_wheel_holds_the_package_and_nothing_else(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        names = set(wheel.namelist())
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "dray").rglob("*.py")}
    assert sources <= names
    assert "dray/py.typed" in names
    others = {name for name in names if not name.startswith(f"dray-{dray.__version__}.dist-info/")} - sources
    assert others == {"dray/py.typed"}


def test_it_trains_here_and_on_workers_and_predicts_where_nothing_else_is_installed(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    said = place.dray("--version", "--verbose", cwd=tmp_path)
    assert "numba" in said.stdout
    assert "not installed (extra: recommend)" in said.stdout
    digests = []
    for workers in ("0", "2"):
        train = ("train", "rows.csv", "--label", "y", "--rounds", "5", "--workers", workers, "--out", f"run{workers}")
        done = place.dray(*train, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        digests.append(json.loads(done.stdout)["model_digest"])
    assert digests[0] == digests[1]
    done = place.dray("predict", "run0", "rows.csv", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 400


def test_what_an_extra_brings_is_asked_for_by_the_name_of_the_extra(place: Place, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    columns = ("--user", "x", "--item", "city")
    done = place.dray("train", "rows.csv", "--model", "factorization", *columns, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'dray[recommend]'" in done.stderr


def test_the_source_archive_installs_too(packages: Packages, tmp_path: Path) -> None:
    place = installed(sys.executable, packages.sdist, tmp_path / "venv")
    assert place.dray("--version", cwd=tmp_path).stdout == f"dray {dray.__version__}\n"
    shutil.rmtree(tmp_path / "venv")
