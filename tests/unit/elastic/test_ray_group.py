"""Workers on Ray, with a Ray of the test's own: what is sent to whom, and what counts as a loss."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from dray.elastic import actor, ray_group
from dray.elastic.actor import RayStore, given
from dray.elastic.group import Lost, NodeGone, Raised, Ready
from dray.elastic.inputs import Inputs, Maker, Promised, Shared
from dray.elastic.ray_group import RayGroup, _Shared
from dray.elastic.watch import Watch
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.learner import Do, InputGone
from fake_group import Recorder

KEPT_VALUES = 1


class FakeMethod:
    """A method of an actor: every call returns references, whose results are the test's to give."""

    def __init__(self, ray: FakeRay, name: str, returns: int = 1) -> None:
        self._ray = ray
        self._name = name
        self._returns = returns

    def options(self, *, num_returns: int) -> FakeMethod:
        return FakeMethod(self._ray, self._name, num_returns)

    def remote(self, *inputs: Any) -> Any:
        refs = [f"{self._name}-{next(self._ray.numbers)}" for _ in range(self._returns)]
        self._ray.given[refs[0]] = inputs
        if self._name == "meet":
            status = SimpleNamespace(usage=SimpleNamespace(host="there", pid=7), copied_round=0)
            self._ray.results[refs[0]] = ("a-node", status)
        return refs if self._returns > 1 else refs[0]


class FakeRay:
    """As much of `ray` as a group uses."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.given: dict[str, tuple[Any, ...]] = {}
        self.results: dict[str, Any] = {}
        self.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "the-drivers-node")

    def nodes(self) -> list[Any]:
        return []

    def put(self, _value: Any) -> str:
        return f"put-{next(self.numbers)}"

    def kill(self, _actor: Any, *, no_restart: bool) -> None:
        assert no_restart

    def wait(self, refs: Sequence[str], **_: Any) -> tuple[list[str], list[str]]:
        return [ref for ref in refs if ref in self.results], []

    def get(self, ref: str) -> Any:
        result = self.results[ref]
        if isinstance(result, Exception):
            raise result
        return result


class FakePlaces:
    def __init__(self, _cluster: Any) -> None:
        pass

    def ask(self, worker: int) -> None:
        pass

    def options(self, _worker: int) -> dict[str, Any]:
        return {}


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    names = ("call", "call_beside", "post", "ask", "status", "latest", "meet")
    worker = SimpleNamespace(**{name: FakeMethod(fake, name) for name in names})
    actor_class = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: worker))
    monkeypatch.setattr(ray_group, "ray", fake)
    monkeypatch.setattr(actor, "ray", fake)
    monkeypatch.setattr(ray_group, "Placements", FakePlaces)
    monkeypatch.setattr(ray_group, "WorkerActor", actor_class)
    return fake


@pytest.fixture
def group(ray: FakeRay) -> RayGroup:
    """A group with worker 0."""
    watch = Watch(Telemetry([]), shared=False, rounds_told=0)
    made = RayGroup(SimpleNamespace(threads=1), watch, heartbeat_s=8.0, on_copy=lambda _: None, learner="xgboost")  # type: ignore[arg-type]
    start(made)
    return made


def start(group: RayGroup) -> None:
    group.start(0)
    [ready] = group._collect(0)
    assert isinstance(ready, Ready)


def work(_worker: Any, *_inputs: Any) -> None:
    """What a worker is asked to do here."""


def newest(ray: FakeRay) -> str:
    return next(ref for ref in reversed(ray.given) if ref.startswith("call-"))


def failure(cause: Exception) -> RayTaskError:
    return RayTaskError("call", "a traceback", cause)


def test_rounds_are_told_before_the_checkpoint_that_has_them_is_kept(group: RayGroup) -> None:
    """On disk a checkpoint must not be ahead of the events: the driver may be killed in between."""
    told = Recorder()
    group._watch._telemetry = Telemetry([told])
    known: list[list[int]] = []
    group._on_copy = lambda _: known.append([event["round"] for event in told.of("round")])
    group._take_copy(Checkpoint(2, b"model", (Step(1, 0.1, {}), Step(2, 0.1, {}))))
    assert known == [[1, 2]]


def test_what_is_shared_is_put_anew_after_a_worker_was_ended_for_what_it_raised(group: RayGroup, ray: FakeRay) -> None:
    """Ray would look for it on the node of that worker, which may be gone, for longer than the heartbeat."""
    shared = group.share("a plan")
    group.call(0, Do(work), shared)
    first = ray.given[newest(ray)][1]
    group.call(0, Do(work), shared)
    assert ray.given[newest(ray)][1] == first
    group.end(0)
    start(group)
    group.call(0, Do(work), shared)
    assert ray.given[newest(ray)][1] != first


def test_no_node_gets_what_is_shared_from_another_once_a_worker_has_ended(group: RayGroup, ray: FakeRay) -> None:
    """The two may not reach each other, and Ray would try for longer than anybody wants to wait."""
    shared = group.share("a plan")
    assert isinstance(shared, _Shared)
    assert shared.ref(0, "node-a") == shared.ref(0, "node-b")
    assert shared.ref(1, "node-a") != shared.ref(1, "node-b")
    assert shared.ref(1, "node-a") == shared.ref(1, "node-a") != shared.ref(2, "node-a")


def test_what_is_shared_is_no_plain_reference_for_which_ray_would_hold_back_every_later_call(
    group: RayGroup, ray: FakeRay
) -> None:
    group.call(0, Do(work), group.share("a plan"))
    shared = ray.given[newest(ray)][1]
    assert isinstance(shared, Shared)
    assert str(shared.promise.maker).startswith("the driver on ")


class Here:
    """A store in which everything has arrived."""

    def arrived(self, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        return list(refs)

    def made(self, refs: Sequence[Any]) -> list[Any]:
        return list(refs)

    def get(self, refs: Sequence[Any]) -> list[Any]:
        return [f"value of {ref}" for ref in refs]


@pytest.mark.parametrize("lazy", [False, True])
def test_a_worker_waits_for_what_is_shared_before_it_begins(lazy: bool) -> None:
    maker = Maker(None, "here", "a-node", "", 0)
    waiting = Inputs(Here(), "worker 0 on there", "another", 8.0)
    promised, shared = Promised("a", maker), Shared(Promised("b", maker))
    first, *others = given(Do(work, lazy=lazy), [promised, 1, shared, shared], waiting)
    assert (first.get() if lazy else first) == "value of a"
    assert others == [1, "value of b", "value of b"]


def test_a_worker_that_finds_its_node_gone_is_lost_with_what_it_made(group: RayGroup, ray: FakeRay) -> None:
    [kept] = group.call(0, Do(work, KEPT_VALUES)).kept
    ray.results[newest(ray)] = failure(NodeGone("Ray does not answer on there.", fix=""))
    [lost] = group._collect(0)
    assert isinstance(lost, Lost)
    assert lost.cause == "its node does not answer (gone, or cut off)"
    start(group)
    with pytest.raises(InputGone):  # at once: Ray would look for it for half a minute
        group.call(0, Do(work), kept)


def test_a_worker_whose_input_was_lost_with_another_node_is_not_lost(group: RayGroup, ray: FakeRay) -> None:
    group.call(0, Do(work))
    of_the_maker = failure(NodeGone("Ray does not answer on there.", fix="")).as_instanceof_cause()
    ray.results[newest(ray)] = failure(of_the_maker)
    [raised] = group._collect(0)
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, InputGone)


@pytest.mark.parametrize(
    "ask", [lambda: RayStore().arrived(["a"], 0.5), lambda: RayStore().made(["a"]), lambda: RayStore().get(["a"])]
)
def test_an_error_of_the_connection_to_ray_says_that_the_node_is_gone(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("Connection reset by peer")

    monkeypatch.setattr(actor, "ray", SimpleNamespace(wait=fail, get=fail))
    with pytest.raises(NodeGone, match="Connection reset by peer"):
        ask()


def test_an_oserror_of_an_inputs_maker_is_a_lost_input_and_not_a_lost_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise failure(OSError("No space left on device")).as_instanceof_cause()

    monkeypatch.setattr(actor, "ray", SimpleNamespace(get=fail))
    with pytest.raises(InputGone, match="was to make it failed: OSError: No space left on device"):
        RayStore().get(["a"])
