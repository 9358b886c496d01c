"""Where a copy to Parquet is made: by the nodes of the cluster that will read it, or by processes of this machine.

A cluster's nodes read the copy, so each of them must see its directory; this is asked of every node before anything is
copied. The nodes also make it, if they see what is copied. Rows of this process's memory, files that only this machine
sees, and queries, whose credentials are in this process's environment, are copied by this machine, to the same place.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dray.batch.options import Options
from dray.clusters.connect import connect, joins
from dray.errors import StorageError
from dray.events.kinds import Warned
from dray.storage import is_s3, translate_errors

if TYPE_CHECKING:
    from dray.batch.engine import Emit

_SHOWN = 5
HERE = Options()
"""By processes of this machine."""


@contextmanager
def where_copied(
    cluster: str | None, cache: str, files: Sequence[str] | None, source: str, emit: Emit
) -> Iterator[Options]:
    """Give the options of the ingest that makes the copy; refuse a cache that not all nodes see.

    `cluster`: the one whose nodes will read it; None if this process does. `files`: what is copied, None if only this
    process has it. The cluster stays connected as long as the block lasts.
    """
    if cluster is None or not joins(cluster):
        yield HERE
        return
    from dray.clusters.files_seen import unseen_files

    local = [name for name in files or () if not is_s3(name)]
    with connect(cluster, workers=1, threads=1) as connected:
        if is_s3(cache):
            unseen = unseen_files(connected, local) if local else {}
        else:
            with _probe(cache) as probe:
                unseen = unseen_files(connected, [probe, *local])
                require_seen(cache, source, [node for node, missing in unseen.items() if probe in missing])
        if files is not None and unseen:
            emit(Warned(without_nodes(source, unseen)))
        yield HERE if files is None or unseen else Options(where="cluster", cluster=cluster)


def require_seen(cache: str, source: str, blind: Sequence[str]) -> None:
    """Refuse a cache that some nodes do not see. Pure."""
    if blind:
        raise StorageError(
            f"The copy of {source} as Parquet would be in {cache}, which {_named(blind)} of the cluster cannot read.",
            fix="Keep copies where all nodes see them, as the same user: --cache s3://bucket/cache, or a "
            "directory on a network file system.",
        )


def without_nodes(source: str, unseen: Mapping[str, Sequence[str]]) -> str:
    """Say why the nodes do not make the copy. Pure."""
    first = next(iter(unseen.values()))[0]
    return f"{_named(list(unseen))} of the cluster cannot read {first}: this machine copies {source} for all nodes."


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return f"the {'node' if len(nodes) == 1 else 'nodes'} {', '.join(nodes[:_SHOWN])}{more}"


@contextmanager
def _probe(cache: str) -> Iterator[str]:
    """Give a new file in the cache, for a moment; a cache that was made for it goes too, if it stays empty."""
    directory = Path(cache)
    made = not directory.exists()
    with translate_errors(cache):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = directory / f".dray-{secrets.token_hex(8)}"
        probe.touch(mode=0o600)
    try:
        yield str(probe)
    finally:
        with suppress(OSError):
            probe.unlink()
            if made:
                directory.rmdir()
