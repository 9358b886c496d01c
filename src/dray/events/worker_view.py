"""One worker of a run, as its events and samples tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["", "starting", "reloading", "reloaded", "joined", "leaving", "lost"]


@dataclass(slots=True)
class WorkerView:
    """What is known of one worker."""

    worker: int
    host: str = ""
    pid: int | None = None
    threads: int | None = None
    rows: int = 0
    """Read so far, of all its shards."""
    total_rows: int | None = None
    loaded_rows: int = 0
    """Of the shards that are ready to train on."""
    loaded: bool = False
    cores: float | None = None
    memory_bytes: int | None = None
    rows_per_second: float | None = None
    """In the last epoch; trees do not tell it."""
    ok: bool = True
    state: State = ""
    """What is out of the ordinary; nothing while it loads and trains from the start."""
    reload_rows: int = 0
    """Rows that it was last asked to load anew, of `reload_shards` shards that are not ready yet."""
    reload_shards: int = 0
    kept_rows: int = 0
    """Those that it held when it was asked."""
    sampled: float | None = None

    @property
    def reloaded(self) -> float:
        """The share of what it was asked to load anew that is there."""
        if self.loaded or not self.reload_rows:
            return 1.0
        return max(0.0, min(1.0, (self.rows - self.kept_rows) / self.reload_rows))
