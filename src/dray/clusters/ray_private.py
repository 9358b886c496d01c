"""Private parts of Ray, all of them in this file, and what happens where a version of Ray lacks one.

Ray promises nothing about what begins with an underscore, and has no public way to do these things. Each part is looked
up when it is used; a part that is gone costs what the table says, never a traceback.

| part                           | for                                 | without it                                |
|--------------------------------|-------------------------------------|-------------------------------------------|
| starter of processes           | an embedded head in 1 s, not in 5   | Ray starts as it does by itself           |
| listener of errors             | no message of Ray's on the terminal | they show                                 |
| free and draining nodes        | threads by what is free; notice     | all CPUs count as free; a node just goes  |
| reading the token again        | a cluster with a token of its own   | the token of the environment, or an error |
| addresses, GcsClient, versions | an answer in 1 s before joining     | `ray.init` itself tries, for up to 80 s   |
| start inside Spark             | `cluster: spark`                    | an error that names the versions          |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

Replacement = tuple[Any, str, Any]
"""An owner, the name of an attribute, and what it becomes for a while."""

TESTED = "ray>=2.52,<=2.60"
"""The versions of Ray whose private parts are known."""
SPARK_LOGGERS = ("ray.util.spark", "ray.util.spark.utils", "ray.autoscaler._private.spark.spark_job_server")
_SPARK_PARTS = (
    *("get_spark_session", "_start_ray_head_node", "_RAY_HEAD_STARTUP_TIMEOUT", "is_port_in_use"),
    *("RayClusterOnSpark.wait_until_ready", "_active_ray_cluster", "_sigterm_signal_installed"),
)


class MissingPartError(Exception):
    """This version of Ray has no such part."""


def part(module: str, name: str = "") -> Any:
    """Return a module of Ray's, or a name in it (a.b goes on); raise MissingPartError where there is none."""
    try:
        found = import_module(module)
        for piece in name.split(".") if name else ():
            found = getattr(found, piece)
    except (ImportError, AttributeError) as error:
        raise MissingPartError(f"{module} {name}".rstrip()) from error
    return found


@contextmanager
def replaced(replacements: list[Replacement]) -> Iterator[None]:
    """Change attributes for as long as the context lasts."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, new in replacements:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


def starter_replacements(
    change_raylet: Callable[[list[str]], list[str]], ports: Mapping[str, int]
) -> list[Replacement]:
    """Return what makes `ray.init()` start a head without the processes that a run does not need.

    `change_raylet` gets the raylet's command and returns the one to start; `ports` of agents that are not started are
    written down for it. Raises MissingPartError.
    """
    node, services = part("ray._private.node", "Node"), part("ray._private.services")
    private, persist_port = part("ray._private.utils"), part("ray._raylet", "persist_port")
    start_ray_process = part("ray._private.services", "start_ray_process")
    popen = part("ray._private.services", "ConsolePopen")

    def start(command: list[str], *args: Any, **kwargs: Any) -> Any:
        if command[0].endswith("raylet"):
            command = change_raylet(command)
            options = dict(word.split("=", 1) for word in command if "=" in word)
            for name, port in ports.items():
                persist_port(options["--session_dir"], options["--node_id"], name, port)
        return start_ray_process(command, *args, **kwargs)

    def popen_apart(*args: Any, **kwargs: Any) -> Any:
        # A signal to the whole process group (a scheduler's SIGTERM, a terminal's Ctrl-C) is the driver's to answer:
        # with the raylet gone, Ray ends the driver's process on the spot, and no checkpoint is written.
        return popen(*args, **({"process_group": 0} | kwargs))

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    replacements: list[Replacement] = [
        (node, "start_api_server", nothing),
        (node, "start_monitor", nothing),
        (node, "start_log_monitor", nothing),
        (services, "start_ray_process", start),
        (services, "ConsolePopen", popen_apart),
        # Ray turns 127.0.0.1 into the address of the network card, which a run on one machine has no use for.
        (services, "resolve_ip_for_localhost", lambda host: host),
        # Asked whether the dashboard could run, Ray imports all its libraries into this process: up to 1 s.
        (private, "get_dashboard_dependency_error", lambda: ImportError("no dashboard")),
    ]
    for owner, name, _ in replacements:
        if not hasattr(owner, name):
            raise MissingPartError(name)
    return replacements


def listener_replacements() -> list[Replacement]:
    """Return what keeps `ray.init()` from starting the thread that prints lost workers; nothing where it is gone."""
    with suppress(MissingPartError):
        part("ray._private.worker", "listen_error_messages")
        return [(part("ray._private.worker"), "listen_error_messages", lambda *_: None)]
    return []


def free_resources() -> dict[str, dict[str, float]] | None:
    """Return what is free on each node, by id; None where Ray does not tell."""
    try:
        found: dict[str, dict[str, float]] = part("ray._private.state", "available_resources_per_node")()
    except MissingPartError:
        return None
    return found


def draining_nodes() -> dict[str, int]:
    """Return the nodes that were told to go, by id, with the deadline (ms since 1970, 0: none)."""
    try:
        found: dict[str, int] = part("ray._private.state", "state.get_draining_nodes")()
    except MissingPartError:  # a node then goes without notice
        return {}
    return found


def authentication_reader() -> Callable[[], None] | None:
    """Return what lets Ray read the authentication variables again: it keeps what it read first. None: it cannot."""
    try:
        initialize = part("ray._raylet", "Config.initialize")
        loader = part("ray._raylet", "AuthenticationTokenLoader.instance")
    except MissingPartError:
        return None

    def read() -> None:
        initialize("")
        loader().reset_cache()

    return read


def addresses_here() -> list[str]:
    """Return the addresses of the clusters on this machine, the one that `ray start` noted down first."""
    running = sorted(part("ray._private.services", "find_gcs_addresses")())
    noted = part("ray._private.services", "find_bootstrap_address")(None)
    return [address for address in (noted, *running) if address and address in running]


def canonical(address: str) -> str:
    return str(part("ray._private.services", "canonicalize_bootstrap_address")(address))


def use_token_at_hand() -> bool:
    """Turn on authentication if there is a token, as Ray does for a cluster of this machine; say whether it is on."""
    module = "ray._private.authentication.authentication_token_setup"
    return bool(part(module, "maybe_enable_token_auth_if_token_available")(warn_if_disabled=False))


def gcs_client() -> Callable[..., Any]:
    """Return the class of clients of a head's own service."""
    found: Callable[..., Any] = part("ray._raylet", "GcsClient")
    return found


def cluster_versions(client: Any) -> dict[str, str]:
    """Return the versions that a cluster was started with, empty where it does not tell."""
    try:
        metadata = part("ray._common.usage.usage_lib", "get_cluster_metadata")(client) or {}
    except MissingPartError:
        metadata = {}
    return {"ray": str(metadata.get("ray_version", "")), "python": str(metadata.get("python_version", ""))}


def node_ids_here() -> set[str]:
    """Return the ids of the nodes that run on this machine."""
    return set(part("ray._private.services", "find_node_ids")())


class SparkStarter:
    """Ray's own starter inside a Spark session, with the parts that have no option. Raises MissingPartError."""

    def __init__(self) -> None:
        self.module = part("ray.util.spark.cluster_init")
        self._server = part("ray.autoscaler._private.spark.spark_job_server")
        self._start_server = part("ray.autoscaler._private.spark.spark_job_server", "_start_spark_job_server")
        for name in _SPARK_PARTS:
            part("ray.util.spark.cluster_init", name)

    @property
    def active(self) -> Any:
        """The cluster that runs in this process's session, or None."""
        return self.module._active_ray_cluster

    def forget(self) -> None:
        self.module._active_ray_cluster = None

    @property
    def handles_sigterm(self) -> bool:
        return bool(self.module._sigterm_signal_installed)

    @handles_sigterm.setter
    def handles_sigterm(self, value: bool) -> None:
        self.module._sigterm_signal_installed = value

    def replacements(
        self,
        session: Any,
        start_head: Callable[..., Any],
        wait_for_port: Callable[[str, int], bool],
        note_server: Callable[[Any], object],
    ) -> list[Replacement]:
        """Return the changes: that session, our start of the head, a wait by its port, none for the nodes."""

        def noted_server(*args: Any, **kwargs: Any) -> Any:
            server = self._start_server(*args, **kwargs)
            note_server(server)
            return server

        return [
            (self.module, "get_spark_session", lambda: session),
            (self.module, "_start_ray_head_node", start_head),
            (self.module, "_RAY_HEAD_STARTUP_TIMEOUT", 0),
            (self.module, "is_port_in_use", wait_for_port),
            (self.module.RayClusterOnSpark, "wait_until_ready", lambda _: None),
            (self._server, "_start_spark_job_server", noted_server),
        ]
