"""A local directory that takes the place of another when it is complete.

The new one grows beside the old one, under a name that nothing else has: .OUT.dray-new.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from dray.durable import sync_directory
from dray.errors import StorageError
from dray.storage import is_s3, translate_errors

Foreign = Callable[[str], Iterable[str]]
"""Returns the names of what dray did not write in a directory, links among them."""


def beside(out: str) -> str:
    """Return where the new content of an output is written until it is complete. Pure."""
    return _beside(out, "new")


def refuse_links(out: str) -> None:
    """Refuse an output that is a link: what it leads to may be anything."""
    if not is_s3(out) and (path := Path(out)).is_symlink():
        raise StorageError(
            f"{out} is a link to {path.readlink()}.", fix="Name the directory or file itself: links are not followed."
        )


def clear_beside(out: str) -> None:
    """Remove what an earlier try left beside an output; refuse a link there."""
    place = beside(out)
    refuse_links(place)
    with translate_errors(place), suppress(FileNotFoundError):
        shutil.rmtree(place)


def claim_beside(out: str) -> int:
    """Make an empty directory beside an output, for one process: close the descriptor when it has taken the place."""
    place = beside(out)
    with suppress(FileNotFoundError):
        os.close(_locked(place))  # left by a process that was killed
    clear_beside(out)
    with translate_errors(place):
        os.mkdir(place)  # noqa: PTH102
    return _locked(place)


def _locked(place: str) -> int:
    """Return a descriptor that holds the lock of a directory; where the file system has no locks, one without it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StorageError(
            f"Another process is writing {place}, to replace the same output.", fix="Wait for it, or stop it first."
        ) from None
    except OSError:
        pass
    return descriptor


def take_the_place(out: str, foreign: Foreign) -> None:
    """Put the content beside an output into its place, and remove the old one.

    The new one may have taken hours: what was put into the old one meanwhile, by other hands than dray's, is what
    `foreign` finds in a directory, and is moved over. Where the new one has the same name, it stays in .OUT.dray-old.

    Between two renames there is neither; a process that ends there leaves both beside, as .OUT.dray-new and
    .OUT.dray-old.
    """
    old = _beside(out, "old")
    refuse_links(old)
    with translate_errors(out):
        _remove_but_foreign(old, out, foreign)
        while os.path.lexists(old):  # what is in it has the name of a file that dray wrote, and was never looked for
            old += "-2"
        with suppress(FileNotFoundError):  # it was removed meanwhile
            os.rename(out, old)  # noqa: PTH104
        os.rename(beside(out), out)  # noqa: PTH104
        sync_directory(Path(out).parent)
        _remove_but_foreign(old, out, foreign)


def _remove_but_foreign(old: str, out: str, foreign: Foreign) -> None:
    """Remove what dray wrote of an old output; move the rest to the same names in the present one.

    It is removed under another name: half of it, left by a process that was killed, would look like something else's.
    """
    gone = _beside(out, "gone")
    refuse_links(gone)
    with suppress(FileNotFoundError):
        shutil.rmtree(gone)
    if not os.path.lexists(old) or Path(old).is_symlink():
        return
    for name in foreign(old) if Path(out).is_dir() else ():
        place = Path(out) / name
        if not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(Path(old) / name, place)  # noqa: PTH104
    if not foreign(old):
        os.rename(old, gone)  # noqa: PTH104
        shutil.rmtree(gone)


def _beside(out: str, which: str) -> str:
    folder, slash, name = out.rstrip("/").rpartition("/")
    return f"{folder}{slash}.{name}.dray-{which}"
