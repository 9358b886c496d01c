"""What a soak's run is put through, drawn from its seed: the same seed, the same plan.

Pure: carrying it out is `soak_run.py`'s job.
"""

import random
from dataclasses import dataclass
from typing import Literal

SETTINGS = ("binary", "multiclass", "regression", "ranking")
JOINED_EVERY = 5
"""One run in so many is on a running cluster, where room for a second worker comes, and perhaps goes."""
MOST_VICTIMS = 5
"""In all of a run: more in one round and dray would stop, as it should (--max-failures-in-round)."""
HEARTBEAT_S = 2
"""For runs with a frozen worker, so that they are over soon."""

Kind = Literal["kill", "freeze", "nap"]
When = Literal["start", "load", "round", "recovery"]


@dataclass(frozen=True)
class Disturbance:
    kind: Kind
    """kill: SIGKILL; freeze: SIGSTOP for good; nap: SIGSTOP, and SIGCONT later, perhaps after it was replaced."""
    victims: int
    when: When
    """After the start of the process, the begin of loading, a share of the rounds, or a worker's loss."""
    share: float
    delay_s: float
    nap_s: float

    def __str__(self) -> str:
        many = f" {self.victims}" if self.victims > 1 else ""
        place = f"{self.share:.0%} of the rounds" if self.when == "round" else self.when
        nap = f" of {self.nap_s:.1f} s" if self.kind == "nap" else ""
        return f"{self.kind}{many}{nap} at {place} + {self.delay_s:.1f} s"


@dataclass(frozen=True)
class NodeVisit:
    """A node with one CPU, beside the head with one."""

    comes_s: float
    """When it is started, after the start of dray; before it if negative. It takes some seconds."""
    goes: Literal["stays", "killed", "terminated"]
    share: float
    """Of the rounds, after which it goes."""

    def __str__(self) -> str:
        leave = "stays" if self.goes == "stays" else f"{self.goes} at {self.share:.0%} of the rounds"
        return f"a node comes at {self.comes_s:+.1f} s, {leave}"


@dataclass(frozen=True)
class FreedCpu:
    """A second CPU on the head, which another job holds at first."""

    share: float
    """Of the rounds, after which that job is over."""

    def __str__(self) -> str:
        return f"a CPU is freed at {self.share:.0%} of the rounds"


@dataclass(frozen=True)
class Plan:
    seed: int
    setting: str
    workers: str
    level: str
    disturbances: tuple[Disturbance, ...]
    room: NodeVisit | FreedCpu | None
    """What changes on a running cluster; None for a cluster of the run's own."""

    @property
    def heartbeat_s(self) -> int | None:
        return HEARTBEAT_S if any(d.kind != "kill" for d in self.disturbances) else None

    def __str__(self) -> str:
        what = [*map(str, self.disturbances), *([str(self.room)] if self.room else [])]
        return f"{self.setting}, {self.workers} workers, {self.level}: {'; '.join(what) or 'nothing'}"


def draw(seed: int) -> Plan:
    """Return the plan of a seed. Seeds in a row have every setting, and joined clusters, equally often."""
    rng = random.Random(seed)
    setting = SETTINGS[seed % len(SETTINGS)]
    if seed % JOINED_EVERY == 0:
        room = _node_visit(rng) if seed % (2 * JOINED_EVERY) == 0 else FreedCpu(round(rng.uniform(0.0, 0.5), 2))
        return Plan(seed, setting, "1-2", "elastic", _disturbances(rng, rng.choice((0, 0, 1, 2)), 1), room)
    workers = rng.choice(("2", "2", "3", "3", "1-2", "1-3", "2-3"))
    level = rng.choice(("elastic",) * 6 + ("shrink",) * 2 + ("restart",) * 2)
    return Plan(seed, setting, workers, level, _disturbances(rng, rng.choice((1, 1, 2, 3, 4)), int(workers[-1])), None)


def _node_visit(rng: random.Random) -> NodeVisit:
    goes = rng.choice(("stays", "killed", "killed", "terminated"))
    return NodeVisit(round(rng.uniform(-3.5, 2.0), 1), goes, round(rng.uniform(0.1, 0.9), 2))


def _disturbances(rng: random.Random, count: int, most_at_once: int) -> tuple[Disturbance, ...]:
    drawn: list[Disturbance] = []
    while len(drawn) < count:
        kind: Kind = rng.choice(("kill", "kill", "kill", "freeze", "nap"))
        # Recovery needs somebody to be lost before. One frozen before it has said a word is only given up after 60 s.
        places: tuple[When, ...] = ("load", "round", "round", "round")
        places += ("start",) if kind != "freeze" else ()
        places += ("recovery", "recovery") if drawn else ()
        when = rng.choice(places)
        longest_delay_s = {"start": 4.0, "load": 1.0, "round": 0.5, "recovery": 2.5}[when]
        left = MOST_VICTIMS - sum(d.victims for d in drawn) - (count - len(drawn) - 1)
        victims = min(left, rng.choice((1, 1, 1, rng.randint(1, most_at_once))))
        share, delay_s, nap_s = rng.uniform(0.0, 1.0), rng.uniform(0, longest_delay_s), rng.uniform(0.3, 5.0)
        drawn.append(Disturbance(kind, victims, when, round(share, 2), round(delay_s, 2), round(nap_s, 1)))
    return tuple(drawn)
