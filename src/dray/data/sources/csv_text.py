"""The bytes of a CSV file as UTF-8 text: decoded where they are in another encoding."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import suppress

from dray.data.source import Note
from dray.data.sources.files import DataFile, chunks, head
from dray.errors import ConfigError, DataError
from dray.storage import StorageOptions

_BOMS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
         codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip
"""The longer first: UTF-32's begins with that of UTF-16."""
_INVALID = "dray.invalid"
_INVALID_CHARACTER = "\udcff"
"""Becomes the byte FF, which UTF-8 does not have: the row that holds it is rejected."""


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _INVALID_CHARACTER, error.end


codecs.register_error(_INVALID, _mark_invalid)


def known_encoding(name: str) -> str | None:
    """Return the encoding's own name, or None for UTF-8; refuse one that Python does not know."""
    try:
        found = codecs.lookup(name)
        "".encode(name)  # base64 and the like are codecs, but not of text
    except LookupError:
        raise ConfigError(
            f'There is no encoding "{name}".', fix="Use --read encoding=utf-16, cp1252, latin-1 or another of Python's."
        ) from None
    return None if found.name in ("utf-8", "utf-8-sig", "ascii") else found.name


def encoding_of(first: bytes, asked: str | None, location: str) -> str | None:
    """Return the encoding of a file with these first bytes, None for UTF-8; `asked` is what the user gave."""
    wanted = known_encoding(asked) if asked is not None else None
    by_bom = next((name for bom, name in _BOMS.items() if first.startswith(bom)), None)
    wide = by_bom or _wide(first)
    if asked is None:
        if by_bom is None and wide is not None:
            raise DataError(
                f"Every second byte of {location} is zero: it looks like {wide.upper()}, not like UTF-8.",
                fix=f"Read it with --read encoding={wide}.",
            )
        return by_bom
    if wanted is not None and wanted.startswith(("utf-16", "utf-32")):
        if first and wide is None and b"\0" not in first:
            raise DataError(
                f"{location} is not {asked}: its start has no byte that is zero.",
                fix="Use --read encoding=utf-8 if it is UTF-8, or its own, such as --read encoding=cp1252.",
            )
        return wide if wanted == "utf-16" and by_bom is None and wide is not None else wanted
    if wide is not None:
        raise DataError(f"{location} looks like {wide.upper()}, not like {asked}.", fix=f"Use --read encoding={wide}.")
    return wanted


def _wide(first: bytes) -> str | None:
    """Return UTF-16 with its order of bytes, if most characters are of ASCII: then every second byte is zero."""
    pairs = len(first) // 2
    if pairs < 2:
        return None
    low, high = first[1 : 2 * pairs : 2].count(0), first[0 : 2 * pairs : 2].count(0)
    if low > 0.9 * pairs and high < 0.1 * pairs:
        return "utf-16-le"
    return "utf-16-be" if high > 0.9 * pairs and low < 0.1 * pairs else None


def require_text(first: bytes, location: str) -> None:
    """Refuse what is no text: a workbook, or an archive with the name of a text file."""
    if first.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise DataError(
            f"{location} is a workbook or an archive, not CSV.",
            fix="Save the sheet as CSV, or read it with pandas.read_excel and give the frame to dray in Python; an "
            "archive needs the ending .zip.",
        )
    for mark, format in ((b"PAR1", "parquet"), (b"ARROW1", "arrow")):
        if first.startswith(mark):
            raise DataError(f"{location} holds {format}, not CSV.", fix=f"Use --format {format}.")


def encoding_notes(sample: bytes, encoding: str | None, asked: str | None, location: str) -> list[Note]:
    """Return what is odd about the encoding; `sample` is text of the file as UTF-8, as it was decoded."""
    if encoding is None:
        try:
            sample.decode()
        except UnicodeDecodeError as error:
            if error.end < len(sample):
                fits = next(name for name in ("cp1252", "latin-1") if _decodes(sample, name))
                return [
                    Note(
                        f"{location} is not UTF-8: rows with such text are rejected.",
                        fix=f"If it was written on Windows, use --read encoding={fits}; if elsewhere, its encoding.",
                    )
                ]
        return []
    if asked is not None and not encoding.startswith("utf") and not sample.isascii():
        with suppress(UnicodeError):
            sample.decode().encode(encoding).decode()
            return [
                Note(
                    f"{location} looks like UTF-8, but is read as {asked}: other letters come out.",
                    fix="Use --read encoding=utf-8.",
                )
            ]
    return []


def _decodes(text: bytes, encoding: str) -> bool:
    try:
        text.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def text_chunks(
    file: DataFile, encoding: str | None, storage: StorageOptions, start: int = 0, stop: int | None = None
) -> Iterator[bytes]:
    """Yield the text from `start` on, which counts bytes of UTF-8: of a file in another encoding, all of it."""
    if encoding is None:
        yield from chunks(file, storage, start, stop)
        return
    skip = start
    for text in _decoded(chunks(file, storage), encoding):
        if skip < len(text):
            yield text[skip:]
        skip = max(0, skip - len(text))


def text_head(file: DataFile, encoding: str | None, storage: StorageOptions, size: int) -> bytes:
    """Return the first bytes of a file's text."""
    if encoding is None:
        return head(file, storage, size)
    collected = b""
    for text in text_chunks(file, encoding, storage):
        collected += text
        if len(collected) >= size:
            break
    return collected[:size]


def _decoded(read: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_INVALID)
    for chunk in read:
        yield decoder.decode(chunk).encode(errors="surrogateescape")
    yield decoder.decode(b"", final=True).encode(errors="surrogateescape")
