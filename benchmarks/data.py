"""The data every contender reads: made once, the same bytes on every machine, by none of the contenders' tools.

28 float32 features of several shapes and a binary label that a tuned model predicts with an AUC of about 0.8,
in files of one row group each, as `pyarrow.parquet.write_table` or `DataFrame.to_parquet` writes them.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FEATURES = 28
LABEL = "label"
ROWS_PER_FILE = 125_000
HELD_OUT_ROWS = 200_000
CACHE = Path.home() / ".cache" / "dray-bench"
# Changes with the recipe below, so that files of an older one are never read.
RECIPE = 1
BYTES_PER_ROW = 4.2 * FEATURES


def training_data(cache: Path, rows: int) -> Path:
    """Return a directory of Parquet files with that many rows; 16 files, or more of 125,000 rows each."""
    return _cached(cache / f"recipe{RECIPE}-train-{rows}", rows, files=max(16, rows // ROWS_PER_FILE), seed=1)


def small_files(cache: Path, files: int, rows: int) -> Path:
    """Return a directory of that many Parquet files with so many rows each."""
    return _cached(cache / f"recipe{RECIPE}-{files}-files-of-{rows}", files * rows, files=files, seed=3)


def held_out_data(cache: Path) -> Path:
    """Return a directory with one file of rows that no contender trains on."""
    return _cached(cache / f"recipe{RECIPE}-held-out", HELD_OUT_ROWS, files=1, seed=2)


def read_into_page_cache(directory: Path) -> None:
    """Read every file once, so that the first contender does not pay for the disk."""
    for file in sorted(directory.iterdir()):
        with file.open("rb") as stream:
            while stream.read(1 << 24):
                pass


def require_free_disk(directory: Path, needed_bytes: float) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < needed_bytes:
        raise SystemExit(
            f"{directory} has {free / 1e9:.1f} GB free and this needs {needed_bytes / 1e9:.1f} GB.\n"
            "Free some space, or choose another disk with --data DIR."
        )


def _cached(directory: Path, rows: int, *, files: int, seed: int) -> Path:
    if directory.is_dir():
        return directory
    require_free_disk(directory.parent, rows * BYTES_PER_ROW * 1.1)
    print(f"Making {rows:,} rows x {FEATURES} features in {directory}", flush=True)
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    bounds = np.linspace(0, rows, files + 1, dtype=int)
    for index in range(files):
        table = _table(np.random.default_rng([seed, index]), int(bounds[index + 1] - bounds[index]))
        pq.write_table(table, unfinished / f"part-{index:04}.parquet")
    unfinished.rename(directory)
    return directory


def _table(rng: np.random.Generator, rows: int) -> pa.Table:
    z = rng.standard_normal((FEATURES, rows), dtype=np.float32)
    score = (
        0.8 * z[0]
        + 0.9 * np.sin(2 * z[1])
        + 0.7 * z[2] * z[3]
        + 0.5 * np.abs(z[4])
        + 0.6 * np.where(z[5] > 0.5, z[6], -z[7])
        + 0.15 * z[8:16].sum(axis=0)
        - 0.4
    )
    label = (rng.random(rows, dtype=np.float32) < 1 / (1 + np.exp(-score))).astype(np.int8)
    columns = {f"f{index:02}": pa.array(_shaped(z[index], index)) for index in range(FEATURES)}
    return pa.table({**columns, LABEL: pa.array(label)})


def _shaped(values: np.ndarray, index: int) -> np.ndarray:
    """Real columns are not all bell-shaped: every fourth is skewed, every fourth has few distinct values."""
    if index % 4 == 1:
        return np.exp(values)
    if index % 4 == 3:
        return np.round(values, 1)
    return values
