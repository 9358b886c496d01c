"""One member of a ring that trains on rows of its own: `ring_member.py KIND MEMBER ROWS ROUNDS`, the address on stdin.

KIND is native (XGBoost's tracker and connections) or dray. Prints how long forming and the rounds took, as JSON.
"""

import json
import sys
import time
from contextlib import AbstractContextManager

import numpy as np
import xgboost
from xgboost import collective

from dray.learners.xgboost.ring import RingDoor
from dray.rings.rendezvous import RingAddress

FEATURES = 28


def ring(kind: str, member: int, address: dict[str, object]) -> AbstractContextManager[object]:
    if kind == "native":
        return collective.CommunicatorContext(**address, dmlc_task_id=str(member))
    secret = bytes.fromhex(str(address["secret"]))
    return RingDoor(RingAddress(str(address["host"]), int(str(address["port"])), secret)).join(member)


def main(kind: str, member: int, rows: int, rounds: int) -> None:
    random = np.random.default_rng(member)
    features = random.normal(size=(rows, FEATURES)).astype(np.float32)
    label = (features[:, 0] * features[:, 1] + features[:, 2] > 0).astype(np.float32)
    cuts = np.random.default_rng(9).normal(size=(10_000, FEATURES)).astype(np.float32)
    reference = xgboost.QuantileDMatrix(cuts, nthread=1)
    matrix = xgboost.QuantileDMatrix(features, label, ref=reference, nthread=1)
    params = {"objective": "binary:logistic", "base_score": 0.5, "nthread": 1, "max_depth": 6}
    print("ready", flush=True)
    address = json.loads(sys.stdin.readline())
    begun = time.perf_counter()
    with ring(kind, member, address):
        formed = time.perf_counter()
        booster = xgboost.Booster(params, cache=[matrix])
        booster.update(matrix, 0)  # the first round makes the gradient's buffers and meets the others
        started, cpu = time.perf_counter(), time.process_time()
        for number in range(1, rounds):
            booster.update(matrix, number)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(json.dumps({"form_s": formed - begun, "train_s": seconds, "cpu_s": cpu}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
