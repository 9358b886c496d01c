"""Amounts, as Kubernetes writes them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.clusters.kubernetes.quantities import format_bytes, format_cpus, parse_bytes, parse_cpus


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8Gi", 8 << 30), ("8GiB", 8 << 30), ("8G", 8 * 10**9), ("8GB", 8 * 10**9), ("1.5Mi", 3 << 19),
        ("2Ti", 2 << 40), ("3k", 3000), ("3K", 3000), ("3Ki", 3072), ("3kiB", 3072), (" 7 Mi ", 7 << 20),
        ("5", 5), (5, 5), (5.9, 5),
    ],
)  # fmt: skip
def test_bytes_are_read(text: Any, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "many", "8X", "8m", "-8Gi", "8Gi 8Gi", "B", "5B", "5i", True])
def test_what_is_no_amount_of_memory_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=f'"{text}" is not an amount of memory: write 8Gi, say'):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "number"), [("4", 4.0), (4, 4.0), (0.5, 0.5), ("500m", 0.5), ("1.5", 1.5), (" 2 ", 2.0), ("1", 1.0)]
)
def test_cpus_are_read(text: Any, number: float) -> None:
    assert parse_cpus(text) == number


@pytest.mark.parametrize("text", ["", "4x", "-1", "4Mi", True])
def test_what_is_no_number_of_cpus_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a number of CPUs"):
        parse_cpus(text)


def test_amounts_are_written_whole_and_rounded_down() -> None:
    assert [format_bytes(number) for number in (8 << 30, 0, 3 << 29, (1 << 30) + 1, (1 << 20) - 1)] == [
        "8Gi", "0Gi", "1536Mi", "1024Mi", "0Mi",
    ]  # fmt: skip
    assert [format_cpus(number) for number in (4.0, 0.5, 1.2345, 0.0)] == ["4", "500m", "1234m", "0"]
