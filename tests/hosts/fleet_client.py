"""Call one function of the fleet, as somebody on a laptop would: a request in JSON on stdin, the outcome on stdout."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from dataclasses import asdict
from typing import Any

from dray.clusters import known
from dray.clusters.fleet.file import make_fleet, make_host
from dray.clusters.fleet.provider import Fleet
from dray.clusters.fleet.up import add, up
from dray.clusters.provider import Status
from dray.errors import DrayError


def main() -> None:
    request = json.load(sys.stdin)
    told: list[tuple[str, str, str]] = []

    def tell(host: str, state: str, words: str) -> None:
        told.append((host, state, words))

    answer: dict[str, Any] = {}
    try:
        begun = time.monotonic()
        result = do(request, tell)
        answer["result"] = asdict(result) if isinstance(result, Status) else result
        answer["seconds"] = time.monotonic() - begun
    except DrayError as error:
        answer["error"] = {"type": type(error).__name__, "what": error.what, "fix": error.fix}
    print(json.dumps({**answer, "told": told}))


def do(request: dict[str, Any], tell: Any) -> Any:
    name = request.get("name", "lab")
    match request["do"]:
        case "up":
            return up(make_fleet(request["fleet"]), tell, wait_s=request.get("wait_s", 60))
        case "add":
            return add(known.read(name), make_host(request["host"]), tell, wait_s=60)
        case "remove":
            return Fleet().remove(known.read(name), request["host"], tell, drain_s=request.get("drain_s", 10))
        case "status":
            return Fleet().status(known.read(name))
        case "logs":
            return list(
                Fleet().logs(known.read(name), request["node"], errors=request["errors"], lines=request["lines"])
            )
        case "cleanup":
            return Fleet().cleanup(known.read(name), request["limit_bytes"])
        case "down":
            return Fleet().down(known.read(name), tell)
        case "names":
            return known.names()
        case "http":
            with Fleet().endpoint(known.read(name)) as address:
                return ask(f"{address}{request['path']}", known.token(name) if request["token"] else None)
    raise AssertionError(request)


def ask(url: str, token: str | None) -> list[Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return [answer.status, answer.read().decode()[:2000]]
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()[:2000]]


if __name__ == "__main__":
    main()
