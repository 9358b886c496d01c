"""Vectors with their ids as Parquet or Arrow, for an index of nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dray.learners.factorization.factors import Floats
from dray.storage import StorageOptions, write_atomically

_ROWS_AT_ONCE = 1 << 16


def write_vectors(
    location: str,
    storage: StorageOptions,
    ids: pa.Array,
    vectors: Floats,
    bias: Floats,
    extra: Floats | None,
    about: Mapping[str, str],
) -> None:
    """Write id, bias and vector of each row; `extra`, if given, is one more coordinate of every vector."""
    width = vectors.shape[1] + (extra is not None)
    schema = pa.schema(
        [("id", ids.type), ("bias", pa.float32()), ("vector", pa.list_(pa.float32(), width))], metadata=dict(about)
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(ids), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            block = vectors[rows]
            if extra is not None:
                block = np.concatenate([block, extra[rows, None]], axis=1)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(block).reshape(-1)), width)
            yield pa.record_batch([ids.slice(begin, len(block)), pa.array(bias[rows]), lists], schema=schema)

    def fill(file: pa.NativeFile) -> None:
        arrow = location.endswith((".arrow", ".feather"))
        with pa.ipc.new_file(file, schema) if arrow else pq.ParquetWriter(file, schema) as writer:
            for batch in batches():
                writer.write_batch(batch)

    write_atomically(location, storage, fill)
