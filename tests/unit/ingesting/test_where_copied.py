"""Which processes make a copy, and which caches are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.clusters import files_seen
from dray.errors import StorageError
from dray.ingesting import where_copied
from dray.ingesting.cache import used_cluster
from dray.ingesting.where_copied import HERE, require_seen


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cluster of two nodes, of which 10.0.0.2 sees nothing below these directories."""
    directories: list[str] = []

    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[None]:
        yield

    def unseen(_: object, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
        assert all(Path(path).exists() for path in paths)
        missing = tuple(path for path in paths if any(path.startswith(place) for place in directories))
        return {"10.0.0.2": missing} if missing else {}

    monkeypatch.setattr(where_copied, "connect", connect)
    monkeypatch.setattr(files_seen, "unseen_files", unseen)
    return directories


def chosen(cluster: str | None, cache: str, files: list[str] | None) -> tuple[str, str | None, list[object]]:
    told: list[object] = []
    with where_copied.where_copied(cluster, cache, files, "rows.csv", lambda event, **_: told.append(event)) as options:
        return options.where, options.cluster, told


def test_nodes_that_see_source_and_cache_make_the_copy(blind: list[str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.touch()
    assert chosen("auto", str(tmp_path / "cache"), [str(rows)]) == ("cluster", "auto", [])
    assert not (tmp_path / "cache").exists()
    assert chosen("head:6379", "s3://bucket/cache", ["s3://bucket/rows.csv"]) == ("cluster", "head:6379", [])


def test_this_machine_copies_what_only_it_has(blind: list[str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.touch()
    assert chosen("auto", str(tmp_path), None) == (HERE.where, None, [])
    blind.append(str(rows))
    where, cluster, [warning] = chosen("auto", str(tmp_path), [str(rows)])
    assert (where, cluster) == (HERE.where, None)
    assert f"the node 10.0.0.2 of the cluster cannot read {rows}" in str(warning)
    assert chosen("auto", "s3://bucket/cache", [str(rows)])[0] == HERE.where


@pytest.mark.parametrize("cluster", [None, "local"])
def test_without_a_cluster_all_stays_on_this_machine(cluster: str | None, blind: list[str], tmp_path: Path) -> None:
    blind.append(str(tmp_path))
    assert chosen(cluster, str(tmp_path), [str(tmp_path / "rows.csv")]) == (HERE.where, None, [])


def test_a_cache_that_a_node_does_not_see_is_refused_and_nothing_is_left(blind: list[str], tmp_path: Path) -> None:
    blind.append(str(tmp_path / "cache"))
    with pytest.raises(
        StorageError, match=r"rows\.csv as Parquet would be in .*cache, which the node 10\.0\.0\.2"
    ) as caught:
        chosen("auto", str(tmp_path / "cache"), None)
    assert "--cache s3://bucket/cache" in caught.value.fix
    assert not list(tmp_path.iterdir())


def test_many_blind_nodes_are_named_shortly() -> None:
    require_seen("cache", "rows.csv", [])
    with pytest.raises(StorageError, match=r"which the nodes 0, 1, 2, 3, 4 and 3 more of the cluster"):
        require_seen("cache", "rows.csv", [str(node) for node in range(8)])


@pytest.mark.parametrize(
    ("workers", "cluster", "used"),
    [(0, "auto", None), ("auto", "local", None), (2, "local", "local"), ("auto", "auto", "auto"), (1, "h:1", "h:1")],
)
def test_the_cluster_whose_nodes_read_the_data(workers: object, cluster: str, used: str | None) -> None:
    assert used_cluster(workers, cluster) == used


def test_a_node_names_the_files_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    paths = [str(tmp_path / "there"), str(tmp_path / "gone")]
    assert files_seen.unreadable(paths) == paths[1:]
