"""Runs on a machine of the fleet for as long as its driver asks: a request a line on its stdin, in JSON.

A request is {"do": NAME, "id": number, ...}; an answer, with that id, {"tell": words} on the way, then {"answer": ...}
or {"error": words}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from dray.clusters.fleet.host.logs import cleanup, logs
from dray.clusters.fleet.host.look import look
from dray.clusters.fleet.host.network import Listeners, reach
from dray.clusters.fleet.host.nodes import claim, install, start, stop
from dray.clusters.fleet.host.place import Request, TroubleError
from dray.clusters.fleet.host.ray_process import RayProcess
from dray.clusters.fleet.host.sending import MARK


def main() -> None:
    ray = RayProcess()
    does: dict[str, Callable[[Request], Any]] = {
        "look": look,
        "listen": Listeners().listen,
        "reach": reach,
        "install": lambda request: install(request, lambda words: _send(request["id"], {"tell": words})),
        "claim": lambda request: claim(request, ray),
        "start": lambda request: start(request, ray),
        "stop": lambda request: stop(request, ray),
        "ask_ray": lambda request: ray.ask({**request, "do": request["ask"]}, request["limit_s"]),
        "logs": logs,
        "cleanup": cleanup,
    }
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            answer: dict[str, Any] = {"answer": does[request["do"]](request)}
        except TroubleError as error:
            answer = {"error": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _send(request["id"], answer)
    ray.close()


def _send(number: int, message: dict[str, Any]) -> None:
    sys.stdout.write(f"{MARK}{json.dumps({**message, 'id': number})}\n")
    sys.stdout.flush()
