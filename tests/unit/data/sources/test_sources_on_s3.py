"""Sources on a real S3 endpoint: all formats, an assumed role, keys that expire."""

from __future__ import annotations

import gzip
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from reading import read_all, rows

from dray import s3
from dray.data.open_source import open_source
from dray.errors import StorageError
from dray.storage import StorageOptions
from faulty_s3 import serve_faulty
from s3_server import S3Server

ROWS = [{"x": i, "s": f"line {i}\nof two"} for i in range(500)]
TABLE = pa.Table.from_pylist(ROWS)
CSV = "x,s\n" + "".join(f'{row["x"]},"{row["s"]}"\n' for row in ROWS)


def put(directory: Path) -> None:
    """Write the same rows in every format."""
    for name in ("csv", "csv.gz", "jsonl", "parquet", "arrow"):
        (directory / name).mkdir()
    (directory / "csv" / "a.csv").write_text(CSV)
    (directory / "csv.gz" / "a.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (directory / "jsonl" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(TABLE, directory / "parquet" / "a.parquet")
    feather.write_feather(TABLE, str(directory / "arrow" / "a.arrow"), chunksize=100)
    write_deltalake(directory / "delta", TABLE)


def test_every_format_is_read_from_s3(s3_server: S3Server) -> None:
    put(s3_server.directory)
    for name in ("csv", "csv.gz", "jsonl", "parquet", "arrow", "delta"):
        source = open_source(s3_server.url(name))
        assert source.format == name.removesuffix(".gz").removesuffix("l")
        assert rows(source, 2_000) == ROWS, name
        assert s3_server.secret_key.encode() not in pickle.dumps(source)
        assert s3_server.secret_key not in repr(source)


def test_a_file_that_disappears_from_s3_is_told_by_name(s3_server: S3Server) -> None:
    (s3_server.directory / "a.csv").write_text(CSV)
    source = open_source(s3_server.url("a.csv"))
    pieces = source.pieces()
    (s3_server.directory / "a.csv").unlink()
    with pytest.raises(StorageError, match=r"s3://bucket/a\.csv does not exist"):
        list(source.read(pieces[0], None, print))


@pytest.mark.parametrize("name", ["csv", "csv.gz", "jsonl", "arrow"])
def test_a_store_that_fails_for_a_moment_is_waited_for(s3_server: S3Server, name: str) -> None:
    put(s3_server.directory)
    with serve_faulty(s3_server) as faulty:
        source = open_source(s3_server.url(name), StorageOptions(endpoint=faulty.endpoint))
        pieces = source.pieces(2_000)
        faulty.fail("slow_down", requests=5)
        found = [row for piece in pieces for batch in source.read(piece, None, print) for row in batch.to_pylist()]
    assert found == ROWS


def test_a_delta_table_that_may_not_be_read_tells_no_key(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(s3_server.directory / "t", TABLE)
    source = open_source(s3_server.url("t"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-key")
    with pytest.raises(Exception, match=r"refused|denied|Cannot read") as raised:
        read_all(open_source(s3_server.url("t")))
    assert "another-secret-key" not in str(raised.value)
    assert source.schema == TABLE.schema


class Sts:
    """A token service: gives the bucket's keys to whoever asks, and keeps what it was asked."""

    def __init__(self, server: S3Server) -> None:
        self.asked: list[str] = []
        sts = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sts.asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
                answer = (
                    '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
                    f"<Credentials><AccessKeyId>{server.access_key}</AccessKeyId><SecretAccessKey>{server.secret_key}"
                    "</SecretAccessKey><SessionToken></SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
                    "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
                ).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def sts(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    service = Sts(s3_server)
    thread = threading.Thread(target=service.http.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{service.http.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who-may-assume")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "but-not-read-the-bucket")
    yield service
    service.http.shutdown()
    thread.join()
    service.http.server_close()


def test_a_role_is_assumed_where_the_keys_alone_may_not_read(s3_server: S3Server, sts: Sts) -> None:
    (s3_server.directory / "a.csv").write_text(CSV)
    with pytest.raises(StorageError):
        open_source(s3_server.url("a.csv"))
    role = "arn:aws:iam::123456789012:role/reader"
    assert rows(open_source(s3_server.url("a.csv"), StorageOptions(role=role))) == ROWS
    assert "Action=AssumeRole" in sts.asked[0] and "role%2Freader" in sts.asked[0]


@pytest.mark.parametrize("text", ["AWS Error UNKNOWN (HTTP status 400): ExpiredToken", "AWS Error EXPIRED_TOKEN: x"])
def test_expired_keys_are_told_from_wrong_ones(text: str) -> None:
    error = s3.explain("s3://bucket/a", text)
    assert error.what == "The S3 credentials have expired (s3://bucket/a)."
    assert "aws sso login" in error.fix and "role" in error.fix
