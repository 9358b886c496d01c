"""What an agent tells of a machine that is as it should be."""

from __future__ import annotations

from typing import Any

GB = 1 << 30


def facts(host: str, **changes: Any) -> dict[str, Any]:
    number = sum(host.encode())
    return {
        "boot": host,
        "directory": "/home/u/.dray/lab",
        "unfit": "",
        "writable": True,
        "path_too_long": 0,
        "user": "u",
        "address": f"10.0.0.{number}",
        "cpus": 8,
        "memory": {"total": 16 * GB, "available": 12 * GB},
        "shm": 8 * GB,
        "disk": 100 * GB,
        "state": {},
        "nodes": {},
        "busy_ports": [],
        "used_by": [],
        "missing": [],
        "versions": {"ray": "2.60.0", "python": "3.11.7", "dray": "0.1.0", "dashboard": True},
        **changes,
    }


def node(name: str, **changes: Any) -> dict[str, Any]:
    """What Ray tells of a node."""
    return {
        "id": name.encode().hex(),
        "name": name,
        "alive": True,
        "address": "10.0.0.1",
        "port": 6406,
        "resources": {"CPU": 2.0, "memory": 5.0, "object_store_memory": 3.0},
        "reason": "",
        "started": 1,
        **changes,
    }
