"""Start of an embedded Ray head with the processes that a run needs, and no others.

`ray.init()` also starts a dashboard server (even when told not to include the dashboard), an autoscaler's monitor,
a log forwarder, a metrics agent and an agent for runtime environments: five Python processes, and it waits for three
of them. On 2 cores that is about 5 of 8 CPU seconds until two workers live. A run on one machine uses none of them.
Ray has no option for it, so its starter is changed while it starts. Where Ray's insides are not as expected, nothing
is changed and Ray starts in its own way, only slower. docs/decisions/0003-threads-and-start.md has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# The raylet wants an agent that lives as long as it does. `cat` reads the pipe that the raylet gives it, so it ends
# with the raylet, even with one that was killed.
_IDLE_AGENT = "/bin/cat"
_AGENTS = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
# The raylet waits until its agents have written their ports to files; -1 is Ray's own word for "not in use".
_NOT_IN_USE = {"metrics_agent_port": -1, "metrics_export_port": -1, "dashboard_agent_listen_port": -1}
_PORTS = {**_NOT_IN_USE, "runtime_env_agent_port": 1}


@contextmanager
def lean_start(prestart: int) -> Iterator[bool]:
    """Make `ray.init()` start a lean head with `prestart` idle workers; yield False when this Ray cannot."""
    try:
        replacements = _replacements(prestart)
    except (ImportError, AttributeError):
        yield False
        return
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, new in replacements:
        setattr(owner, name, new)
    try:
        yield True
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


def _replacements(prestart: int) -> list[tuple[Any, str, Callable[..., Any]]]:
    import ray._private.node as node
    import ray._private.services as services
    import ray._private.utils as private
    from ray._raylet import persist_port  # type: ignore[attr-defined]

    start_ray_process = services.start_ray_process
    popen = services.ConsolePopen

    def start(command: list[str], *args: Any, **kwargs: Any) -> Any:
        if command[0].endswith("raylet"):
            command = lean_raylet(command, prestart)
            options = dict(part.split("=", 1) for part in command if "=" in part)
            for name, port in _PORTS.items():
                persist_port(options["--session_dir"], options["--node_id"], name, port)
        return start_ray_process(command, *args, **kwargs)

    def popen_apart(*args: Any, **kwargs: Any) -> Any:
        # A signal to the whole process group (a scheduler's SIGTERM, a terminal's Ctrl-C) is the driver's to answer:
        # with the raylet gone, Ray ends the driver's process on the spot, and no checkpoint is written.
        return popen(*args, **({"process_group": 0} | kwargs))

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (node.Node, "start_api_server", nothing),
        (node.Node, "start_monitor", nothing),
        (node.Node, "start_log_monitor", nothing),
        (services, "start_ray_process", start),
        (services, "ConsolePopen", popen_apart),
        # Ray turns 127.0.0.1 into the address of the network card, which a run on one machine has no use for.
        (services, "resolve_ip_for_localhost", lambda host: host),
        # Asked whether the dashboard could run, Ray imports all its libraries into this process: up to 1 s.
        (private, "get_dashboard_dependency_error", lambda: ImportError("no dashboard")),
    ]
    for owner, name, _ in replacements:
        getattr(owner, name)
    return replacements


def lean_raylet(command: list[str], prestart: int) -> list[str]:
    """Return the raylet's command with idle agents and as many prestarted workers as will be used."""
    changed = []
    for part in command:
        name, _, _ = part.partition("=")
        if f"{name}=" in _AGENTS:
            part = f"{name}={_IDLE_AGENT}"
        elif name == "--num_prestart_python_workers":
            part = f"{name}={prestart}"
        changed.append(part)
    return changed
