"""CSV as others write it, with every option."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dray.data.open_source import open_source
from dray.data.source import REJECTED, Reject
from security.attack import Parser

_ROWS = 3
_PLAIN = b'id,name,n\n1,"Smith, J",1.5\n2,x,\n3,y,2\n'
_ABROAD = '# made\nid;name;n\n1;"Müller; H";1.234,5\n2;x;\n3;y;-2,25\n'


def _csv(text: bytes, name: str = "a.csv", **options: Any) -> Parser:
    """Return the reader of a file: opened, with what it looks like; then read, small pieces at a time, in place."""
    directory: list[Path] = []

    def inputs() -> list[bytes]:
        directory.append(Path(tempfile.mkdtemp()))
        return [text]

    def parse(content: bytes) -> tuple[int, int]:
        path = directory[0] / name
        path.write_bytes(content)
        source = open_source(str(path), format="csv", **options)
        rejects: list[Reject] = []
        pieces = source.pieces(16)
        kept = sum(batch.num_rows for piece in pieces for batch in source.read(piece, None, rejects.append))
        placed = [batch for piece in pieces for batch in source.read(piece, None, _pass_over, in_place=True)]
        assert sum(batch.num_rows for batch in placed) == kept + len(rejects)
        assert sum(batch[REJECTED].true_count for batch in placed) == len(rejects)
        return kept, len(rejects)

    return Parser(inputs, parse, lambda read: read == (_ROWS, 0))


def _pass_over(_reject: Reject) -> None:
    pass


def _zip(text: bytes) -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", text)
    return stored.getvalue()


def _without_comment(write: Callable[[str], bytes]) -> bytes:
    return write(_ABROAD.partition("\n")[2])


PARSERS = {
    "plain": _csv(_PLAIN),
    "abroad": _csv(_ABROAD.encode(), comment="#", decimal=",", thousands="."),
    "skipped": _csv(_ABROAD.encode(), skip=1, strip=True, nulls=["x"], thousands="."),
    "wide": _csv(_without_comment(lambda text: text.encode("utf-16")), decimal=",", thousands="."),
    "one_byte": _csv(_without_comment(lambda text: text.encode("cp1252")), encoding="cp1252", delimiter=";"),
    "several_bytes": _csv(_without_comment(lambda text: text.encode("gb18030")), encoding="gb18030", delimiter=";"),
    "blanks": _csv(b' id  name n\n1 "a b"\t1.5\n 2  x  2\n3 y 2  \n', delimiter="whitespace"),
    "archive": _csv(_zip(_PLAIN), "a.zip"),
}
