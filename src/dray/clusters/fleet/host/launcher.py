"""Runs in the environment on a machine of the fleet: starts Ray nodes there, and asks Ray about its cluster.

Ray takes a second to be imported, so this is done once for all nodes of a
machine, and before it is needed: each node is started by a copy of this process, as `ray start` would.

These are parts of Ray that are not public. Where one is gone, the public way is taken, which is slower: `ray start`
itself, and a driver that asks for the nodes. Draining has none, and says so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from dray.clusters.fleet.host.sending import MARK

NO_CLIENT_SERVER = "dray.clusters.fleet.host.launcher.without_client_server"
"""For RAY_START_HOOK, which Ray calls before it starts anything."""
_LAST_LINES = 4


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Start nodes at the same time; return the session of each, or the error."""
    load_scripts()  # once, before the copies are made
    children = {index: launch(node) for index, node in request["nodes"].items()}
    began = {index: start_time(pid) for index, pid in children.items()}
    outcome: dict[str, Any] = {}
    deadline = time.monotonic() + request["limit_s"]
    while len(outcome) < len(children):
        for index, pid in children.items():
            if index in outcome:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            found: dict[str, Any] = {"session": pid, "began": began[index]}
            if done and status == 0:
                outcome[index] = found
            elif done:
                outcome[index] = {**found, "error": last_lines(request["nodes"][index]["log"])}
            elif time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                words = f"it has not started within {request['limit_s']:g} s"
                outcome[index] = {**found, "error": words}
        time.sleep(0.02)
    return outcome


def load_scripts() -> Any:
    """Return the command `ray` as a function; None where it is no longer where it was."""
    try:
        from ray.scripts.scripts import cli
    except ImportError:
        return None
    return cli


def launch(node: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()  # by which every process of the node is found again
        log = os.open(node["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        os.environ.update(node["variables"], RAY_START_HOOK=NO_CLIENT_SERVER)
        os.chdir(node["temp"])
        arguments = ["start", *node["arguments"], f"--temp-dir={node['temp']}"]
        cli = load_scripts()
        if cli is None:
            os.execv(Path(sys.executable).with_name("ray"), ["ray", *arguments])  # noqa: S606  (a list, no shell)
        know_ports(node["agent_ports"])
        cli.main(arguments, standalone_mode=False)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def know_ports(ports: dict[str, int]) -> None:
    """Keep a raylet from waiting till its agents, two Python programs, have told it their ports: we gave them.

    It joins at once, and the agents come up meanwhile: half of the time that a node takes. Where Ray's insides are not
    as expected it waits, as it does without this.
    """
    try:
        import ray._private.services as services
        from ray._raylet import persist_port  # type: ignore[attr-defined]

        start_ray_process = services.start_ray_process
    except (ImportError, AttributeError):
        return

    def start(command: list[str], *args: Any, **kwargs: Any) -> Any:
        if command[0].endswith("raylet"):
            options = dict(part.split("=", 1) for part in command if "=" in part)
            with suppress(KeyError, TypeError):
                for name, port in ports.items():
                    persist_port(options["--session_dir"], options["--node_id"], name, port)
        return start_ray_process(command, *args, **kwargs)

    services.start_ray_process = start


def without_client_server(ray_params: Any, head: bool) -> None:  # noqa: ARG001  (as Ray calls it)
    """Keep the head from opening Ray Client's port to everyone: dray uses the job server. Ray has no option for it."""
    ray_params.ray_client_server_port = None
    os.environ.pop("RAY_START_HOOK", None)  # not for what this node starts


def start_time(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text[text.rindex(")") + 2 :].split()[19])


def last_lines(path: str) -> str:
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and re.match(r"[\w.]+(Error|Exception|Exit)\b", lines[-1]):
        return lines[-1]
    return " | ".join(lines[-_LAST_LINES:]) or "ray start failed without a word"


def view(request: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes and the jobs that Ray knows."""
    try:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
        from ray.core.generated.gcs_pb2 import GcsNodeInfo
    except ImportError:
        return public_view(request["address"])
    client = GcsClient(address=request["address"])
    nodes = [
        {
            "id": key.hex(),
            "name": node.node_name,
            "alive": node.state == GcsNodeInfo.GcsNodeState.ALIVE,
            "address": node.node_manager_address,
            "port": node.node_manager_port,
            "resources": dict(node.resources_total),
            "reason": node.death_info.reason_message,
            "started": node.start_time_ms,
        }
        for key, node in client.get_all_node_info(timeout=5).items()
    ]
    jobs = [
        {"id": job.job_id.hex(), "entrypoint": job.entrypoint, "submission": job.job_info.entrypoint}
        for job in client.get_all_job_info(timeout=5).values()
        if not job.is_dead and not job.config.ray_namespace.startswith("_ray_internal")
    ]
    return {"nodes": nodes, "jobs": jobs}


def public_view(address: str) -> dict[str, Any]:
    """Return the same as a driver sees it, which is not told when a node started."""
    import ray
    from ray.util.state import list_jobs

    ray.init(address=address, namespace="_ray_internal_dray", log_to_driver=False, logging_level="ERROR")
    try:
        nodes = [
            {
                "id": node["NodeID"],
                "name": node["NodeName"],
                "alive": node["Alive"],
                "address": node["NodeManagerAddress"],
                "port": node["NodeManagerPort"],
                "resources": node["Resources"],
                "reason": node.get("DeathReasonMessage") or "",
                "started": 0,
            }
            for node in ray.nodes()
        ]
        jobs = [
            {"id": job.job_id or "", "entrypoint": job.entrypoint, "submission": job.entrypoint}
            for job in list_jobs(filters=[("status", "=", "RUNNING"), ("type", "=", "SUBMISSION")])
        ]
    finally:
        ray.shutdown()
    return {"nodes": nodes, "jobs": jobs}


def drain(request: dict[str, Any]) -> dict[str, Any]:
    """Have Ray put nothing more on the nodes; what runs there is told, and has till the deadline."""
    import ray

    try:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
        from ray.core.generated.autoscaler_pb2 import DrainNodeReason

        client = GcsClient(address=request["address"])
        ask = client.drain_node
    except (ImportError, AttributeError) as error:
        words = f"Ray {ray.__version__} there cannot be asked to drain a node as dray does it ({error})"
        raise RuntimeError(f"{words}: install the version that dray was tested with") from error
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline_ms = int((time.time() + request["deadline_s"]) * 1000)
    refused = {}
    for node in request["ids"]:
        accepted, words = ask(node, reason, "dray cluster remove", deadline_ms)
        if not accepted:
            refused[node] = words
    return {"refused": refused}


DOES = {"start": start, "view": view, "drain": drain}


def main() -> None:
    # Ray writes to the terminal; only answers may go to the reader.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load_scripts()
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
            answer: dict[str, Any] = {"answer": DOES[request["do"]](request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(MARK + json.dumps(answer), file=told, flush=True)
