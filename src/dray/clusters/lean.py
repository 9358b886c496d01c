"""Start of an embedded Ray head with the processes that a run needs, and no others.

`ray.init()` also starts a dashboard server (even when told not to include the dashboard), an autoscaler's monitor,
a log forwarder, a metrics agent and an agent for runtime environments: five Python processes, and it waits for three
of them. On 2 cores that is about 5 of 8 CPU seconds until two workers live. A run on one machine uses none of them.
Ray has no option for it, so its starter is changed while it starts. Where Ray's insides are not as expected, nothing
is changed and Ray starts in its own way, only slower. docs/decisions/0003-threads-and-start.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dray.clusters.ray_private import MissingPartError, replaced, starter_replacements

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
        replacements = starter_replacements(lambda command: lean_raylet(command, prestart), _PORTS)
    except MissingPartError:
        yield False
        return
    with replaced(replacements):
        yield True


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
