"""`dray cluster`: start, watch, change and end clusters of every kind (`clusters/providers.py`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli.host_progress import host_progress
from dray.cli.options import output_options
from dray.cli.output import human, log_line, print_json, say
from dray.clusters.providers import DEFAULT, KINDS, find, provider_of
from dray.errors import ClusterError
from dray.events.format import size

if TYPE_CHECKING:
    from dray.clusters.known import Known
    from dray.clusters.provider import Status

_name = click.option("--cluster", "name", metavar="NAME", help="Which one; not needed while there is only one.")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)i?B?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


class _Size(click.ParamType[int]):
    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _BYTES.fullmatch(str(value).strip())
        if found is None:
            self.fail(f'"{value}" is not a size: write 6G or 500M.', param, ctx)
        return int(float(found[1]) * 1024 ** _POWERS[found[2]])


@click.group(
    help=f"""Start, watch, change and end Ray clusters, of these kinds:

    \b
    {chr(10).join(f"    {name}: {kind.what}" for name, kind in KINDS.items()).lstrip()}

    A cluster that was started here is named in --cluster of dray train and dray job.
    """
)
def cluster() -> None: ...


@cluster.command()
@click.argument("file", required=False)
@click.option("--on", "kind", type=click.Choice(list(KINDS)), default=DEFAULT, show_default=True, help="Which kind.")
@click.option("--wait", "wait_s", type=float, metavar="SECONDS", help="Longest wait for all nodes.")
@output_options
def up(file: str | None, kind: str, wait_s: float | None, as_json: bool, quiet: bool) -> None:
    """Start the cluster that FILE describes, or repair what is missing of it; what runs stays as it is.

    dray cluster --help says what FILE holds for each kind.
    """
    with host_progress(quiet) as tell:
        status = find(kind).up(file, tell, wait_s=wait_s)
    _show(status, as_json, quiet)


@cluster.command()
@click.argument("file", required=False)
@click.option("--on", "kind", type=click.Choice(list(KINDS)), required=True, help="What the manifests are for.")
def render(file: str | None, kind: str) -> None:
    """Print the manifests that dray would apply for a cluster, or with a run file (run.yaml) for a job.

    FILE holds the settings, a run file under the name of the kind.
    """
    sys.stdout.write(find(kind).render(file))


@cluster.command()
@click.argument("host")
@click.option("--workers", type=int, help="Ray nodes on this host. [default: 1]")
@click.option("--cpus", type=int, help="CPUs of each. [default: the host's, shared]")
@click.option("--memory", metavar="SIZE", help="Memory of each, such as 6G. [default: the host's, shared]")
@click.option("--user", help="User to log in as.")
@click.option("--key", metavar="FILE", help="Private key.")
@click.option("--port", type=int, help="Port of its SSH server.")
@_name
@output_options
def add(host: str, name: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Add HOST to a cluster of hosts, or repair it: nothing else changes."""
    known = _known(name)
    values = {"host": host} | {key: value for key, value in given.items() if value is not None}
    with host_progress(quiet) as tell:
        status = provider_of(known).add(known, values, tell)
    _show(status, as_json, quiet)


@cluster.command()
@click.argument("host")
@_name
@output_options
def remove(host: str, name: str | None, as_json: bool, quiet: bool) -> None:
    """Take HOST out of a cluster of hosts: its work goes elsewhere first, then its nodes end."""
    from dray.clusters.known import names, read

    known = _known(name)
    with host_progress(quiet) as tell:
        provider_of(known).remove(known, host, tell)
    if known.name in names():
        _show(provider_of(known).status(read(known.name)), as_json, quiet)
    else:  # it was the last one
        _tell_down(known, as_json, quiet)


@cluster.command()
@click.argument("name", required=False)
@click.option("--workers", type=int, required=True, help="Worker pods.")
@output_options
def scale(name: str | None, workers: int, as_json: bool, quiet: bool) -> None:
    """Change the number of workers of a cluster of pods."""
    known = _known(name)
    with host_progress(quiet) as tell:
        status = provider_of(known).scale(known, workers, tell)
    _show(status, as_json, quiet)


@cluster.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
def status(name: str | None, as_json: bool) -> None:
    """Say of a cluster: nodes, CPUs, memory, versions, what runs on it."""
    known = _known(name)
    _show(provider_of(known).status(known), as_json, quiet=False)


@cluster.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
def list_(as_json: bool) -> None:
    """List the clusters that were started here."""
    from dray.clusters.known import names, read

    found = [read(name) for name in names()]
    if as_json:
        print_json({"clusters": [{"name": k.name, "kind": k.kind, "address": k.address} for k in found]})
    elif not found:
        human("No cluster was started here. dray cluster up fleet.yaml starts one.")
    for known in found if not as_json else ():
        say(f"{known.name}  {known.kind}  {known.address}")


@cluster.command()
@click.argument("node", required=False)
@click.option("--errors", is_flag=True, help="Only lines with errors and warnings.")
@click.option("--lines", type=int, default=200, show_default=True, help="Lines of each node, the last.")
@_name
def logs(node: str | None, errors: bool, lines: int, name: str | None) -> None:
    """Print the last lines of the logs of NODE (a host, host/2, a pod), or of all."""
    known = _known(name)
    for line in provider_of(known).logs(known, node, errors=errors, lines=lines):
        log_line(line)


@cluster.command()
@click.argument("name", required=False)
@output_options
def down(name: str | None, as_json: bool, quiet: bool) -> None:
    """End a cluster: no process and no token of it is left."""
    known = _known(name)
    with host_progress(quiet) as tell:
        provider_of(known).down(known, tell)
    _tell_down(known, as_json, quiet)


@cluster.command()
@click.argument("name", required=False)
@click.option(
    "--limit",
    type=_Size(),
    default="1G",
    show_default=True,
    help="Disk space that old sessions may take on each host, such as 10G.",
)
@output_options
def cleanup(name: str | None, limit: int, as_json: bool, quiet: bool) -> None:
    """Remove old session directories of Ray from the hosts of a cluster, the oldest first; never one in use."""
    known = _known(name)
    with host_progress(quiet) as tell:
        found = provider_of(known).cleanup(known, limit, tell)
    if as_json:
        print_json({"name": known.name, "hosts": found})


@cluster.command("port-forward")
@click.argument("name", required=False)
def port_forward(name: str | None) -> None:
    """Bring a cluster's dashboard and job server to a port of this machine, on 127.0.0.1, until Ctrl-C."""
    import threading

    from dray.clusters.known import token_file

    known = _known(name)
    with provider_of(known).endpoint(known) as url:
        human(f"{url}  (Ctrl-C ends it; the token is in {token_file(known.name)})")
        threading.Event().wait()


def _known(name: str | None) -> Known:
    """Return the cluster that is meant: the named one, or the only one."""
    from dray.clusters.known import names, read

    if name is None:
        found = names()
        if len(found) != 1:
            which = f"Name one of them: {', '.join(found)}." if found else "dray cluster up starts one."
            raise ClusterError(f"{len(found) or 'No'} clusters were started here.", fix=which)
        name = found[0]
    return read(name)


def _tell_down(known: Known, as_json: bool, quiet: bool) -> None:
    if not quiet:
        human(f"The cluster {known.name} is down.")
    if as_json:
        print_json({"name": known.name, "down": True})


def _show(found: Status, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json(found.to_json())
    elif not quiet:
        _table(found)
    for warning in found.warnings:
        human(f"Warning: {warning}")


def _table(found: Status) -> None:
    from rich.table import Table
    from rich.text import Text

    from dray.events.sinks.console import SafeConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("node", "state", "CPUs", "memory", "object store", "Ray", "Python"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("CPUs", "memory", "object store") else "left")
    for node in found.nodes:
        state = Text("alive" if node.alive else "lost", style="green" if node.alive else "red")
        amounts = [f"{node.cpus:g}" if node.cpus else "", *(size(n) if n else "" for n in _memory(node))]
        table.add_row(Text(f"{node.name}{' (head)' if node.head else ''}"), state, *amounts, node.ray, node.python)
    console = SafeConsole(highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # in a pipe there is no width to fit
    console.print(Text(f"{found.name}: {found.kind}, {found.address}", style="bold"))
    console.print(table)
    for node in found.nodes:
        if node.reason:
            console.print(Text(f"{node.name}: {node.reason}", style="dim" if node.alive else "red"))
    for job in found.running:
        console.print(Text(f"runs: {job}"))


def _memory(node: Any) -> Sequence[int]:
    return node.memory_bytes, node.object_store_bytes
