"""An executor without processes: batches die, wait and overtake each other as a plan says."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from dray.batch import run_items
from dray.batch.executor import Batch, BatchEvent, Died, Done, Packed, Trouble


class FakeExecutor:
    """Runs batches at once, in any order; `kills` says which item ends its process, and how often."""

    name = "fake"
    task_overhead_s = 0.0
    freezes = True

    def __init__(
        self,
        function: Callable[[Any], Any],
        slots: int = 2,
        *,
        seed: int = 0,
        kills: dict[int, int] | None = None,
        tells_suspect: bool = True,
        loses: float = 0.0,
    ) -> None:
        self.slots = slots
        self.closed: list[bool] = []
        self.most_waiting = 0
        self.runs: list[int] = []
        self._function = function
        self._random = random.Random(seed)
        self._kills = dict(kills or {})
        self._tells = tells_suspect
        self._loses = loses
        self._batches: list[Batch] = []

    def freeze(self, item: Any) -> Any:
        return item

    def pack(self, items: Sequence[Any]) -> Packed:
        return Packed(list(items))

    def split(self, payload: Any, spans: Sequence[tuple[int, int]]) -> list[Packed]:
        return [Packed(payload[start:stop]) for start, stop in spans]

    def text(self, payload: Any, offset: int) -> str:
        return repr(payload[offset])

    def unpack(self, results: Any) -> list[Any]:
        return list(results)

    def submit(self, batch: Batch) -> None:
        self._batches.append(batch)
        self.most_waiting = max(self.most_waiting, len(self._batches))

    def waiting(self) -> int:
        return len(self._batches)

    def release(self, keys: Sequence[Hashable]) -> None:
        pass

    def close(self, good: bool) -> None:
        self.closed.append(good)

    def poll(self, timeout_s: float) -> list[BatchEvent]:
        if not self._batches:
            return []
        batch = self._batches.pop(self._random.randrange(len(self._batches)))
        if self._random.random() < self._loses:
            return [Died(batch.number, "The node is gone.", blameless=True)]
        for offset, item in enumerate(batch.payload):
            if self._kills.get(item, 0) > 0:
                self._kills[item] -= 1
                return [Died(batch.number, "Its process was killed.", suspect=offset if self._tells else None)]
        self.runs += batch.payload
        values, troubles, _ = run_items.run(self._function, batch.payload)
        seconds = self._random.choice([1e-4, 0.01, 2.0]) * batch.count
        return [Done(batch.number, values, [Trouble(*trouble) for trouble in troubles], seconds)]
