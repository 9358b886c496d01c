"""Directories that links give a second name: their files are read once. Local ones; a store has no links."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dray.data.source import Note
from dray.storage import is_s3


def each_once(files: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the files without those that a link to their directory names again, and what these directories are.

    A directory goes by its own name where that is among them, else by its shortest. Only directories are looked at:
    a link to a file is a file.
    """
    directories = {file.rpartition("/")[0] for file in files if not is_s3(file)}
    real = {directory: os.path.realpath(directory) for directory in directories}
    if len(set(real.values())) == len(real):
        return list(files), {}
    order = sorted(real, key=lambda name: (name != real[name], name.count("/"), name))
    rank = {directory: place for place, directory in enumerate(order)}
    first: dict[tuple[str, str], str] = {}
    again: dict[str, str] = {}
    for file in sorted(files, key=lambda file: rank.get(file.rpartition("/")[0], -1)):
        directory, _, name = file.rpartition("/")
        known = first.setdefault((real.get(directory, directory), name), file)
        if known != file:
            again[directory] = known.rpartition("/")[0]
    return sorted(first.values()), again


def notes_of_links(again: dict[str, str]) -> tuple[Note, ...]:
    """Return what is said of directories that are read under another name."""
    if not again:
        return ()
    link, directory = next(iter(again.items()))
    count = f"{len(again):,} directories are" if len(again) > 1 else "1 directory is"
    return (
        Note(
            f"{count} another one by a link, and passed over: {link} is {directory}.",
            "Copy the files there if their rows are meant to count twice.",
        ),
    )
