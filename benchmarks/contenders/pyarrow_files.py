"""Parquet files read by pyarrow into memory: one after the other with some threads, or as one data set."""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read(file: Path) -> pa.Table:
    with pq.ParquetFile(file) as opened:
        return opened.read(use_threads=False)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--threads", type=int, help="file by file, in so many threads; else as one data set")
    asked = arguments.parse_args()
    began, began_cpu = time.perf_counter(), time.process_time()
    if asked.threads is None:
        rows = pq.read_table(asked.data).num_rows
    else:
        with ThreadPoolExecutor(asked.threads) as pool:
            rows = pa.concat_tables(pool.map(read, sorted(asked.data.iterdir()))).num_rows
    seconds = {"load": time.perf_counter() - began, "cpu": time.process_time() - began_cpu}
    print(json.dumps({"rows": rows, "seconds": seconds}), flush=True)
