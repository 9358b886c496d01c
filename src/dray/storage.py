"""Files on local disk and on S3, behind one small surface.

A location is a local path or `s3://bucket/key`. `open_storage` turns it into a pyarrow file system and a path
in it; everything else here is built on that. Credentials come from the environment or from a profile in
~/.aws; `StorageOptions` never holds them, so nothing that is stored, logged or sent does.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

import pyarrow as pa
from pyarrow import fs as pafs

from dray import s3
from dray.durable import make_directories, put_in_place
from dray.errors import DataError, StorageError
from dray.masking import holds_password, masked
from dray.retry import OnWait, Retrier, no_report

P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result")

SPOOL_BYTES = 16 << 20
_WILDCARD = re.compile(r"[*?\[]")
_VISIBLE = r"(?![._])"
_BELOW = rf"(?:/{_VISIBLE}[^/]+)*"


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How to reach an object store. Never holds credentials."""

    endpoint: str | None = None
    """URL of an S3 service other than AWS, such as http://minio:9000 (else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)."""
    region: str | None = None
    """Region of the bucket (else AWS_REGION, AWS_DEFAULT_REGION, the profile's, or that of the bucket itself)."""
    profile: str | None = None
    """Profile in ~/.aws to take credentials from (else the environment, then AWS_PROFILE)."""
    role: str | None = None
    """ARN of a role to assume with those credentials (STS); its keys are renewed before they expire."""

    def __post_init__(self) -> None:
        if self.endpoint:
            s3.check_endpoint(self.endpoint)


DEFAULT = StorageOptions()


def is_s3(location: str) -> bool:
    return location.startswith("s3://")


def join(location: str, *names: str) -> str:
    """Return the location of `names` under `location`."""
    return "/".join([location.rstrip("/"), *names])


def paths_as_text(value: Any) -> Any:
    """Return paths of `pathlib` as text, alone or in a list; anything else as it is."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, list | tuple) and any(isinstance(item, PathLike) for item in value):
        return [paths_as_text(item) for item in value]
    return value


def takes_paths(function: Callable[P, R]) -> Callable[P, R]:
    """Have a public function take paths of `pathlib` wherever it takes locations."""

    @functools.wraps(function)
    def taking(*arguments: P.args, **named: P.kwargs) -> R:
        return function(*map(paths_as_text, arguments), **{name: paths_as_text(value) for name, value in named.items()})

    return taking


def absolute(location: str) -> str:
    """Return `location` so that a process with another working directory finds the same file."""
    if is_s3(location):
        return location
    if location.startswith("file://"):
        location = location.removeprefix("file://")
    if not location:
        raise StorageError("The path is empty.", fix="Give a path or s3://bucket/key.")
    if "://" in location and (match := re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+)://", location)):
        raise StorageError(
            # Not first in the sentence: all of it would count as the address, and be masked.
            f"Locations of {match[1]}:// are not supported: {masked(location)}.",
            fix="Use a local path or s3://bucket/key; of a database, the name of a function that connects to it, as "
            "module:function.",
        )
    # Not of pathlib: resolve() would follow links, and thousands of files are asked for.
    return os.path.abspath(os.path.expanduser(location))  # noqa: PTH100, PTH111


def open_storage(location: str, options: StorageOptions = DEFAULT) -> tuple[pafs.FileSystem, str]:
    """Return the file system that holds `location` and the path in it."""
    if not is_s3(location):
        return pafs.LocalFileSystem(), absolute(location)
    bucket, _, key = location.removeprefix("s3://").partition("/")
    if "@" in bucket or holds_password(location):
        raise StorageError(
            f"The location s3://***@{location.rpartition('@')[2]} holds credentials.",
            fix="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile; write s3://bucket/key.",
        )
    if not bucket:
        raise StorageError(f"{location} has no bucket name.", fix="Write s3://bucket/key.")
    with translate_errors(location):
        filesystem = s3.connect(bucket, options.endpoint, options.region, options.profile, options.role)
        return filesystem, f"{bucket}/{key}".rstrip("/")


def s3_variables(location: str, options: StorageOptions = DEFAULT) -> dict[str, str]:
    """Return the AWS variables with which another library reaches an s3:// location. Holds keys: never store them."""
    bucket = location.removeprefix("s3://").partition("/")[0]
    with translate_errors(location):
        return s3.variables(bucket, options.endpoint, options.region, options.profile, options.role)


def expand(locations: Sequence[str], options: StorageOptions = DEFAULT) -> list[str]:
    """Return every file that `locations` name, sorted, each once.

    A location is a file, a directory (all files below it) or a glob (`*`, `?`, `[...]`, `**`). Names that start
    with `.` or `_` are skipped below a directory, as Spark and Hive leave such files beside the data.
    """
    if isinstance(locations, str):
        locations = [locations]
    found: set[str] = set()
    for location in locations:
        with translate_errors(location):
            files = _expand_one(location, options)
        if not files:
            raise DataError(
                f"No file found at {location}{_looked_for(location)}.",
                fix="Check the path; a file, a directory, a glob in quotes or s3://bucket/prefix is expected.",
            )
        found.update(files)
    if not found:
        raise DataError("No data was named.", fix="Give at least one file, directory or glob.")
    return sorted(found)


def covers(location: str, file: str) -> bool:
    """Whether `location`, as a directory or a glob, would name a file at `file`. Asks no store."""
    if is_s3(location) != is_s3(file):
        return False
    path, file = (absolute(name).removeprefix("s3://") for name in (location, file))
    below = re.compile(re.escape(path.rstrip("/")) + _BELOW)
    return bool(below.fullmatch(file) or (_WILDCARD.search(path) and _glob(path).fullmatch(file)))


def write_atomically(location: str, options: StorageOptions, write: Callable[[pa.NativeFile], None]) -> None:
    """Let `write` fill the file at `location`, which appears whole or not at all, and stays after a power cut.

    Parent directories are made. On S3 the bytes are collected locally first (in memory up to 16 MB, then in
    the temporary directory): pyarrow completes an upload even when its writer failed, and a failed
    upload is retried without calling `write` twice.
    """
    filesystem, path = open_storage(location, options)  # without retries: this may be the first access to the store
    if not is_s3(location):
        with translate_errors(location):
            _replace(filesystem, path, write)
        return
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as spool:
        with translate_errors(location):
            sink = pa.PythonFile(spool, mode="w")
            write(sink)
            sink.flush()
        upload(location, options, spool)


def upload(location: str, options: StorageOptions, content: IO[bytes]) -> None:
    """Write a local file to an object, with retries."""
    filesystem, path = open_storage(location, options)

    def write() -> None:
        content.seek(0)
        with filesystem.open_output_stream(path) as stream:
            shutil.copyfileobj(content, stream, 8 << 20)

    with_retries(location, options, write)


def retrier_for(location: str, options: StorageOptions, on_wait: OnWait = no_report) -> Retrier:
    """Return a retrier for operations in the middle of a run on the store of `location`."""
    store = (options, location.removeprefix("s3://").partition("/")[0]) if is_s3(location) else "local"
    return Retrier(store, on_wait)


def with_retries(location: str, options: StorageOptions, act: Callable[[], Result]) -> Result:
    """Return what `act` returns; call it again after transient errors of the store of `location`."""
    retrier = retrier_for(location, options)
    while True:
        try:
            with translate_errors(location):
                result = act()
        except StorageError as error:
            retrier.wait_after(error)
        else:
            retrier.succeeded()
            return result


def remove_directory(location: str, options: StorageOptions = DEFAULT) -> None:
    """Remove `location` and everything below it; nothing happens when it is not there."""
    filesystem, path = open_storage(location, options)
    with translate_errors(location):
        if is_s3(location):
            s3.delete_directory(filesystem, path)
        else:
            with suppress(FileNotFoundError):
                filesystem.delete_dir(path)


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Raise errors of the operating system or the object store about `location` as a `StorageError`.

    An OSError or ArrowInvalid about the *contents* of a file is not translated: only its reader can explain it.
    """
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        translated = _translate(location, error)
        if translated is None:
            raise
        raise translated from error


def _replace(filesystem: pafs.FileSystem, path: str, write: Callable[[pa.NativeFile], None]) -> None:
    target = Path(path)
    make_directories(target.parent)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with filesystem.open_output_stream(str(temporary)) as stream:
            write(stream)
        put_in_place(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _expand_one(location: str, options: StorageOptions) -> list[str]:
    prefix = "s3://" if is_s3(location) else ""
    filesystem, path = open_storage(location, options)
    kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.File:
        return [prefix + path]
    pattern = re.compile(re.escape(path.rstrip("/")) + _BELOW)
    if kind == pafs.FileType.NotFound:
        wildcard = _WILDCARD.search(path)
        if not wildcard:
            if prefix:
                with suppress(FileNotFoundError):  # tells a missing bucket from a missing key
                    filesystem.get_file_info(pafs.FileSelector(path))
            return []
        pattern = _glob(path)
        path = path[: wildcard.start()].rpartition("/")[0] or "/"
    try:
        entries = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    except FileNotFoundError:
        return []
    return [prefix + e.path for e in entries if e.type == pafs.FileType.File and pattern.fullmatch(e.path)]


def _glob(path: str) -> re.Pattern[str]:
    """Return what `path` matches: wildcards stay in a name, `**` spans directories, a directory means all in it."""
    parts = path.split("/")
    translated = [rf"(?:{_VISIBLE}[^/]+/)*" if part == "**" else _glob_name(part) + "/" for part in parts]
    if parts[-1] == "**":
        return re.compile("".join(translated) + rf"{_VISIBLE}[^/]+")
    return re.compile("".join(translated).removesuffix("/") + _BELOW)


def _glob_name(name: str) -> str:
    translated = _VISIBLE if _WILDCARD.match(name) else ""
    for piece in re.split(r"(\*+|\?|\[[^\]]+\])", name):
        if piece.startswith("*"):
            translated += "[^/]*"
        elif piece == "?":
            translated += "[^/]"
        elif piece.startswith("[") and piece.endswith("]"):
            characters = piece[1:-1].replace("\\", "\\\\")
            translated += f"[^{characters[1:]}]" if characters.startswith("!") else f"[{characters}]"
        else:
            translated += re.escape(piece)
    return translated


def _looked_for(location: str) -> str:
    return "" if is_s3(location) or Path(location).is_absolute() else f" (looked for {absolute(location)})"


def _translate(location: str, error: Exception) -> StorageError | None:
    text = str(error)
    if "AWS Error" in text or (is_s3(location) and "S3" in text):
        return s3.explain(location, text)
    number = getattr(error, "errno", None)
    place = masked(location)
    match number:
        case None:
            return None
        case errno.ENOSPC | errno.EDQUOT:
            where = "the temporary directory or the store" if is_s3(location) else "the disk"
            return StorageError(
                f"No space left on {where} while writing {place}.",
                fix="Free some space, or write elsewhere with another output path.",
            )
        case errno.ENOENT:
            return StorageError(f"{place} does not exist.", fix="Check the path.")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StorageError(
                f"No permission to use {place}: {os.strerror(number)}.",
                fix="Choose another path, or change the permissions of this one.",
            )
        case errno.ENOTDIR | errno.EISDIR | errno.EEXIST:
            return StorageError(f"{place} cannot be used: {os.strerror(number).lower()}.", fix="Choose another path.")
    return StorageError(f"{place} cannot be used: {os.strerror(number)}.", fix="Check the disk or the network mount.")
