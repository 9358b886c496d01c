"""How Ray sees its cluster: a driver of its own on the head, asked now and then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TELL = """
import json, os, sys, ray
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Ray talks there
from ray._private.state import available_resources_per_node, state
from ray.util.placement_group import placement_group_table
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
for _ in sys.stdin:
    free = {node: resources.get("CPU", 0.0) for node, resources in available_resources_per_node().items()}
    groups = [group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    view = {"free_cpus": {node: free.get(node, 0.0) for node in alive}, "groups": groups}
    print(json.dumps(view | {"draining": list(state.get_draining_nodes())}), file=told, flush=True)
"""


@dataclass(frozen=True)
class View:
    """What Ray thinks of its cluster."""

    free_cpus: dict[str, float]
    """Of the nodes that it takes for alive, by id."""
    groups: list[str]
    """States of the placement groups that were not removed."""
    draining: list[str]


class Viewer:
    """A process that looks; `close` ends it."""

    def __init__(self, address: str, *, env: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _TELL, address],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def look(self) -> View:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return View(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
