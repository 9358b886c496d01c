"""Predicting on a Ray cluster, by tasks: the same files as in one process, and each process opens the model once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import datasets
import dray
from dray.clusters.connect import connect
from dray.errors import DataError
from dray.events.kinds import Event, Progress
from dray.events.telemetry import Sample
from dray.predicting.predict import predict


@pytest.fixture(scope="module", autouse=True)
def four_cpus() -> Iterator[None]:
    with connect("local", workers=4):
        yield


class Heard:
    def __init__(self) -> None:
        self.rows: list[float] = []

    def event(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.rows.append(event.done)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("workers", [1, 2, "auto"])
def test_a_cluster_writes_the_same_bytes(tmp_path: Path, workers: int | str) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary(900))
    run = dray.train(data, label="label", ignore=["id"], rounds=3, workers=0, out=str(tmp_path / "run")).directory
    heard = Heard()
    written = []
    for name, settings in (("here", {"workers": 0}), ("there", {"workers": workers, "cluster": "auto"})):
        done = predict(run, data, str(tmp_path / name), keep=["id"], sinks=[heard], **settings)  # type: ignore[arg-type]
        assert done.rows == 900
        written.append({file.name: file.read_bytes() for file in sorted((tmp_path / name).iterdir())})
    assert written[0] == written[1] and len(written[0]) == 4  # three files and their list
    assert done.workers == (1 if workers == "auto" else workers)
    assert heard.rows[-1] == 900


def test_a_mistake_in_a_file_is_told_as_in_one_process(tmp_path: Path) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary(900))
    run = dray.train(data, label="label", ignore=["id"], rounds=2, workers=0, out=str(tmp_path / "run")).directory
    file = tmp_path / "data" / "part-2.parquet"
    content = bytearray(file.read_bytes())
    content[4:400] = b"\xff" * 396
    file.write_bytes(content)
    for settings in ({"workers": 0}, {"workers": 2}, {"workers": 2, "cluster": "auto"}):
        with pytest.raises(DataError, match=r"part-2\.parquet"):
            dray.predict(run, data, str(tmp_path / "out"), **settings)  # type: ignore[arg-type]
        assert not (tmp_path / "out").exists()
