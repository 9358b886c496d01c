"""What is warned of, and what is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.describe import describe

RANDOM = np.random.default_rng(0)
ROWS = 2000


def warnings(columns: dict[str, Any], **options: Any) -> dict[str, list[str]]:
    """The kinds of warnings by column."""
    found: dict[str, list[str]] = {}
    for warning in describe(pa.table(columns), **options).warnings:
        found.setdefault(str(warning.column), []).append(warning.kind)
    return found


def about(values: Any, **options: Any) -> list[str]:
    return warnings({"x": values}, **options).get("x", [])


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (RANDOM.normal(size=ROWS), []),
        (RANDOM.integers(0, 50, ROWS), []),
        ([True, False] * 1000, []),
        (np.full(ROWS, 3.5), ["constant"]),
        (["a"] * ROWS, ["constant"]),
        (pa.array(["a"] * ROWS).dictionary_encode(), ["constant"]),
        (pa.nulls(ROWS, pa.string()), ["empty"]),
        (pa.nulls(ROWS), ["empty"]),
        ([math.nan] * ROWS, ["empty"]),
        ([None] * (ROWS - 20) + ["a", "b"] * 10, ["mostly-missing"]),
        (np.arange(ROWS), ["id"]),
        (RANDOM.permutation(ROWS), ["id"]),
        (RANDOM.permutation(ROWS).astype(np.float64), ["id"]),
        ([f"user-{i}" for i in RANDOM.permutation(ROWS)], ["id"]),
        ([f"{i} " + "some words of prose " * 5 for i in range(ROWS)], ["many-values"]),
        ([*RANDOM.normal(size=ROWS - 1), math.inf], ["infinite"]),
        (["1.5", "2", "-3e4", "1,000", "12 %"] * 400, ["numbers-as-text"]),
        (["1.5", "2", "3", "4", "5", "6", "7", "8", "9", "n/a"] * 200, ["numbers-as-text"]),
        (["01234", "10115", "20095"] * 600, []),
        (["red", "green", "", None] * 500, []),
        ([f"{i % 28 + 1}.12.2010 0{i % 10}:{i % 60:02}" for i in range(ROWS)], ["text-times"]),
        ([f"0{i % 9 + 1}/0{i % 7 + 1}/2024" for i in range(ROWS)], ["text-times"]),
        ([[1, 2]] * ROWS, []),
        ([{"a": 1}] * ROWS, []),
        ([b"\x00"] * ROWS, ["constant"]),
    ],
)
def test_a_column_by_itself(values: Any, kinds: list[str]) -> None:
    assert about(values) == kinds


def test_few_rows_are_no_ids() -> None:
    assert about([1, 2, 3]) == []


def test_times_that_count_up_are_no_ids() -> None:
    assert about(pa.array(range(ROWS), pa.timestamp("s"))) == []


def test_text_with_very_many_values_is_told() -> None:
    texts = [f"city {i}" for i in range(11_000)] * 2
    assert about(texts) == ["many-values"]


def test_a_warning_says_whether_all_rows_are_meant() -> None:
    everything = describe(pa.table({"x": [1] * 1000})).warnings[0]
    assert "in every row: 1" in everything.message
    sampled = describe(pa.table({"x": ["a"] * 100_000}), sample=1000).warnings[0]
    assert "in every row of the sample" in sampled.message


class TestLeaks:
    label = RANDOM.integers(0, 2, ROWS)

    def leaks(self, column: Any, label: Any = None) -> list[str]:
        return warnings({"x": column, "y": self.label if label is None else label}, label="y").get("x", [])

    @pytest.mark.parametrize(
        "label", [label, label.astype(bool), np.array(["no", "yes"])[label]], ids=["int", "bool", "text"]
    )
    def test_a_copy_of_the_label_is_a_leak(self, label: Any) -> None:
        assert self.leaks(self.label, label) == ["leak"]

    def test_a_number_that_decides_it_is_a_leak_in_any_order(self) -> None:
        hump = np.where(
            self.label, RANDOM.uniform(-1, 1, ROWS), RANDOM.choice([-1, 1], ROWS) * RANDOM.uniform(2, 3, ROWS)
        )
        assert self.leaks(hump) == ["leak"]

    def test_text_that_decides_it_is_a_leak(self) -> None:
        status = np.where(self.label, RANDOM.choice(["paid", "sent"], ROWS), RANDOM.choice(["open", "lost"], ROWS))
        assert self.leaks(status) == ["leak"]

    def test_that_it_is_missing_can_be_the_leak(self) -> None:
        closed = [
            float(value) if label else None for value, label in zip(RANDOM.normal(size=ROWS), self.label, strict=True)
        ]
        assert self.leaks(closed) == ["leak"]

    def test_the_figure_is_said(self) -> None:
        found = describe(pa.table({"x": self.label, "y": self.label}), label="y")
        [leak] = [warning for warning in found.warnings if warning.kind == "leak"]
        assert leak.figure == 1.0
        assert "AUC 1.000" in leak.message

    @pytest.mark.parametrize(
        "ids", [np.arange(ROWS), RANDOM.permutation(ROWS), [f"u{i}" for i in range(ROWS)]], ids=str
    )
    def test_an_id_is_none(self, ids: Any) -> None:
        assert self.leaks(ids) == ["id"]

    def test_a_good_feature_is_none(self) -> None:
        assert self.leaks(self.label + RANDOM.normal(0, 0.6, ROWS)) == []

    def test_of_several_classes(self) -> None:
        label = RANDOM.integers(0, 5, ROWS)
        assert self.leaks(label * 10.0 + RANDOM.uniform(size=ROWS), label) == ["leak"]
        assert self.leaks(RANDOM.normal(size=ROWS), label) == []

    def test_of_a_number_with_a_long_tail(self) -> None:
        label = np.exp(3 * RANDOM.normal(size=ROWS))
        assert self.leaks(np.log(label), label) == ["leak"]
        assert self.leaks(np.log(label) + RANDOM.normal(size=ROWS), label) == []

    def test_a_rare_class_is_still_found_in_the_open(self) -> None:
        rows = 50_000
        label = (np.arange(rows) % 1000 == 0).astype(np.int64)
        assert self.leaks(label.astype(np.float32), label) == ["leak"]

    def test_too_few_rows_are_said_not_to_be_judged(self) -> None:
        found = warnings({"x": [0, 1] * 10, "y": [0, 1] * 10}, label="y")
        assert found == {"y": ["leak-unchecked"]}


class TestLabel:
    def test_missing_labels_are_told(self) -> None:
        found = warnings({"x": RANDOM.normal(size=ROWS), "y": [None, 1, 0, 1] * 500}, label="y")
        assert found == {"y": ["label-missing"]}

    def test_a_hardly_seen_class_is_told(self) -> None:
        label = ["no", "yes"] * 5000 + ["maybe"]
        assert "label-rare-class" in warnings({"y": label}, label="y")["y"]

    def test_a_number_to_predict_has_no_classes(self) -> None:
        assert warnings({"y": RANDOM.normal(size=ROWS)}, label="y") == {}

    def test_a_constant_label_cannot_be_learned(self) -> None:
        assert warnings({"y": [1] * ROWS}, label="y") == {"y": ["constant", "leak-unchecked"]}
