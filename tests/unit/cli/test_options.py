"""Options that several commands share."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from dray.cli.options import output_options, pairs, source_options, storage_options
from dray.errors import ConfigError


def call(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @source_options
    @storage_options
    @output_options
    def command(**options: Any) -> None:
        found.update(options)

    result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return found


def test_nothing_given_is_nothing_said() -> None:
    assert call() == {"source": {}, "storage": {}, "as_json": False, "quiet": False}


def test_storage_options_come_as_one() -> None:
    given = call("--endpoint", "http://minio:9000", "--role", "arn:aws:iam::1:role/x")["storage"]
    assert given == {"endpoint": "http://minio:9000", "role": "arn:aws:iam::1:role/x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("delimiter=;", ";"),
        ("names=[a, b]", ["a", "b"]),
        ("types={price: double}", {"price": "double"}),
        ('delimiter="\\t"', "\t"),
        ("query=select * from t where note = 'a: b'", "select * from t where note = 'a: b'"),
        ("quote=", None),
        ("quote=none", None),
        ("quote='", "'"),
        ('quote="', '"'),
        ("delimiter=|", "|"),
        ("table=2024", "2024"),
        ('table="Shop"."Orders"', '"Shop"."Orders"'),
        ("key=no", "no"),
        ("nulls=NA", ["NA"]),
        ("nulls=NA,-999", ["NA", "-999"]),
        ("nulls=NA, -", ["NA", "-"]),
        ('nulls="a,b"', ["a,b"]),
        ('nulls=NA,"a,b"', ["NA", "a,b"]),
        ("names=x,y", ["x", "y"]),
        ("types={price:double}", {"price": "double"}),
        ("types=price:double, at:timestamp[us]", {"price": "double", "at": "timestamp[us]"}),
        ("types={at: timestamp[us], b: time32[s]}", {"at": "timestamp[us]", "b": "time32[s]"}),
        ("types={at: timestamp[us, tz=UTC], b: bool}", {"at": "timestamp[us, tz=UTC]", "b": "bool"}),
        ('types={"a, b": double}', {"a, b": "double"}),
        ("types=price", "price"),
        ("types=", ""),
        ("types={no: double, 1: string}", {"no": "double", "1": "string"}),
        ("nulls=[]", []),
        ("table=null", "null"),
    ],
)
def test_ways_of_reading_are_values_and_queries_stay_text(text: str, value: Any) -> None:
    name = text.partition("=")[0]
    assert call("--format", "csv", "--read", text)["source"] == {"format": "csv", name: value}


@pytest.mark.parametrize(
    "text", ["NO", "null", "~", "1e3", "NaN", "2024-01-01", "-999", "0x1F", "1_000", "007", "true"]
)
def test_what_stands_for_missing_arrives_as_it_was_typed(text: str) -> None:
    assert call("--read", f"nulls={text}")["source"] == {"nulls": [text]}
    assert call("--read", f"nulls=[{text}, -]")["source"] == {"nulls": [text, "-"]}


def test_a_value_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not NAME=VALUE") as error:
        pairs(["delimiter"], "--read")
    assert error.value.fix == "Write --read name=value."


def test_an_open_bracket_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not YAML"):
        call("--read", "names=[a")
    with pytest.raises(ConfigError, match="is not YAML"):
        call("--read", "types={a: double")


def test_types_that_are_given_one_by_one_are_put_together() -> None:
    given = ("--read", "types={a: string}", "--read", "types={b: int64}", "--read", "nulls=a", "--read", "nulls=b")
    assert call(*given)["source"] == {"types": {"a": "string", "b": "int64"}, "nulls": ["b"]}
