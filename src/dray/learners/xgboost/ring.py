"""The ring of XGBoost members: how they get in and out, and what they say to each other.

A ring is cheap and disposable: when a member is lost, the others leave it and form a new one. Facts of XGBoost 3.2:

- The communicator belongs to a thread, so several members can live in one process.
- A peer that is killed raises an XGBoostError at the others' next allreduce. A peer that is frozen or cut off does
  not: `RingDoor.free` ends such waits, and a host that is cut off is noticed by the mesh itself (`rings/mesh.py`).
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

from dray.learners.xgboost.bootstrap import Bootstrap
from dray.rings.mesh import Mesh, RingBrokenError
from dray.rings.rendezvous import RingAddress

WAIT_TIMEOUT_S = 6 * 3600
"""How long a member waits for the others. A round takes as long as it takes; frozen peers are the driver's to judge."""
ATTEMPTS = 1
"""XGBoost sleeps between attempts to connect, and nothing can wake it. It connects within the process only."""


TRIES = 5
"""Of XGBoost's own start within the process."""


class RingDoor:
    """This process's way into one ring, for all its members, and the way to get them out again.

    One object for each attempt to form a ring. Join in the members' threads; free from any thread, at any time.
    """

    def __init__(self, address: RingAddress | None) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._freed = False
        self._inside: set[Mesh] = set()
        self._unreachable: set[tuple[int, int]] = set()

    @property
    def unreachable(self) -> frozenset[tuple[int, int]]:
        """Which members of this process could not reach which others; -1 is the driver."""
        return frozenset(self._unreachable)

    @contextmanager
    def join(self, member: int) -> Iterator[None]:
        """Be a member of the ring, in this thread. `member` orders the ranks.

        A body that raises breaks the ring for the other members of this process too.
        """
        if self._address is None:
            yield
            return
        mesh = self._enter(member)
        try:
            mesh.join()
            with _connected(mesh):
                yield
        except BaseException:
            self.free()
            raise
        finally:
            self._leave(mesh)

    def free(self) -> None:
        """Get this process's members out of the ring: what they wait for in it fails. Returns at once.

        A newer ring, and whatever else the process has open, is left alone.
        """
        with self._lock:
            self._freed = True
            for mesh in self._inside:
                mesh.cut()

    def _enter(self, member: int) -> Mesh:
        assert self._address is not None
        mesh = Mesh(self._address, member)
        with self._lock:
            if self._freed:
                raise RingBrokenError("The ring was given up before this member joined.")
            self._inside.add(mesh)
        return mesh

    def _leave(self, mesh: Mesh) -> None:
        mesh.leave()
        with self._lock:
            self._inside.discard(mesh)
            self._unreachable |= {(mesh.member, other) for other in mesh.unreachable}


@contextmanager
def _connected(mesh: Mesh) -> Iterator[None]:
    """Have XGBoost speak over the mesh's connections, in this thread."""
    if len(mesh.members) == 1:  # no peers
        yield
        return
    with closing(_speaking_over(mesh)):
        try:
            yield
            mesh.set_orderly()
        finally:
            _finalize()


def _speaking_over(mesh: Mesh) -> Bootstrap:
    """Have XGBoost start in this thread, with the mesh's connections.

    Nothing of it leaves the process, so that it can be tried again: on a busy machine a port that was just given back
    may be another's, and calls reach those they are not for.
    """
    own = {"dmlc_task_id": f"{mesh.member}", "dmlc_retry": ATTEMPTS, "dmlc_timeout": WAIT_TIMEOUT_S}
    for tries_left in reversed(range(TRIES)):
        bootstrap = Bootstrap(mesh)
        try:
            with xgboost.config_context(verbosity=0):  # what fails is raised; no need to warn as well
                collective.CommunicatorContext(**bootstrap.address, **own).__enter__()
            try:
                bootstrap.hand_over()
            except OSError as error:
                _finalize()
                raise RingBrokenError(f"XGBoost did not get its connections: {error}") from error
            return bootstrap
        except (XGBoostError, RingBrokenError):
            bootstrap.close()
            if not tries_left or mesh.is_cut:
                raise
    raise AssertionError("the last try returns or raises")


def _finalize() -> None:
    # What broke has been raised; and XGBoost's own way to end the thread at its error port is closed.
    with suppress(XGBoostError), xgboost.config_context(verbosity=0):
        collective.finalize()


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


def tell_all(text: bytes) -> bytes:
    """Return what the first member says, to every member. Bytes: XGBoost's own broadcast unpickles what it hears."""
    if int(collective.get_world_size()) == 1:
        return text
    said = np.frombuffer(text if rank() == 0 else b"", dtype=np.uint8)
    padded = np.zeros((len(said) + 3) // 4 * 4, dtype=np.uint8)
    padded[: len(said)] = said
    (size,) = gather(np.array([len(said)] if rank() == 0 else [], dtype=np.int64))
    return gather(padded.view(np.uint32)).tobytes()[: int(size)]
