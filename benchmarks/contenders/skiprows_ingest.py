"""CSV to Parquet as it is often done on Ray: a task for each chunk, which skips the rows before it."""

import sys
from pathlib import Path

import pandas
import ray

CHUNK_ROWS = 100_000


@ray.remote
def convert(source: str, start: int, out: str) -> int:
    # The header stays, the rows before the chunk are read and thrown away: in every task, all of them.
    frame = pandas.read_csv(source, skiprows=range(1, start + 1), nrows=CHUNK_ROWS)
    frame.to_parquet(out)
    return len(frame)


def main(source: str, out: str) -> None:
    Path(out).mkdir()
    ray.init(log_to_driver=False, include_dashboard=False)
    rows = sum(len(frame) for frame in pandas.read_csv(source, usecols=[0], chunksize=CHUNK_ROWS))
    tasks = [
        convert.remote(source, start, f"{out}/part-{index:05}.parquet")
        for index, start in enumerate(range(0, rows, CHUNK_ROWS))
    ]
    assert sum(ray.get(tasks)) == rows
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
