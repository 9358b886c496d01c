"""Row groups and workers: what is even, and what is advised."""

from __future__ import annotations

import pytest

from dray.data.describing.layout import LARGE_GROUP_BYTES, assignment, other_layout, parquet_layout

INGEST = "dray data ingest DATA OUT"


@pytest.mark.parametrize(
    ("rows", "largest", "smallest", "even"),
    [
        ([100, 100], 100, 100, True),
        ([105, 100], 105, 100, True),
        ([106, 100], 106, 100, False),
        ([100], 100, 0, False),
        ([0, 0], 0, 0, False),
        ([50, 50, 60, 60], 110, 110, True),
    ],
)
def test_five_percent_more_is_even_and_a_worker_without_rows_is_not(
    rows: list[int], largest: int, smallest: int, even: bool
) -> None:
    found = assignment(rows, 2)
    assert (found.workers, found.largest, found.smallest, found.even) == (2, largest, smallest, even)


def test_row_groups_are_judged_for_the_workers_that_were_asked_for_or_the_usual_numbers() -> None:
    found = parquet_layout([10, 20, 60], 2, 5, None)
    assert [one.workers for one in found.dealings] == [2, 4, 8, 16, 32, 64]
    assert (found.files, found.row_groups, found.rows_per_group, found.largest_group_bytes) == (2, 3, (10, 20, 60), 5)
    assert [one.workers for one in parquet_layout([10], 1, 5, 3).dealings] == [3]


@pytest.mark.parametrize(
    ("rows", "largest_bytes", "workers", "advice"),
    [
        ([10] * 64, 5, None, None),
        ([10] * 64, 5, 4, None),
        ([1000], 5, 2, None),  # training cuts row groups
        ([1000] * 3, 5, 4, None),
        ([2000, 1000], 5, None, None),
        ([1, 1], 5, 4, "2 rows are too few for 4 workers"),
        (
            [2, 1],
            5,
            2,
            "2 row groups of 1 to 2 rows cannot be assigned evenly to 2 workers (from 1 to 2 rows per worker): "
            f"write more and smaller ones with {INGEST}",
        ),
        (
            [2, 1],
            5,
            None,
            "2 row groups of 1 to 2 rows cannot be assigned evenly to 2 workers (from 1 to 2 rows per worker): "
            f"write more and smaller ones with {INGEST} (Training in one process needs no change.)",
        ),
        ([1], 5, None, None),  # one row needs no advice
        ([10] * 64, LARGE_GROUP_BYTES, None, None),
        (
            [10] * 64,
            LARGE_GROUP_BYTES + 1,
            None,
            f"Row groups take up to 1.1 GB in memory while a worker reads one: write smaller ones with {INGEST}",
        ),
    ],
)
def test_what_is_advised(rows: list[int], largest_bytes: int, workers: int | None, advice: str | None) -> None:
    assert parquet_layout(rows, 1, largest_bytes, workers).advice == advice


def test_what_has_no_row_groups_is_to_be_written_as_parquet() -> None:
    start, end = "CSV has no row groups to assign to", f"workers: convert it to Parquet with {INGEST}"
    assert other_layout("csv", 3, None).advice == f"{start} {end}"
    assert other_layout("csv", 3, 4).advice == f"{start} 4 {end}"
    found = other_layout("odd", None, None)
    assert (found.files, found.row_groups, found.advice) == (None, None, f"odd{start[3:]} {end}")
