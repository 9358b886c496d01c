"""Look at a Ray address before joining it.

`ray.init()` on an address that is no Ray, or whose token differs, tries for 20 to 80 seconds, cannot be interrupted
and writes to the terminal. What is asked here answers at once or is given up.
"""

from __future__ import annotations

import os
from typing import Any

from dray.clusters.ray_private import (
    addresses_here,
    canonical,
    cluster_versions,
    gcs_client,
    node_ids_here,
    use_token_at_hand,
)


def probe(address: str) -> dict[str, Any]:
    """Return what is at the address ("auto" finds one): its versions, or the `problem` that keeps us from joining.

    Raises MissingPartError where this Ray cannot be asked.
    """
    found = False
    if address == "auto" and not (address := os.environ.get("RAY_ADDRESS", "auto")):
        address = "auto"
    if address == "auto":
        candidates, found = addresses_here(), True
    else:
        candidates = [canonical(address)]
    if not candidates:
        return {"problem": "none"}
    outcomes = [_try(candidate, found) for candidate in candidates]
    return next((outcome for outcome in outcomes if "problem" not in outcome), outcomes[0])


def _try(address: str, found: bool) -> dict[str, Any]:
    connect = gcs_client()
    # As Ray does: a token at hand is used for a cluster found on this machine, and not sent to an address.
    token = use_token_at_hand() if found else False
    try:
        client = connect(address=address)
    except Exception as error:
        text = str(error)
        problem = "token" if "authenticat" in text.lower() else "silent"
        return {"problem": problem, "address": address, "detail": text[:300]}
    outcome: dict[str, Any] = {"address": address, "token": token, **cluster_versions(client)}
    # A driver needs the shared memory and the socket of a node on its own machine.
    here = node_ids_here()
    if not any(node_id.hex() in here for node_id in client.get_all_node_info(timeout=5)):
        return {**outcome, "problem": "elsewhere"}
    return outcome
