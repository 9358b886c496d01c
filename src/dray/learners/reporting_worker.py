"""What the workers of all learners share: they count rows, prove their threads, stop when told, report it all."""

from __future__ import annotations

import threading

from dray.errors import StorageError
from dray.events.sampler import UsageReader
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.status import Proof, Status, Stopped
from dray.threads.verify import CoresUsed, judge


class ReportingWorker:
    """`status`, `latest` and `stop` may be called from any thread.

    A learner's worker inherits from it, calls `on_rows` and `on_wait` while it reads (they raise `Stopped` when the
    worker is to stop), starts `cores` when it begins to compute and calls `prove` when there is enough to judge by.
    """

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        """In its group."""
        self.threads = threads
        self.rows = 0
        """Rows to hold."""
        self.to_read = 0
        """Rows to read, which may be several times those to hold."""
        self.fit = 1
        """Which fit of the session is under way."""
        self.cores: CoresUsed | None = None
        self._read = 0
        self._trouble = ""
        self._proof: Proof | None = None
        self._usage = UsageReader()
        self._usage_lock = threading.Lock()
        self._stop = threading.Event()

    def status(self, after_round: int) -> Status:
        fit = self.fit  # first: what follows is of this fit or of a later one, never of one before
        with self._usage_lock:
            usage = self._usage.read()
        share = min(1.0, self._read / self.to_read) if self.to_read else 0.0
        checkpoint = self.latest()
        return Status(
            usage,
            int(self.rows * share),
            self.rows,
            self.steps(after_round),
            self._proof,
            self._trouble,
            0 if checkpoint is None else checkpoint.round,
            fit,
            self.doing,
        )

    @property
    def doing(self) -> str:
        """What takes long and is worth telling; may be read from any thread."""
        return ""

    def steps(self, after_round: int) -> tuple[Step, ...]:  # noqa: ARG002
        """Return the complete steps after that one; none where the driver knows them."""
        return ()

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint at hand; none where the driver has it."""
        return None

    def interrupt(self, attempt: int) -> None:
        """Nothing waits for a peer, unless a learner's worker does."""

    def stop(self) -> None:
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def on_rows(self, rows: int) -> None:
        """So many rows were read."""
        self._read += rows
        self.check_stop()

    def on_wait(self, error: StorageError, _wait_s: float) -> None:
        """A store does not answer; it is asked again."""
        self._trouble = error.what
        self.check_stop()

    def check_stop(self) -> None:
        if self.stopping:
            raise Stopped

    def begin_fit(self, number: int) -> None:
        """What is proved and reported from now on belongs to that fit."""
        if number != self.fit:
            self.cores, self._proof = None, None
            self.fit = number

    def prove(self) -> Proof:
        """Judge the cores used so far, once a fit."""
        if self._proof is None:
            measured = (self.cores or CoresUsed().start()).stop()
            self._proof = Proof(self.threads, measured.cores, judge(self.threads, measured))
        return self._proof
