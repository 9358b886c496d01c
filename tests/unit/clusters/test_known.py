"""The clusters that dray started, and their tokens."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dray.clusters import known
from dray.clusters.fleet.up import fleet_of
from dray.clusters.known import Known
from dray.errors import ClusterError

OFFICE = Known("office", "fleet", "10.0.0.1:6379", "http://127.0.0.1:8265", {"hosts": ["a", "b"]})
VALID = json.dumps(asdict(OFFICE)).encode()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_nothing_is_known_at_first() -> None:
    assert known.names() == []
    with pytest.raises(ClusterError, match='no cluster "office"') as error:
        known.read("office")
    assert "dray cluster up" in error.value.fix


def test_what_was_saved_is_read_again() -> None:
    known.save(OFFICE)
    assert known.read("office") == OFFICE
    assert known.names() == ["office"]


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    known.save(OFFICE)
    with pytest.raises(ClusterError, match='"office"'):
        known.read("ofice")


def test_the_token_is_made_once_and_only_its_user_reads_it(home: Path) -> None:
    first = known.make_token("office")
    assert known.make_token("office") == first == known.token("office")
    assert len(first) == 64
    assert stat.S_IMODE(known.token_file("office").stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "clusters" / "office").stat().st_mode) == 0o700


def test_a_token_that_others_can_read_is_not_used() -> None:
    known.make_token("office")
    known.token_file("office").chmod(0o644)
    with pytest.raises(ClusterError, match="can be read by others"):
        known.token("office")


def test_forgetting_takes_the_token_along(home: Path) -> None:
    known.make_token("office")
    known.save(OFFICE)
    known.remove("office")
    assert known.names() == []
    assert not (home / "clusters" / "office").exists()
    with pytest.raises(ClusterError, match="is gone"):
        known.token("office")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"[1]",
        b"{}",
        VALID.replace(b'"details"', b'"more"'),
        VALID.replace(b"10.0.0.1:6379", b"\xff"),
        VALID.replace(b'"fleet"', b"7"),
        VALID.replace(b'"fleet"', b'"kubernetes"'),
        VALID.replace(b'"fleet"', b'"swarm"'),
        VALID.replace(b'"office"', b'"../other"'),
        VALID.replace(b":8265", b":x"),
    ],
)
def test_a_damaged_file_is_named(home: Path, content: bytes) -> None:
    known.save(OFFICE)
    (home / "clusters" / "office" / "cluster.json").write_bytes(content)
    with pytest.raises(ClusterError, match="cannot be read") as error:
        known.read("office")
    assert f"Remove {home / 'clusters' / 'office'}" in error.value.fix


@pytest.mark.parametrize("details", [{}, {"fleet": {}}, {"fleet": {"name": 3}, "cluster": "x"}, {"fleet": 1}])
def test_a_fleet_that_cannot_be_read_is_named(details: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="the cluster office cannot be read"):
        fleet_of(replace(OFFICE, details=details))


def test_a_damaged_token_is_named() -> None:
    known.make_token("office")
    for content in (b"", b"\xff\xfe", b"a\nb"):
        known.token_file("office").write_bytes(content)
        with pytest.raises(ClusterError, match="is damaged"):
            known.token("office")


def test_what_is_known_is_for_its_user_alone(home: Path) -> None:
    """The variables of a fleet are in it."""
    directory = home / "clusters" / "office"
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    before = os.umask(0)
    try:
        known.save(OFFICE)
    finally:
        os.umask(before)
    assert stat.S_IMODE((directory / "cluster.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_forgetting_keeps_what_dray_did_not_write(home: Path) -> None:
    known.save(OFFICE)
    (home / "clusters" / "office" / "notes").write_text("x")
    known.remove("office")
    assert known.names() == []
    assert (home / "clusters" / "office" / "notes").exists()
