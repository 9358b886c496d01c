"""What is done with a store that refuses, by a stand-in for pyarrow's client."""

from __future__ import annotations

from typing import Any

import pytest
from pyarrow import fs as pafs

from dray import s3


class Store:
    """Refuses to delete a directory so many times; knows its keys."""

    def __init__(self, refusals: int = 0, keys: tuple[str, ...] = (), error: type[OSError] = OSError) -> None:
        self.refusals, self.keys, self.error = refusals, set(keys), error
        self.asked = 0

    def delete_dir(self, path: str) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise self.error("When deleting multiple objects: AWS Error ACCESS_DENIED")
        self.keys = {key for key in self.keys if not key.startswith(f"{path}/")}
        self.keys.add(f"{path.rpartition('/')[0]}/")  # as pyarrow does

    def delete_file(self, path: str) -> None:
        self.keys.discard(f"{path}/")

    def get_file_info(self, what: Any) -> Any:
        if isinstance(what, pafs.FileSelector):
            return [key for key in self.keys if key.startswith(f"{what.base_dir}/") and key != f"{what.base_dir}/"]
        kind = pafs.FileType.Directory if f"{what}/" in self.keys else pafs.FileType.NotFound
        return pafs.FileInfo(what, kind)


def delete(store: Store, path: str = "bucket/runs/1") -> None:
    s3.delete_directory(store, path)  # type: ignore[arg-type]


def test_a_delete_that_is_refused_again_and_again_is_an_error() -> None:
    store = Store(refusals=100, keys=("bucket/runs/1/model",))
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        delete(store)
    assert store.asked == 4
    assert store.keys == {"bucket/runs/1/model"}


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_a_delete_that_is_refused_at_first_is_tried_again(refusals: int) -> None:
    store = Store(refusals, keys=("bucket/runs/1/model", "bucket/other"))
    delete(store)
    assert store.asked == refusals + 1
    assert store.keys == {"bucket/other"}  # nor is a mark left where the runs were


def test_what_is_not_there_is_deleted_already() -> None:
    store = Store(refusals=100, error=FileNotFoundError)
    delete(store)
    assert store.asked == 1


def test_a_neighbour_stays_and_so_does_the_directory_of_both() -> None:
    store = Store(keys=("bucket/runs/1/model", "bucket/runs/2/model"))
    delete(store)
    assert store.keys == {"bucket/runs/", "bucket/runs/2/model"}
