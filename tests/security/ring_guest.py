"""A ring on several hosts, a process each: `ring_guest.py driver HOST MEMBERS` or `ring_guest.py member NUMBER`.

The driver prints the ring's address with its secret as JSON, and stays until its input ends; a member reads that from
its input, joins, and prints what all members agreed on.
"""

from __future__ import annotations

import json
import sys

from dray.learners.xgboost import ring
from dray.rings.rendezvous import Rendezvous, RingAddress

PORTS = (20000, 20099)


def main(what: str, *arguments: str) -> None:
    if what == "driver":
        with Rendezvous(int(arguments[1]), arguments[0], PORTS) as meeting:
            address = meeting.address
            print(json.dumps([address.host, address.port, address.secret.hex()]), flush=True)
            sys.stdin.read()
        return
    host, port, secret = json.loads(sys.stdin.readline())
    with ring.RingDoor(RingAddress(host, port, bytes.fromhex(secret), PORTS)).join(int(arguments[0])):
        print(json.dumps([ring.rank(), ring.tell_all(b"from %d" % ring.rank()).decode()]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
