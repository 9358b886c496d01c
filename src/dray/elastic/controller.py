"""Keeps a training going while workers come and go, whatever is trained.

    situation: which worker holds what, which are expected or leaving
    Membership + Loader ------------------> policy.decide (pure) ---> Go, Wait, Stop, Restart
         ^                                                               |
         |    load, keep, interrupt                                      v
         +------------------------------------------------------- Controller: settle, then an attempt

The controller repeats: have the policy say which worker shall hold what; have the loader bring what is missing; have
the learner's coordinator run an attempt on the workers that hold all rows. An attempt that breaks costs its unfinished
step; survivors keep their rows. One that should change (a worker joins or leaves) goes on until the others have
loaded, and pauses at the end of a step.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from dray.elastic.checkpoint_writer import CheckpointWriter
from dray.elastic.group import Lost, Raised
from dray.elastic.keyed_units import KeyedUnits
from dray.elastic.loader import Loader
from dray.elastic.membership import Membership, refuse_mistakes
from dray.elastic.policy import RESUME, Go, Restart, Situation, Stop, Wait, decide, is_whole
from dray.elastic.row_shards import RowShards
from dray.elastic.running_attempt import RunningAttempt
from dray.elastic.stopped import RunStopped
from dray.errors import WorkerError
from dray.events.kinds import AttemptStarted, Recovered, Waiting, Warned, WorkerJoined
from dray.events.telemetry import Telemetry
from dray.learners.attempt import (
    AttemptBroken,
    CheckpointGone,
    Coordinator,
    Finished,
    Loads,
    Returned,
)
from dray.learners.layouts import RowSharding, Sharding
from dray.learners.learner import InputGone, PeerCut
from dray.learners.shard import Holdings
from dray.learners.status import Proof

CUT_LIMIT_S = 30.0
"""Workers that cannot reach each other for so long, over several tries of the same step, end the run."""

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")


class Controller:
    """The workers of one session and what they hold. One thread."""

    def __init__(self, membership: Membership, telemetry: Telemetry, sharding: Sharding) -> None:
        self.membership = membership
        self._telemetry = telemetry
        self._loader: Loader
        if isinstance(sharding, RowSharding):
            self._loader = RowShards(sharding, membership, telemetry)
        else:
            self._loader = KeyedUnits(sharding, membership, telemetry, partial(self.give_up, loading=True))
        self._target: Holdings | None = None
        self._all_rows: int | None = None
        self._waiting_told = ""
        self._below_since: float | None = None
        self._lost_now = 0
        self._attempt: RunningAttempt | None = None
        self._attempts = 0
        self._reached = 0
        """The last complete step of this fit."""
        self._broken_at = (-1, 0)
        """The furthest step after which attempts broke, and how often since the training last got further."""
        self._disturbed_at: float | None = None
        self._cut_at: tuple[int, float] | None = None
        """The step in which workers did not reach each other, and since when."""
        self._rows_told = 0
        self.checkpoints: CheckpointWriter | None = None
        self.recovery_s = 0.0
        self.proofs: dict[int, tuple[str, Proof]] = {}
        """How many cores each worker used in this fit, with its host."""

    @property
    def rows_reloaded(self) -> int:
        return self._loader.rows_reloaded

    def load(self) -> Loads:
        """Have all rows loaded; return what they reported."""
        self.membership.phase = "load"
        holdings = self._settle()
        self._all_rows = self._rows(holdings)
        self._recovered()
        return self._loader.loads(holdings)

    def begin_fit(self, number: int, checkpoints: CheckpointWriter, rounds: int) -> None:
        """All that follows belongs to another fit."""
        self.checkpoints = checkpoints
        self._reached, self._broken_at, self._cut_at = checkpoints.latest.round, (-1, 0), None
        self.proofs = {}
        self.membership.phase = "train"
        self.membership.watch.begin_fit(number, rounds, len(checkpoints.latest.rounds))

    def run(self, coordinator: Coordinator[E]) -> E:
        """Run attempts until the coordinator has finished, whatever happens that the policy can live with."""
        attempt: RunningAttempt | None = None
        while True:
            try:
                attempt = self._begin(self._settle())
                ended = coordinator.run(attempt)
            except AttemptBroken as broken:
                self._break(broken)
            except BaseException as error:
                if attempt is not None:  # one of this coordinator: before its first there is nothing to rescue
                    with suppress(Exception):  # what ends the training is told, not what came of saving its last steps
                        coordinator.rescue(attempt, error)
                raise
            else:
                attempt.over = True
                if isinstance(ended, Finished):
                    return ended.end

    # Which worker holds what

    def _settle(self) -> Holdings:
        """Return when all rows are where the policy wants them."""
        while True:
            if self.membership.changed or self._target is None:
                self._target = self._decide()
            if self._target is not None:
                self._loader.bring(self._target, self._why, beside=False)
                if self._loader.has(self._target):
                    self._loader.keep(self._target)
                    self._dismiss_leaving(self._target)
                    return self._target
            self.events()

    def _decide(self) -> Holdings | None:
        """Return which worker shall hold what, None if that is to be asked again when something has happened."""
        membership = self.membership
        membership.replace_lost()
        membership.changed = False
        usable = membership.ready.keys() - membership.leaving
        if len(usable) >= membership.limits.min_workers:
            self._below_since = None
        elif self._below_since is None:
            self._below_since = time.monotonic()
        match decide(self._situation()):
            case Go(assignment):
                self._waiting_told = ""
                return {worker: shards for worker, shards in assignment.items() if shards}
            case Wait(why):
                if why != self._waiting_told:
                    self._waiting_told = why
                    self._telemetry.emit(Waiting(why, membership.limits.wait_s))
            case Restart() if self._attempt is not None and not self._attempt.over:
                membership.changed = True  # decided again, once the attempt has paused: it must not lose its workers
                return {}
            case Restart():
                for worker in list(membership.ready):
                    self._loader.lose(worker)
                self._lost_now = 0
                membership.restart()
            case Stop(what, fix):
                membership.changed, self._target = True, None
                raise RunStopped(f"{what} {membership.last_loss}".rstrip(), fix=fix)
        return None

    def _situation(self) -> Situation:
        membership = self.membership
        furthest, times = self._broken_at
        return Situation(
            level=membership.level,
            limits=membership.limits,
            shards=self._loader.shards,
            rows=self._loader.weights,
            loaded={worker: self._loader.held(worker) for worker in membership.ready},
            leaving=membership.leaving & membership.ready.keys(),
            expected=membership.expected,
            lost_now=self._lost_now,
            failures=membership.failures,
            failures_in_round=times if self._reached <= furthest else 0,
            waited_s=0.0 if self._below_since is None else time.monotonic() - self._below_since,
        )

    def _why(self, worker: int) -> str:
        if self._attempt is not None and not self._attempt.over:
            return "handing over" if self.membership.leaving else "joining"
        return "takes over lost rows" if self._loader.held(worker) else "replacement"

    def _dismiss_leaving(self, holdings: Holdings) -> None:
        for worker in (self.membership.leaving & self.membership.ready.keys()) - holdings.keys():
            self.membership.dismiss(worker, "others hold its rows now")
            self._loader.lose(worker)

    def _rows(self, holdings: Holdings) -> int:
        return sum(self._loader.rows(worker, shards) for worker, shards in holdings.items())

    # What happens

    def events(self) -> list[Returned | Raised]:
        """Take in what has happened; return what calls of others came to: values, and inputs that were lost."""
        others: list[Returned | Raised] = []
        # Losses first: what a result is followed by must not be asked of a worker that is gone.
        for event in sorted(self.membership.step(), key=lambda event: not isinstance(event, Lost)):
            if isinstance(event, Returned | Raised) and self._loader.take_in(event):
                continue
            if isinstance(event, Raised):
                if isinstance(event.error, InputGone) and not self._loader.owns(event.call):
                    others.append(event)
                    continue
                refuse_mistakes(event.error)
                if event.worker not in self.membership.ready:  # it was ended for what it raised before this
                    continue
                event = self.membership.fail(event.worker, event.error)
            if isinstance(event, Lost):
                self.lose(event.worker)
            elif isinstance(event, Returned):
                others.append(event)
        return others

    def lose(self, worker: int) -> None:
        """A worker is gone."""
        self._lost_now += 1
        attempt = self._attempt
        if attempt is None or attempt.over or attempt.broken or worker in attempt.holdings:
            self.disturb()
        self._loader.lose(worker)
        if attempt is not None and worker in attempt.holdings:
            attempt.lost.add(worker)

    def disturb(self) -> None:
        if self._disturbed_at is None:
            self._disturbed_at = time.monotonic()

    def _recovered(self) -> None:
        self._lost_now = 0
        if self._disturbed_at is not None:
            seconds = time.monotonic() - self._disturbed_at
            self._disturbed_at = None
            self.recovery_s += seconds
            self._telemetry.emit(
                Recovered(
                    round=self._reached,
                    seconds=round(seconds, 3),
                    rows_reloaded=self.rows_reloaded - self._rows_told,
                    workers=len(self.membership.ready),
                )
            )
        self._rows_told = self.rows_reloaded

    # Attempts

    def _begin(self, holdings: Holdings) -> RunningAttempt:
        rows = self._rows(holdings)
        if not is_whole(self._loader.shards, holdings) or rows != self._all_rows:
            raise WorkerError(f"An attempt on {rows:,} rows of {self._all_rows:,}: dray never trains on less.", fix="")
        self._attempts += 1
        before = self._attempt.holdings if self._attempt is not None else {}
        self._attempt = RunningAttempt(self, self._telemetry, self._attempts, holdings, before)
        return self._attempt

    def started(self, attempt: RunningAttempt, members: int | None) -> None:
        """Training goes on."""
        if members is not None:
            self._telemetry.emit(AttemptStarted(members, len(attempt.holdings), self._reached))
        if attempt.before and self._disturbed_at is None:
            for worker in sorted(attempt.holdings.keys() - attempt.before.keys()):
                rows = self._loader.rows(worker, attempt.holdings[worker])
                self._telemetry.emit(WorkerJoined(worker, attempt.host(worker), rows, self._reached + 1))
        self._recovered()

    def prepare_change(self, attempt: RunningAttempt) -> None:
        """Have other workers load beside the attempt; when they are ready, have it pause."""
        if attempt.pausing or attempt.broken or attempt.lost:
            return
        if self.membership.changed:
            try:
                self._target = self._decide()
            except RunStopped:
                self.membership.changed = True  # raised again, once the attempt has paused
                self._target = {}
        if self._target is None or self._target == attempt.holdings:
            return
        self._loader.bring(self._target, self._why, beside=True)
        attempt.pausing = self._loader.has(self._target)

    def reach(self, step: int) -> None:
        self._reached = step

    def _break(self, broken: AttemptBroken) -> None:
        if self._attempt is not None:
            if not self._attempt.broken:
                self._attempt.interrupt()
            self._attempt.over = True
        if not isinstance(broken, _Counted | CheckpointGone):
            self._count_break()

    def _count_break(self) -> None:
        furthest, times = self._broken_at
        self._broken_at = (furthest, times + 1) if self._reached <= furthest else (self._reached, 1)
        self.membership.changed = True

    def give_up(self, gone: Exception, *, loading: bool = False) -> AttemptBroken:
        """Count an input that no loss explains: what needs it is begun again, but not for ever."""
        what, fix = (gone.what, gone.fix) if isinstance(gone, InputGone) else (str(gone), "")
        self._count_break()
        self.membership.last_loss = what
        if isinstance(gone, PeerCut):
            self._stop_if_cut_for_long(gone)
        goes_on = self._attempt is not None and not self._attempt.over and not self._attempt.broken
        again = "Rows for another worker are brought again" if loading and goes_on else "Begun again from the last step"
        self._telemetry.emit(Warned(f"{again}: {what}", fix))
        return _Counted()

    def _stop_if_cut_for_long(self, gone: PeerCut) -> None:
        now = time.monotonic()
        if self._cut_at is None or self._cut_at[0] != self._reached:
            self._cut_at = self._reached, now
        elif now - self._cut_at[1] >= CUT_LIMIT_S:
            raise RunStopped(gone.what, fix=f"{gone.fix} {RESUME}")


class _Counted(AttemptBroken):
    """It was counted when its cause was seen."""
