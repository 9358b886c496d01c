"""One member of a ring, run as a process of its own: python ring_peer.py PORT MEMBER WHAT, the secret on stdin."""

from __future__ import annotations

import sys

import numpy as np
import xgboost

from dray.learners.xgboost import ring
from dray.rings.rendezvous import RingAddress

PARAMS = {"tree_method": "hist", "max_depth": 3, "nthread": 1, "objective": "reg:squarederror", "base_score": 0.0}
ROUNDS = 3


def rows(part: int) -> tuple[np.ndarray, np.ndarray]:
    """Few distinct values, all of them in every part: each part finds the same bins without asking the others."""
    random = np.random.default_rng(part)
    features = random.integers(0, 8, size=(400, 4)).astype(np.float32)
    return features, features @ np.array([1, 2, 4, 8]) + (features[:, 0] > 3) * features[:, 1]


def matrix(*parts: int) -> xgboost.QuantileDMatrix:
    pieces = [rows(part) for part in parts]
    features, labels = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return xgboost.QuantileDMatrix(features, labels, nthread=1)


def train(data: xgboost.QuantileDMatrix, start: bytes | None = None) -> xgboost.Booster:
    """Go on from the first member's model, as all of them must: training from nothing begins with other messages."""
    return xgboost.train(PARAMS, data, ROUNDS, xgb_model=bytearray(ring.tell_all(bytes(start or b""))) or None)


def main(port: int, member: int, what: str) -> None:
    data = matrix(member)
    address = RingAddress("127.0.0.1", port, bytes.fromhex(sys.stdin.readline()))
    with ring.RingDoor(address).join(member):
        print("joined", flush=True)
        if what == "train":
            train(data)
        if what == "train for ever":
            xgboost.train(PARAMS, data, 1_000_000)
        while what == "agree" and not ring.agree(False):
            pass
    print("left", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
