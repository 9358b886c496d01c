"""Data for runs of a few seconds, the model they must come to, and a witness that nothing outlives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.scene import Scene

ROWS = 60_000
FEATURES = 10
ROW_GROUP_ROWS = 5_000


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Numbers in 12 row groups, and a label that needs many trees."""
    random = np.random.default_rng(3)
    values = random.normal(size=(FEATURES, ROWS)).astype(np.float32)
    signal = values[0] * values[1] + np.sin(2 * values[2]) + 0.3 * values[3:].sum(axis=0) + random.normal(size=ROWS)
    table = pa.table({f"f{index}": column for index, column in enumerate(values)} | {"label": (signal > 0).astype(int)})
    place = tmp_path_factory.mktemp("data")
    pq.write_table(table, place / "rows.parquet", row_group_size=ROW_GROUP_ROWS)
    return str(place)


@pytest.fixture(scope="session")
def undisturbed(data: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model that every run must come to: that of one process without Ray."""
    alone = Scene(data, tmp_path_factory.mktemp("undisturbed"))
    try:
        return str(alone.train("--workers", "0").finish()["model_digest"])
    finally:
        alone.end()


@pytest.fixture
def scene(data: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene that must be empty in the end: no process of it lives, and its temporary directory holds nothing."""
    place = Scene(data, tmp_path)
    try:
        yield place
        if place.is_over:  # else the test has failed already
            place.wait_for_nobody()
            assert [path.name for path in place.temporary.iterdir()] == []
    finally:
        place.end()
