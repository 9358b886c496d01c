"""Brings the rows to the workers, forms rings, and keeps a training going when workers come and go.

`policy.py` decides, `membership.py` knows the workers; here it is carried out: load what is missing, bring all to
the same round, form a ring, follow it. A ring that breaks costs its unfinished round; survivors keep their rows.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from typing import Any

from dray.data.prepare import Preparation
from dray.data.shards import rows_of
from dray.elastic.group import Lost, Raised, Returned
from dray.elastic.membership import Membership, refuse_mistakes
from dray.elastic.policy import Situation, is_whole
from dray.errors import WorkerError
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import Checkpoint
from dray.learners.learner import Do
from dray.learners.shard import Holdings, Shard
from dray.learners.xgboost.boosting import Task
from dray.learners.xgboost.worker import LoadReport, Worker
from dray.rings.ports import ports_for
from dray.rings.rendezvous import Rendezvous
from dray.training.dealt import Dealt
from dray.training.deliberation import Deliberation
from dray.training.keeper import Keeper
from dray.training.links import Links
from dray.training.ring_attempt import RingAttempt
from dray.training.stopped import RunStopped

LONGEST_GOODBYE_S = 30.0
"""How long Ctrl-C waits for the end of a round at most."""
RETURN_S = 30.0
"""How long a worker may take to return from a ring that was freed; two rounds, if they take longer."""


class RingMaster:
    """One run's rows and rounds. Made for one `load` and one `train`."""

    def __init__(
        self, membership: Membership, telemetry: Telemetry, dealt: Dealt, preparation: Preparation, keeper: Keeper
    ) -> None:
        self._membership = membership
        self._telemetry = telemetry
        self._dealt = dealt
        self._preparation = membership.group.share(preparation)
        self._keeper = keeper
        self._loaded: dict[int, dict[Shard, LoadReport]] = {}
        self._loading: dict[int, tuple[int, Shard]] = {}
        self._rising: dict[int, tuple[int, tuple[Shard, ...]]] = {}
        self._stand: dict[int, set[Shard]] = {}
        """Parts that hold the model of `_standing_ref`."""
        self._target: Holdings | None = None
        self._deliberation = Deliberation(membership, telemetry, self._situation, self._let_go_of_all)
        self._lost_now = 0
        self._broken_at = (-1, 0)
        """The round that rings broke in last, and how often."""
        self._rings = 0
        self._links = Links(membership, telemetry)
        self._all_rows: int | None = None
        self._disturbed_at: float | None = None
        self._task: Task | None = None
        self._task_ref: Any = None
        self._standing_ref: Any = None
        self._shared: Checkpoint | None = None
        """What `_standing_ref` stands for: the keeper may have newer models in the middle of a ring."""
        self._ring: RingAttempt | None = None
        self.recovery_s = 0.0
        self.rows_reloaded = 0
        self._rows_told = 0
        self.proofs: dict[int, Any] = {}

    def load(self) -> list[LoadReport]:
        """Have all rows loaded; return one report a part."""
        self._membership.phase = "load"
        reports = self._reports(self._settle())
        self._all_rows = sum(report.rows for report in reports)
        self._recovered()
        return reports

    def train(self, task: Task) -> Checkpoint:
        """Train till it is over, whatever happens on the way that the policy can live with."""
        self._task = task
        self._membership.phase = "train"
        self._task_ref = self._membership.group.share(task)
        self._share_latest()
        while not task.is_over_at(self._keeper.latest):
            self._follow(self._form(self._settle()))
        return self._keeper.latest

    def say_goodbye(self) -> None:
        """Get the model of the last complete round from whoever is quick enough, before everybody is ended."""
        task, ring = self._task, self._ring
        if task is None or ring is None:
            return
        group = self._membership.group
        workers = [worker for worker in ring.holdings if worker in self._membership.ready]
        for worker in workers:
            group.tell(worker, Do(Worker.stop))
        last = self._keeper.latest.rounds[-1].seconds if self._keeper.latest.rounds else 1.0
        deadline = time.monotonic() + min(LONGEST_GOODBYE_S, max(5.0, 3 * last))
        asked = {group.call(worker, Do(Worker.standing), self._task_ref).number: worker for worker in workers}
        while asked and time.monotonic() < deadline:
            for event in self._membership.group.poll(0.5):
                if isinstance(event, Returned) and event.call in asked:
                    self._keeper.offer(event.value)
                    return
                if isinstance(event, Raised | Lost):  # another may still answer, if it is let out of the ring
                    asked = {call: worker for call, worker in asked.items() if worker != event.worker}
                    for worker in asked.values():
                        self._membership.group.tell(worker, Do(Worker.free), ring.number)

    # Who holds what

    def _settle(self) -> Holdings:
        """Return when all rows are where the policy wants them, and everybody stands where the training does."""
        while True:
            if self._membership.changed or self._target is None:
                self._target = self._deliberation.decide()
            if self._target is not None:
                self._send_for(self._target)
                if self._is_settled(self._target):
                    return self._target
            self._step()

    def _let_go_of_all(self) -> None:
        for worker in list(self._loaded):
            self._drop(worker)
        self._lost_now = 0

    def _situation(self) -> Situation:
        membership = self._membership
        held: dict[int, list[Shard]] = {worker: list(self._loaded.get(worker, ())) for worker in membership.ready}
        for worker, part in self._loading.values():  # as good as loaded: nobody else need load it
            if worker in held:
                held[worker].append(part)
        broken_in, times = self._broken_at
        return Situation(
            level=membership.level,
            limits=membership.limits,
            parts=self._dealt.parts,
            rows=self._dealt.rows,
            loaded={worker: tuple(parts) for worker, parts in held.items()},
            leaving=membership.leaving & membership.ready.keys(),
            expected=membership.expected,
            lost_now=self._lost_now,
            failures=membership.failures,
            failures_in_round=times if broken_in == self._keeper.latest.round else 0,
            waited_s=self._deliberation.waited_s,
        )

    def _send_for(self, target: Holdings) -> None:
        """Send for what is missing: rows to be loaded, then the model for them."""
        group = self._membership.group
        on_the_way = set(self._loading.values())
        for worker, parts in target.items():
            loaded = self._loaded.setdefault(worker, {})
            for part in parts:
                if part not in loaded and (worker, part) not in on_the_way:
                    train, other_eval = self._dealt.shards(part)
                    if self._all_rows is not None:
                        self._telemetry.emit("reload", worker=worker, rows=rows_of(train), why=self._why(worker))
                    op = Do(Worker.load, lane="beside" if self._is_at_work() else "main")
                    call = group.call(worker, op, self._preparation, part, train, other_eval)
                    self._loading[call.number] = worker, part
            rising = {part for riser, own in self._rising.values() if riser == worker for part in own}
            lacking = tuple(part for part in parts if part in loaded and part not in self._stand.get(worker, ()))
            lacking = tuple(part for part in lacking if part not in rising)
            # While a ring is at work, where it will stand is not known.
            if self._task is not None and lacking and not self._is_at_work():
                call = group.call(worker, Do(Worker.stand), self._task_ref, self._standing_ref, lacking)
                self._rising[call.number] = worker, lacking

    def _is_settled(self, target: Holdings) -> bool:
        if not self._is_loaded(target):
            return False
        return self._task is None or all(set(parts) <= self._stand.get(w, set()) for w, parts in target.items())

    def _is_loaded(self, target: Holdings) -> bool:
        return all(part in self._loaded.get(worker, {}) for worker, parts in target.items() for part in parts)

    def _is_at_work(self) -> bool:
        return self._ring is not None and bool(self._ring.calls)

    def _why(self, worker: int) -> str:
        if self._ring is not None and not self._ring.broken:
            return "handing over" if self._membership.leaving else "joining"
        return "takes over lost rows" if any(self._loaded.get(worker, {})) else "replacement"

    def _reports(self, holdings: Holdings) -> list[LoadReport]:
        return [self._loaded[worker][part] for worker, parts in holdings.items() for part in parts]

    # What happens

    def _step(self) -> list[Returned]:
        """Take in what has happened; return the results that somebody else asked for."""
        others: list[Returned] = []
        for event in self._membership.step():
            if isinstance(event, Raised):
                refuse_mistakes(event.error)
                event = self._membership.fail(event.worker, event.error)
            if isinstance(event, Lost):
                self._lost_now += 1
                if self._ring is None or self._ring.broken or event.worker in self._ring.holdings:
                    self._disturbed()
                self._drop(event.worker)
            elif isinstance(event, Returned) and not self._took(event):
                others.append(event)
        return others

    def _took(self, done: Returned) -> bool:
        if done.call in self._loading:
            worker, part = self._loading.pop(done.call)
            self._loaded.setdefault(worker, {})[part] = done.value
            self._telemetry.emit(
                "worker_loaded", worker=worker, rows=done.value.rows, seconds=round(done.value.seconds, 3)
            )
            if self._all_rows is not None:
                self.rows_reloaded += sum(self._dealt.rows[unit] for unit in part.units)
        elif done.call in self._rising:
            worker, parts = self._rising.pop(done.call)
            self._stand.setdefault(worker, set()).update(parts)
        elif self._ring is not None and done.call in self._ring.calls:
            worker = self._ring.calls.pop(done.call)
            self._ring.ended[worker] = done.value
            self.proofs[worker] = done.value.proof
            self._ring.broken |= done.value.how == "broken"
        else:
            return False
        return True

    def _drop(self, worker: int) -> None:
        """A worker is gone, and all that it held or was about to."""
        self._loaded.pop(worker, None)
        self._stand.pop(worker, None)
        self._loading = {call: of for call, of in self._loading.items() if of[0] != worker}
        self._rising = {call: of for call, of in self._rising.items() if of[0] != worker}
        if self._ring is None:
            return
        self._ring.ended.pop(worker, None)  # who comes in its place knows nothing of it
        if worker in self._ring.calls.values():
            self._ring.calls = {call: other for call, other in self._ring.calls.items() if other != worker}
            self._ring.broken = True

    def _disturbed(self) -> None:
        if self._disturbed_at is None:
            self._disturbed_at = time.monotonic()

    def _recovered(self) -> None:
        self._lost_now = 0
        if self._disturbed_at is not None:
            seconds = time.monotonic() - self._disturbed_at
            self._disturbed_at = None
            self.recovery_s += seconds
            self._telemetry.emit(
                "recovered",
                round=self._keeper.latest.round,
                seconds=round(seconds, 3),
                rows_reloaded=self.rows_reloaded - self._rows_told,
                workers=len(self._membership.ready),
            )
        self._rows_told = self.rows_reloaded

    # Rings

    def _share_latest(self) -> None:
        """Everybody shall stand at the newest model from now on."""
        latest = self._keeper.latest
        self._standing_ref, self._shared = self._membership.group.share(latest), latest
        self._rising = {}  # who is on the way to an older model has not arrived

    def _form(self, holdings: Holdings) -> RingAttempt:
        membership, standing = self._membership, self._keeper.latest
        rows = sum(report.rows for report in self._reports(holdings))
        if not is_whole(self._dealt.parts, holdings) or rows != self._all_rows:
            raise WorkerError(f"A ring of {rows:,} rows of {self._all_rows:,}: dray never trains on less.", fix="")
        before = set(self._ring.holdings) if self._ring is not None else set()
        self._forget_others(holdings)
        seats: dict[int, list[tuple[int, Shard]]] = {worker: [] for worker in sorted(holdings)}
        for member, (worker, part) in enumerate((w, part) for w in sorted(holdings) for part in holdings[w]):
            seats[worker].append((member, part))
        members = sum(map(len, seats.values()))
        host = membership.group.ring_host
        rendezvous = None if membership.alone else Rendezvous(members, host, ports_for(host, os.environ))
        address = None if rendezvous is None else rendezvous.address
        self._rings += 1
        number = self._rings
        self._telemetry.emit("ring", members=members, workers=len(seats), round=standing.round)
        for worker in sorted(set(holdings) - before) if before and self._disturbed_at is None else ():
            held = sum(report.rows for report in self._loaded[worker].values())
            self._telemetry.emit(
                "joined", worker=worker, host=membership.ready[worker].host, rows=held, round=standing.round + 1
            )
        calls = {
            membership.group.call(worker, Do(Worker.train), self._task_ref, own, address, number).number: worker
            for worker, own in seats.items()
        }
        self._recovered()
        self._ring = RingAttempt(number, holdings, seats, rendezvous, calls)
        for worker in membership.leaving - holdings.keys():
            membership.dismiss(worker, "others hold its rows now")
            self._drop(worker)
        return self._ring

    def _forget_others(self, holdings: Holdings) -> None:
        """Let workers drop what they need no longer."""
        for worker, parts in holdings.items():
            others = tuple(part for part in self._loaded[worker] if part not in parts)
            if others:
                self._membership.group.call(worker, Do(Worker.forget), others)
                for part in others:
                    del self._loaded[worker][part]
                    self._stand.get(worker, set()).discard(part)

    def _follow(self, ring: RingAttempt) -> None:
        """Follow a ring to its end, and take over what it came to."""
        limit_at: float | None = None
        with ring.rendezvous or nullcontext():
            while ring.calls:
                self._step()
                if not ring.broken:
                    self._prepare_change(ring)
                elif limit_at is None:
                    limit_at = time.monotonic() + self._longest_return_s()
                    self._free(ring)
                elif time.monotonic() >= limit_at:
                    self._end_stuck(ring)
        self._conclude(ring)

    def _free(self, ring: RingAttempt) -> None:
        """Free those who wait in the ring for somebody who will not answer."""
        self._disturbed()
        if ring.rendezvous is not None:
            ring.rendezvous.abandon()
        for worker in set(ring.calls.values()):
            self._membership.group.tell(worker, Do(Worker.free), ring.number)

    def _longest_return_s(self) -> float:
        """A freed worker returns when it next needs its peers: it may have to compute until then."""
        rounds = self._keeper.latest.rounds
        return max(RETURN_S, 2 * rounds[-1].seconds) if rounds else RETURN_S

    def _end_stuck(self, ring: RingAttempt) -> None:
        """End the workers that have not returned from a freed ring."""
        why = f"it did not return within {self._longest_return_s():.0f} s after its ring was given up"
        error = WorkerError(
            f"A worker was ended: {why}.", fix="Look at its log: something in its process does not end."
        )
        for worker in sorted(set(ring.calls.values())):
            self._membership.fail(worker, error, cause=why)
            self._lost_now += 1
            self._drop(worker)

    def _prepare_change(self, ring: RingAttempt) -> None:
        """Have others load beside the training; when they are ready, pause it at a round's end."""
        if ring.pausing:
            return
        if self._membership.changed:
            try:
                self._target = self._deliberation.decide()
            except RunStopped:
                self._membership.changed = True  # raised again, once the ring has paused
                self._target = {}
        if self._target is None or self._target == ring.holdings:
            return
        self._send_for(self._target)
        if self._is_loaded(self._target):
            ring.pausing = True
            for worker in ring.calls.values():
                self._membership.group.tell(worker, Do(Worker.pause), ring.number)

    def _conclude(self, ring: RingAttempt) -> None:
        """Get the model of the last complete round; those who have it and are whole need not be told."""
        for worker, ended in sorted(ring.ended.items(), key=lambda item: -item[1].round):
            known = self._keeper.latest
            # The same round is news when a ring broke between its tree and its metrics, and this one made up for it.
            news = ended.round > known.round or (ended.round == known.round and not known.is_complete)
            if news and (standing := self._ask_standing(worker)) is not None:
                self._keeper.offer(standing)
        self._membership.watch.tell_rounds(self._keeper.latest.rounds)
        latest = self._keeper.latest.round
        if self._keeper.latest is not self._shared or ring.broken:
            self._share_latest()
            self._stand = {
                worker: set(ended.whole) if ended.round == latest else set()
                for worker, ended in ring.ended.items()
                if worker in self._membership.ready
            }
        if ring.broken:
            broken_in, times = self._broken_at
            self._broken_at = (latest, times + 1 if broken_in == latest else 1)
            self._membership.changed = True
        for worker in self._links.judge(ring.broken_links()):
            self._lost_now += 1
            self._drop(worker)

    def _ask_standing(self, worker: int) -> Checkpoint | None:
        if worker not in self._membership.ready:
            return None
        asked = self._membership.group.call(worker, Do(Worker.standing), self._task_ref).number
        while worker in self._membership.ready:
            for done in self._step():
                if done.call == asked:
                    standing: Checkpoint = done.value
                    return standing
        return None
