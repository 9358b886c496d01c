"""A password in an address is never shown or written, whatever characters it has."""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dray.config.private import check_texts
from dray.data.sources.sql_database import Database
from dray.errors import ConfigError, DataError, DrayError, ItemError, StorageError
from dray.events.kinds import RunFailed, SourceConverted, Warned
from dray.events.telemetry import Telemetry
from dray.jobs.endpoint import look
from dray.learners.configs import make_config
from dray.masking import holds_password, masked
from dray.runs.directory import RunDirectory
from dray.storage import StorageOptions, expand

FIRST, LAST = "Qz7", "9Xw"
"""The ends of every password here: neither may show."""
DATABASES = (
    "postgresql://bob:{}@host/db",
    "postgresql://bob:{}@[::1]:5432/db",
    "POSTGRESQL://bob@corp:{}@host:5432/db?sslmode=require",
    "postgres://:{}@host",
    "mysql+pymysql://bob:{}@host/db",
    "postgresql://host/db?user=bob&password={}",
    "postgresql://bob@host/db?sslmode=require&PassWord={}",
    "postgresql://host/db?pass%77ord={}",
)
WEB = ("http://key:{}@minio:9000", "https://key:{}@host/path", "HTTP://:{}@host")

passwords = st.builds(
    lambda inside: FIRST + inside + LAST, st.text(st.sampled_from("aB3/@#?%:;[]!$*+,=&~'\"\\"), max_size=12)
)


def shows(text: str) -> bool:
    return FIRST in text or LAST in text


@given(st.sampled_from(DATABASES), passwords)
@example("postgresql://bob:{}@host/db", f"{FIRST}/{LAST}")
def test_an_address_is_shown_without_its_password_alone_and_in_a_sentence(address: str, password: str) -> None:
    written = address.format(password)
    assert holds_password(written)
    for text in (written, f"Cannot read {written} of {written} today."):
        assert not shows(masked(text))
        assert masked(masked(text)) == masked(text)


@given(st.sampled_from(DATABASES), st.text(st.sampled_from("aB /@:\t'"), max_size=8))
def test_a_password_may_even_hold_a_space(address: str, inside: str) -> None:
    assert not shows(masked(address.format(FIRST + inside + LAST)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=h user=u password=Qz79Xw dbname=d", "host=h user=u password=*** dbname=d"),
        ("PASSWORD = 'Qz7 it\\'s 9Xw' host=h", "PASSWORD = *** host=h"),
        ("host=h password==Qz79Xw", "host=h password=***"),
        ("Server=h;Uid=u;Pwd=Qz79Xw;", "Server=h;Uid=u;Pwd=***;"),
        ("postgresql://bob:Qz79Xw@host/db", "postgresql://bob:***@host/db"),
        ("git+https://Qz79Xw@github.com/a/b", "git+https://***@github.com/a/b"),
        ("https://h/f?X-Amz-Signature=Qz79Xw", "https://h/f?X-Amz-Signature=***"),
        ("s3://AKIA:Qz7/9Xw@bucket/key", "s3://AKIA:***@bucket/key"),
        ("https://bob:12345@host/x", "https://***@host/x"),
        ("postgresql://bob:${DB}@h,alice:Qz79Xw@h2/db", "postgresql://bob:***@h2/db"),
        ("postgresql://h/db?options=-c%20password%3DQz79Xw", "postgresql://h/db?options=***"),
        ("from postgresql://a:Qz7@h to postgresql://b:9Xw@h", "from postgresql://a:***@h to postgresql://b:***@h"),
    ],
)
def test_the_rest_of_the_text_stays_readable(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://bob@host/db",
        "postgresql://bob@[::1]:5432/db",
        "postgresql://[::1]:5432/db",
        "postgresql://bob:${DB_PASSWORD}@host/db",
        "postgresql://bob:${DB_PASSWORD}@host/db?application_name=me@work",
        "postgresql://bob:${ONE}@host:5432,alice:${TWO}@other/db",
        "postgresql://host/db?user=bob&password=${DB_PASSWORD}",
        "postgresql://host/db?options=-c%20statement_timeout%3D5",
        "databricks://host/sql/1.0/warehouses/id",
        "http://head:8265",
        "http://head:8265/path@v2",
        "git+https://github.com/org/repo.git@v1.0",
        "git+ssh://git@github.com/org/repo",
        "s3://bucket/hour=12:30/a@b.parquet",
        "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/a@b",
        "/data/password=abc/part.parquet",
        "s3://bucket/password=abc/part.parquet",
        "somebody@example.com: see a://b",
        "SELECT name FROM users WHERE password IS NULL",
        "has_password == True and pwd == 3",
    ],
)
def test_what_has_no_password_stays_as_it_is(text: str) -> None:
    assert masked(text) == text
    assert not holds_password(text)


@given(st.sampled_from(DATABASES), passwords, st.sampled_from(["data", "eval", "continue_from", "cache", "out"]))
def test_a_run_file_with_a_password_is_refused_and_it_is_not_repeated(address: str, password: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} holds a password") as caught:
        make_config({"data": "d", "label": "y", key: address.format(password)})
    assert not shows(str(caught.value))


@given(st.sampled_from(WEB), passwords)
def test_credentials_in_an_endpoint_or_a_cluster_are_refused_and_not_repeated(address: str, password: str) -> None:
    written = address.format(password)
    attempts: list[Any] = [
        lambda: make_config({"data": "d", "label": "y", "storage": {"endpoint": written}}),
        lambda: make_config({"data": "d", "label": "y", "storage": written}),
        lambda: make_config({"data": "d", "label": "y", "storage": [{"endpoint": written}]}),
        lambda: make_config({"data": "d", "label": "y", "cluster": written}),
        lambda: StorageOptions(endpoint=written),
        lambda: look(written),
    ]
    for attempt in attempts:
        with pytest.raises(DrayError) as caught:
            attempt()
        assert not shows(str(caught.value)), str(caught.value)


@given(st.sampled_from(DATABASES), passwords)
def test_a_source_and_a_job_refuse_an_address_with_a_password(address: str, password: str) -> None:
    written = address.format(password)
    attempts: list[Any] = [
        lambda: Database(written).check(),
        lambda: check_texts("An argument", [f"--from={written}"], {}),
        lambda: expand([written]),
    ]
    for attempt in attempts:
        with pytest.raises(DrayError) as caught:
            attempt()
        assert not shows(str(caught.value)), str(caught.value)
    assert not shows(Database(written).name)


@given(st.sampled_from(DATABASES), passwords)
def test_an_error_shows_no_password_before_and_after_the_way_to_another_process(address: str, password: str) -> None:
    text = f"{address.format(password)} is not there."
    for error in (DataError(text, text), ItemError(text, text, 1, text, "raised", f"Traceback:\n {text}\n")):
        for seen in (error, pickle.loads(pickle.dumps(error))):
            assert not shows(repr(seen) + str(seen) + str(seen.args))


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(DATABASES), passwords)
def test_no_file_of_a_run_holds_a_password_that_an_error_or_an_event_told(address: str, password: str) -> None:
    written = address.format(password)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(f"{folder}/run", config={"data": [written], "note": f"see {written} there"})
        telemetry = Telemetry([directory])
        telemetry.emit(Warned(f"{written} is slow", written))
        telemetry.emit(SourceConverted(source=written, format="sql", copy=folder, made=True, made_at=None, rows=1))
        telemetry.emit(RunFailed(error=f"Cannot read {written}", fix="", traceback=f'raise X("{written}")\nX: 1'))
        telemetry.close()
        files = {file.name: file.read_text() for file in Path(folder, "run").iterdir() if file.suffix != ".parquet"}
    assert {"run.json", "events.jsonl"} <= set(files)
    for name, content in files.items():
        assert not shows(content), name
        documents = [json.loads(line) for line in content.splitlines()] if name == "events.jsonl" else []
        assert not shows(str(documents))


def test_a_password_that_libpq_would_quote_as_a_port_is_refused_before_it_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://bob:Qz7/x@127.0.0.1:1/db")
    with pytest.raises(ConfigError, match="percent-encoded") as caught:
        Database("${DATABASE_URL}").connect()
    assert not shows(str(caught.value))
    monkeypatch.setenv("DATABASE_URL", "postgresql://bob:Qz7%2Fx@127.0.0.1:1/db")
    with pytest.raises(StorageError, match="Cannot connect") as refused:
        Database("${DATABASE_URL}").connect()
    assert not shows(str(refused.value))
