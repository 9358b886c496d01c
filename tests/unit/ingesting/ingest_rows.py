"""What the tests of ingest share: sources on disk, what was written, transforms that other processes can import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dray.batch.options import Options
from dray.data.open_source import open_source
from dray.ingesting.ingest import ingest
from dray.ingesting.recipe import Recipe
from dray.ingesting.written import IngestResult

HERE = Options(where="here")


def write_csv(path: Path, rows: int, first: int = 0) -> Path:
    lines = [f"{i},{'abc'[i % 3]},{i / 4},2026-01-{1 + i % 28:02}\n" for i in range(first, first + rows)]
    path.write_text("x,s,f,day\n" + "".join(lines))
    return path


def run(source: Any, out: Path, *, options: Options = HERE, function: Any = None, **recipe: Any) -> IngestResult:
    return ingest(open_source(source), str(out), Recipe(**recipe), function=function, options=options)


def read(out: Path) -> pa.Table:
    """Return all rows in the order of the files."""
    files = [path for path in sorted(out.rglob("*.parquet")) if "_ingest" not in path.parts]
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files])


def rejects(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "_rejects.jsonl").read_text().splitlines()]


def double(batch: pa.RecordBatch) -> pa.Table:
    return pa.table({"x": batch["x"], "twice": pc.multiply(batch["x"], 2)})
