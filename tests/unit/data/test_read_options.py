"""Options of reading have types: a text is never taken apart into characters, and what is wrong is refused."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dray.data import open_source as opening
from dray.data.open_source import open_source
from dray.data.read_options import OPTIONS, as_options, parse_option
from dray.data.sources.csv_format import CsvFormat
from dray.errors import ConfigError
from dray.hints import in_arguments


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("nulls", "NA", ("NA",)),
        ("nulls", ["NA", "-"], ("NA", "-")),
        ("nulls", ("NA",), ("NA",)),
        ("nulls", "NA,-999", ("NA", "-999")),
        ("nulls", -999, ("-999",)),
        ("nulls", ["NA", -999], ("NA", "-999")),
        ("nulls", [], ()),
        ("nulls", "", ()),
        ("names", "x,y", ("x", "y")),
        ("names", "[x, y]", ("x", "y")),
        ("names", [1, 2], ("1", "2")),
        ("header", "no", False),
        ("header", "TRUE", True),
        ("header", False, False),
        ("delimiter", "\\t", "\t"),
        ("delimiter", "tab", "\t"),
        ("quote", None, None),
        ("types", {"n": pa.int8(), "s": "string"}, {"n": pa.int8(), "s": "string"}),
        ("types", {1: "string"}, {"1": "string"}),
    ],
)
def test_a_value_gets_the_type_of_its_option(name: str, given: Any, found: Any) -> None:
    assert as_options("csv", {name: given}) == {name: found}


@pytest.mark.parametrize(
    ("format", "name", "given", "said"),
    [
        ("csv", "nulls", False, "False is not text; write it in quotes"),
        ("csv", "nulls", ["NA", None], "None is not text; write it in quotes"),
        ("csv", "nulls", -99.90, "-99.9 is not text; write it in quotes"),
        ("csv", "nulls", {"x": "NA"}, "which is not a list of texts"),
        ("csv", "names", ["x", "x"], "'x' occurs twice"),
        ("csv", "names", "x,,y", "one is empty"),
        ("csv", "names", "[x, y", "a bracket or a quote is not closed"),
        ("csv", "header", None, "The option header is None, which is not true or false"),
        ("csv", "header", 0, "The option header is 0, which is not true or false"),
        ("csv", "header", "", "which is not true or false"),
        ("csv", "delimiter", "", "which is not one ASCII character"),
        ("csv", "delimiter", ";;", "which is not one ASCII character"),
        ("csv", "delimiter", True, "which is not one ASCII character"),
        ("csv", "quote", "''", "which is not one ASCII character or None"),
        ("csv", "types", "zip:string", "The option types is 'zip:string', which is not a type for each column"),
        ("csv", "types", {"zip:string": ""}, "'' is not the name of a type"),
        ("csv", "types", {"x": float}, "<class 'float'> is not the name of a type"),
        ("csv", "types", {False: "string"}, "False is not text; write it in quotes"),
        ("delta", "version", "latest", "The option version is 'latest', which is not a whole number"),
        ("delta", "version", True, "which is not a whole number"),
        ("delta", "version", -1, "which is not a whole number"),
        ("sql", "query", ["SELECT 1"], "which is not text"),
        ("json", "types", ["x"], "which is not a type for each column"),
    ],
)
def test_a_value_of_another_type_is_refused_with_how_to_write_it(format: str, name: str, given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        as_options(format, {name: given})
    assert f"The option {name} is {given!r}" in raised.value.what and said in raised.value.what
    assert raised.value.fix == f"Write --read '{name}={OPTIONS[format][name].typed}'."
    assert in_arguments(raised.value.fix).startswith(f'Write read={{"{name}": ')


@pytest.mark.parametrize("format", [format for format in OPTIONS if OPTIONS[format]])
def test_what_a_refusal_says_to_write_is_taken(format: str) -> None:
    for name, kind in OPTIONS[format].items():
        as_options(format, {name: eval(kind.example)})
        as_options(format, {name: parse_option(name, kind.typed)})


def test_every_option_of_every_format_has_a_type() -> None:
    for format, (module, name) in opening._OPENERS.items():
        opener = getattr(import_module(f"dray.data.sources.{module}"), name)
        parameters = inspect.signature(opener).parameters.values()
        taken = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        if format == "csv":
            taken = [entry.name for entry in fields(CsvFormat) if entry.name != "times"] + taken  # made of types
        asked_by_dray = {"as_text", "may_be_empty"}
        assert [name for name in taken if name not in asked_by_dray] == list(OPTIONS[format])


def test_an_option_of_another_format_names_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ConfigError, match='The format json has no option "nulls"') as raised:
        open_source(str(tmp_path), nulls="NA")
    assert raised.value.fix == "Its options are types, extra_fields."


def test_a_text_for_missing_is_one_text(tmp_path: Path) -> None:
    """Measurements of air look so; N and A were taken for missing, and NA for a value."""
    rows = [f"{i},{'NA' if i % 7 == 0 else i / 2},{'ANS'[i % 3]}W" for i in range(100)]
    (tmp_path / "a.csv").write_text("\n".join(["No,PM2.5,wd", *rows, "100,1.5,N", "101,1.5,A", "102,1.5,NA"]))
    source = open_source(str(tmp_path), nulls="NA")
    assert source.schema.types == [pa.int64(), pa.float64(), pa.string()]
    read = source.read(source.pieces()[0], None, lambda reject: pytest.fail(reject.reason))
    table = pa.Table.from_batches(read)
    assert table["PM2.5"].null_count == 15
    assert table["wd"].to_pylist()[-3:] == ["N", "A", None]


def test_names_may_come_as_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    assert open_source(str(tmp_path), header=False, names="x,y").schema.names == ["x", "y"]
