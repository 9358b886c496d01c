"""Prepare a machine, start nodes on it, and end them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dray.clusters.fleet.host.look import versions
from dray.clusters.fleet.host.own_files import remove_all, remove_nodes, remove_tree, why_not
from dray.clusters.fleet.host.place import (
    Request,
    State,
    TroubleError,
    directory_of,
    make_private,
    python_of,
    read_state,
    run,
    write_private,
    write_state,
)
from dray.clusters.fleet.host.processes import NODE_VARIABLE, boot_id, end, mine, of_nodes
from dray.clusters.fleet.host.ray_process import RayProcess, asked_variables

_HOOK = "dray.clusters.fleet.host.launcher.without_client_server"  # in the image, which has dray
_NOTED = ("cpus", "memory", "object_store", "name", "temp")


def install(request: Request, tell: Callable[[str], None]) -> dict[str, Any]:
    """Make a virtual environment and install into it. A new one that cannot be completed is taken away again."""
    venv = Path(request["venv"]).expanduser()
    is_new = not os.path.lexists(venv)
    requirements = [str(Path(one).expanduser()) if one.startswith("~") else one for one in request["requirements"]]
    try:
        if is_new:
            tell("makes a virtual environment")
            _step([sys.executable, "-m", "venv", str(venv)])
        tell(f"installs {', '.join(requirements)}")
        _step([python_of(request), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    except TroubleError:
        if is_new:
            remove_tree(venv)
        raise
    return versions(request)


def _step(command: list[str]) -> None:
    done = subprocess.run(  # noqa: S603  (a list, no shell)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        words = " ".join(done.stdout.strip().splitlines()[-3:])[:500]
        raise TroubleError(f"{' '.join(command[1:4])} failed: {words}")


def claim(request: Request, ray: RayProcess) -> None:
    """Make the directory this cluster's, with its token; what an earlier cluster of the name left is removed.

    The directory must be new, empty, or have the mark of a cluster of this name.
    """
    directory = directory_of(request)
    state = read_state(directory)
    if problem := why_not(directory, request["name"], state.get("name")):
        raise TroubleError(problem)
    made = state.get("made") is True if state else not directory.exists()
    if state and (state["cluster"] != request["cluster"] or state["boot"] != boot_id()):
        end(lambda: of_nodes(state, list(state["nodes"])))
        remove_nodes(directory, list(state["nodes"]))
        state = {}
    state = state or {"id": os.urandom(16).hex(), "nodes": {}, "made": made}
    state.update({key: request[key] for key in ("cluster", "name", "owner")}, boot=boot_id())
    write_state(directory, state)
    write_private(directory / "token", request["token"])
    if not request.get("docker"):
        ray.open(request)


def start(request: Request, ray: RayProcess) -> dict[str, str]:
    """Start nodes, all at once; return those that failed, by index, with their last words."""
    directory = directory_of(request)
    state = read_state(directory)
    nodes = {str(node["index"]): node for node in request["nodes"]}
    end(lambda: of_nodes(state, list(nodes)))  # what is left of a node that has died
    logs = make_private(directory / "logs")
    for index, node in nodes.items():
        node["temp"] = str(make_private(directory / "ray" / index))
        node["log"] = str(logs / f"start-{index}.log")
        node["variables"] = {NODE_VARIABLE: f"{state['id']}/{index}"}
        state["nodes"][index] = {key: node[key] for key in _NOTED}
    write_state(directory, state)  # so that what a start that is cut short leaves is found all the same
    started = _start_containers(request, state, nodes) if request.get("docker") else _start(request, ray, state, nodes)
    for index, found in started.items():
        if "error" in found:
            del state["nodes"][index]
        else:
            state["nodes"][index].update(found)
    write_state(directory, state)
    return {index: found["error"] for index, found in started.items() if "error" in found}


def _start(request: Request, ray: RayProcess, state: State, nodes: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = ray.ask({**request, "do": "start", "nodes": nodes}, request["limit_s"] + 10)
    there = mine()
    for index, found in answer.items():
        if "error" in found:
            _end_half_started({**state, "nodes": {index: {**state["nodes"][index], **found}}}, index)
        else:
            members = [(pid, process) for pid, process in there.items() if process.session == found["session"]]
            found["processes"] = [[pid, process.start, process.name] for pid, process in sorted(members)]
    return answer


def _end_half_started(state: State, index: str) -> None:
    end(lambda: of_nodes(state, [index]))


def _start_containers(request: Request, state: State, nodes: dict[str, Any]) -> dict[str, Any]:
    docker = request["docker"]
    directory = directory_of(request)

    def start_one(node: dict[str, Any]) -> dict[str, Any]:
        name = f"dray-{request['name']}-{state['id'][:8]}-{node['index']}"
        run([docker["command"], "rm", "--force", name])
        # Values go in as files: a command line is for everyone to see. The token is a file inside too: the variables of
        # a container can be read by all users that may use Docker.
        variables = {**asked_variables(request, directory), **node["variables"], "RAY_START_HOOK": _HOOK}
        env_file = directory / f"env-{node['index']}"
        write_private(env_file, "".join(f"{key}={value}\n" for key, value in variables.items()))
        places = [directory, *(Path(path).expanduser() for path in request.get("files", []))]
        command = [
            *(docker["command"], "run", "--detach", "--init", "--name", name, "--network", docker["network"]),
            *("--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(directory)),
            *("--shm-size", str(docker["shm_size"] or node["object_store"] * 11 // 10)),
            *("--memory", str(node["memory"] + node["object_store"])),
            *(("--cpus", str(node["cpus"])) if node["cpus"] else ()),
            *(part for place in places for part in ("--volume", f"{place}:{place}")),
            *("--env-file", str(env_file), "--entrypoint", "ray", docker["image"]),
            *("start", "--block", *node["arguments"]),
            f"--temp-dir={node['temp']}",
        ]
        try:
            done = subprocess.run(  # noqa: S603  (a list, no shell)
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        finally:
            env_file.unlink()
        if done.returncode != 0:
            run([docker["command"], "rm", "--force", name])
            return {"error": " ".join(done.stderr.strip().splitlines()[-3:])}
        return {"container": name}

    with ThreadPoolExecutor(len(nodes) or 1) as pool:
        return dict(zip(nodes, pool.map(start_one, nodes.values())))  # noqa: B905  (Python 3.9)


def stop(request: Request, ray: RayProcess) -> str:
    """End some nodes, or all of them and whatever else of the cluster is on this machine; return what was kept."""
    ray.close()
    directory = directory_of(request)
    if directory.is_symlink():
        raise TroubleError(f"{directory} has become a link to {os.path.realpath(directory)}: nothing was removed")
    state = read_state(directory)
    if not state or state["cluster"] != request["cluster"]:
        return ""
    indices = [str(index) for index in request["nodes"]] if "nodes" in request else list(state["nodes"])
    for index in indices:
        container = state["nodes"].get(index, {}).get("container")
        if container:
            run([request["docker"]["command"], "rm", "--force", container])
    left = end(lambda: of_nodes(state, indices))
    if left:
        raise TroubleError(f"processes that do not end: {', '.join(map(str, left))}")
    for index in indices:
        state["nodes"].pop(index, None)
    if "nodes" not in request:
        return remove_all(directory, with_directory=state.get("made") is True)
    remove_nodes(directory, indices)
    write_state(directory, state)
    return ""
