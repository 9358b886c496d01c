"""The pace of a training: slow while something is to happen in its middle, then as fast as it can."""

from __future__ import annotations

from pathlib import Path

_PACING = Path(__file__).with_name("pacing")


class Pace:
    """Rounds of the trainings whose processes have its `environment`, one training at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {"PYTHONPATH": str(_PACING), "DRAY_PACE": str(folder)}
        self.begin(0)

    def begin(self, seconds: float) -> None:
        """Let a round take at least so long, and forget the rounds before."""
        (self._folder / "rounds").write_text("")
        self._set(seconds)

    def lift(self) -> None:
        """Let everything go as fast as it can, from now on."""
        self._set(0)

    def rounds(self) -> list[int]:
        """Return the rounds that were begun, as often as they were, in order."""
        return [int(line) for line in (self._folder / "rounds").read_text().split()]

    def _set(self, seconds: float) -> None:
        new = self._folder / "new"
        new.write_text(str(seconds))
        new.replace(self._folder / "seconds")  # nobody reads half of it
