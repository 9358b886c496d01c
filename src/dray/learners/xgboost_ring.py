"""The ring of XGBoost members: how they get in and out, and what they say to each other.

A ring is cheap and disposable: when a member is lost, the others leave it and form a new one. Facts of XGBoost 3.2:

- The communicator belongs to a thread, so several members can live in one process.
- A peer that is killed raises an XGBoostError at the others' next allreduce. A peer that is frozen or cut off does
  not, and waiting for a peer to call has no timeout at all: `RingDoor.free` ends such waits.
- A member exits its process when somebody tells it to at its error port. Only XGBoost's own tracker does; ours never.
- All members must start alike: one that begins from nothing while others go on from a model gets out of step, and
  that is not reported as a failure of the ring.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost
from xgboost import collective
from xgboost.core import XGBoostError

from dray.learners.xgboost_sockets import NativeSocket, reset, set_reset_on_close
from dray.learners.xgboost_tracker import Relay
from dray.learners.xgboost_tracker import RingAddress as RingAddress
from dray.learners.xgboost_tracker import Tracker as Tracker

WAIT_TIMEOUT_S = 6 * 3600
"""How long a member waits for the others. A round takes as long as it takes; frozen peers are the driver's to judge."""
ATTEMPTS = 1
"""XGBoost sleeps between attempts to connect, and nothing can wake it. Everyone listens before the address is told."""


class RingBrokenError(XGBoostError):  # type: ignore[misc]
    """The ring was given up before this member joined."""


class RingDoor:
    """This process's way into one ring, for all its members, and the way to get them out again.

    One object for each attempt to form a ring. Join in the members' threads; free from any thread, at any time.
    """

    def __init__(self, address: RingAddress | None) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._freed = threading.Event()
        self._empty = threading.Event()
        self._forming: set[Relay] = set()  # of members that are joining
        self._formed: set[Relay] = set()

    @property
    def freed(self) -> bool:
        return self._freed.is_set()

    @contextmanager
    def join(self, member: int) -> Iterator[None]:
        """Be a member of the ring, in this thread. `member` orders the ranks.

        A body that raises breaks the ring for the other members of this process too.
        """
        if self._address is None:
            yield
            return
        with closing(Relay(self._address)) as relay:
            try:
                self._meet(relay, member)
                try:
                    yield
                    # Others may still be reading what this member said last.
                    set_reset_on_close(lambda seen: _is_connection(seen, relay), on=False)
                finally:
                    with suppress(XGBoostError), xgboost.config_context(verbosity=0):  # what broke has been raised
                        collective.finalize()
            except BaseException:
                self.free()
                raise
            finally:
                self._leave(relay)

    def free(self) -> None:
        """Get this process's members out of the ring: what they wait for in it fails. Returns at once.

        A newer ring, and whatever else the process has open, is left alone.
        """
        with self._lock:
            if self._freed.is_set():
                return
            self._freed.set()
            if not self._forming and not self._formed:
                return
        threading.Thread(target=self._sweep, name="dray-ring-free", daemon=True).start()

    def _meet(self, relay: Relay, member: int) -> None:
        with self._lock:
            if self._freed.is_set():
                raise RingBrokenError("The ring was given up before this member joined.")
            self._forming.add(relay)
            self._empty.clear()
        # Ranks follow the text of the task id: pad it, or member 10 comes before member 2.
        own: RingAddress = {"dmlc_task_id": f"{member:06d}", "dmlc_retry": ATTEMPTS, "dmlc_timeout": WAIT_TIMEOUT_S}
        with xgboost.config_context(verbosity=0):  # what fails is raised; no need to warn as well
            collective.CommunicatorContext(**relay.address, **own).__enter__()
        with self._lock:
            self._forming.discard(relay)
            self._formed.add(relay)
            formed = set() if self._forming else set(self._formed)
        # Not before all of this process's members have met: a reset would hit the connections over which another one
        # is still being introduced, which XGBoost closes while its peer reads.
        set_reset_on_close(lambda seen: any(_is_connection(seen, mine) for mine in formed), on=True)

    def _leave(self, relay: Relay) -> None:
        # A ring that failed to form leaves a thread that listens for orders to exit.
        reset(lambda seen: seen.listening and seen.local[1] == relay.error_port)
        with self._lock:
            self._forming.discard(relay)
            self._formed.discard(relay)
            if not self._forming and not self._formed:
                self._empty.set()

    def _sweep(self) -> None:
        """Reset the ring's sockets until nobody is inside: a member that is joining opens ever new ones."""
        pause_s = 0.002
        while True:
            with self._lock:
                forming, formed = set(self._forming), set(self._formed)
            if not forming and not formed:
                return
            _end(forming, formed)
            if self._empty.wait(pause_s):
                return
            pause_s = min(2 * pause_s, 0.1)


def _end(forming: set[Relay], formed: set[Relay]) -> None:
    for relay in forming:
        relay.cut()
    listening = {relay.port for relay in forming}
    reset(
        lambda seen: (
            seen.local[1] in listening if seen.listening else any(_is_connection(seen, own) for own in forming | formed)
        )
    )


def _is_connection(seen: NativeSocket, relay: Relay) -> bool:
    """Is it a connection between members? XGBoost names the ports they listen on, the tracker the hosts."""
    if seen.listening or seen.remote is None:
        return False
    return seen.local[1] == relay.port or seen.remote in relay.members


def is_ring_failure(error: BaseException) -> bool:
    """Tell a failure of the ring (a peer, the tracker, a socket, a timeout) from a fault of parameters or data.

    XGBoost raises one type for all, and its text begins with the source file that raised.
    """
    if isinstance(error, RingBrokenError):
        return True
    return isinstance(error, XGBoostError) and _COLLECTIVE.search(str(error)) is not None


_COLLECTIVE = re.compile(r"\[\d\d:\d\d:\d\d\] \S*/collective/\S+:\d+:")


def rank() -> int:
    return int(collective.get_rank())


def agree(flag: bool) -> bool:
    """Return, to every member, whether any member says yes."""
    if int(collective.get_world_size()) == 1:
        return flag
    return bool(collective.allreduce(np.array([flag], dtype=np.int32), collective.Op.MAX)[0])


def gather(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return everyone's arrays, one after another by rank; the first axis may differ in length.

    Each member ORs its bits into a zeroed vector: exact for every value, NaN and -0.0 included.
    """
    world = int(collective.get_world_size())
    if world == 1:
        return part
    lengths = np.zeros(world, dtype=np.int64)
    lengths[rank()] = len(part)
    lengths = collective.allreduce(lengths, collective.Op.SUM)
    whole = np.zeros((int(lengths.sum()), *part.shape[1:]), dtype=part.dtype)
    start = int(lengths[: rank()].sum())
    whole[start : start + len(part)] = part
    bits = whole.view(np.uint32 if part.dtype.itemsize == 4 else np.uint64).reshape(-1)
    merged = collective.allreduce(bits, collective.Op.BITWISE_OR)
    return np.asarray(merged).view(part.dtype).reshape(whole.shape)


def tell_all(value: Any) -> Any:
    """Return what the first member says, to every member."""
    return value if int(collective.get_world_size()) == 1 else collective.broadcast(value, 0)
