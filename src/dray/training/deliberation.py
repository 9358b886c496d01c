"""Asks the policy who shall hold what, whatever is trained: tells why it waits, and ends a run that cannot go on."""

from __future__ import annotations

import time
from collections.abc import Callable

from dray.elastic.membership import Membership
from dray.elastic.policy import Go, Restart, Situation, Stop, Wait, decide
from dray.events.telemetry import Telemetry
from dray.learners.shard import Holdings
from dray.training.stopped import RunStopped


class Deliberation:
    """`situation` describes how things are; `let_go_of_all` forgets what everybody held, before all start again."""

    def __init__(
        self,
        membership: Membership,
        telemetry: Telemetry,
        situation: Callable[[], Situation],
        let_go_of_all: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._telemetry = telemetry
        self._situation = situation
        self._let_go_of_all = let_go_of_all
        self._told = ""
        self._below_since: float | None = None

    @property
    def waited_s(self) -> float:
        """How long there have been fewer workers than the minimum."""
        return 0.0 if self._below_since is None else time.monotonic() - self._below_since

    def decide(self) -> Holdings | None:
        """Return who shall hold what, None if that is to be asked again when something has happened."""
        membership = self._membership
        membership.replace_lost()
        membership.changed = False
        usable = membership.ready.keys() - membership.leaving
        if len(usable) >= membership.limits.min_workers:
            self._below_since = None
        elif self._below_since is None:
            self._below_since = time.monotonic()
        match decide(self._situation()):
            case Go(assignment):
                self._told = ""
                return {worker: parts for worker, parts in assignment.items() if parts}
            case Wait(why):
                if why != self._told:
                    self._told = why
                    self._telemetry.emit("waiting", why=why, limit_s=membership.limits.wait_s)
            case Restart():
                self._let_go_of_all()
                membership.restart()
            case Stop(what, fix):
                raise RunStopped(f"{what} {membership.last_loss}".rstrip(), fix=fix)
        return None
