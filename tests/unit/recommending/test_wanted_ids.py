"""Ids that were asked for, as the model has them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dray.errors import DataError
from dray.recommending.wanted_ids import ids_of
from dray.storage import DEFAULT

TEXTS, NUMBERS = pa.array(["007", "7"]), pa.array([7, 8])


@pytest.mark.parametrize(
    ("name", "content"),
    [("users.csv", "user\n007\n7\n"), ("users.jsonl", '{"user": "007"}\n{"user": 7}\n')],
)
def test_ids_of_a_file_stay_apart_as_the_model_has_them(tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert ids_of(str(file), TEXTS, "user", "user", DEFAULT).to_pylist() == ["007", "7"]


@pytest.mark.parametrize(
    ("name", "content", "like"),
    [
        ("users.jsonl", '{"user": "007"}\n{"user": \n', TEXTS),
        ("users.csv", "user,x\n7,1\n8\n", NUMBERS),
    ],
)
def test_an_id_that_cannot_be_read_is_told_and_none_is_left_out(
    tmp_path: Path, name: str, content: str, like: pa.Array
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError):
        ids_of(str(tmp_path / name), like, "user", "user", DEFAULT)
