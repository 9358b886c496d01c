"""Look at a Ray address before joining it.

`ray.init()` on an address that is no Ray, or whose token differs, tries for 20 to 80 seconds, cannot be interrupted
and writes to the terminal. What is asked here answers at once or is given up.
"""

from __future__ import annotations

import os
from typing import Any


def probe(address: str) -> dict[str, Any]:
    """Return what is at the address ("auto" finds one): its versions, or the `problem` that keeps us from joining."""
    found = False
    if address == "auto" and not (address := os.environ.get("RAY_ADDRESS", "auto")):
        address = "auto"
    if address == "auto":
        candidates, found = _running_here(), True
    else:
        candidates = [_canonical(address)]
    if not candidates:
        return {"problem": "none"}
    outcomes = [_try(candidate, found) for candidate in candidates]
    return next((outcome for outcome in outcomes if "problem" not in outcome), outcomes[0])


def _running_here() -> list[str]:
    """Return the addresses of the clusters on this machine, the one that `ray start` noted down first."""
    from ray._private.services import find_bootstrap_address, find_gcs_addresses

    running = sorted(find_gcs_addresses())
    noted = find_bootstrap_address(None)
    return [address for address in (noted, *running) if address and address in running]


def _canonical(address: str) -> str:
    from ray._private.services import canonicalize_bootstrap_address

    return str(canonicalize_bootstrap_address(address))


def _try(address: str, found: bool) -> dict[str, Any]:
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    # As Ray does: a token at hand is used for a cluster found on this machine, and not sent to an address.
    token = maybe_enable_token_auth_if_token_available(warn_if_disabled=False) if found else False
    try:
        client = GcsClient(address=address)
    except Exception as error:
        text = str(error)
        problem = "token" if "authenticat" in text.lower() else "silent"
        return {"problem": problem, "address": address, "detail": text[:300]}
    outcome: dict[str, Any] = {"address": address, "token": token, **_versions(client)}
    return outcome if _node_here(client) else {**outcome, "problem": "elsewhere"}


def _versions(client: Any) -> dict[str, str]:
    from ray._common.usage.usage_lib import get_cluster_metadata

    metadata = get_cluster_metadata(client) or {}
    return {"ray": str(metadata.get("ray_version", "")), "python": str(metadata.get("python_version", ""))}


def _node_here(client: Any) -> bool:
    """Return whether a node of that cluster runs on this machine: a driver needs its shared memory and its socket."""
    from ray._private.services import find_node_ids

    here = set(find_node_ids())
    return any(node_id.hex() in here for node_id in client.get_all_node_info(timeout=5))
