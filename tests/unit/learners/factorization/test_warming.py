"""Kernels are compiled ahead, with the types that training calls them with; what was compiled is kept on disk."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dray.learners.factorization import warming
from dray.learners.factorization.warming import Warming
from rating_files import rated, write

TRAIN = """
import json, sys
import dray
from dray.learners.factorization import als_kernels, kernels, top_kernels
from dray.learners.factorization.warming import Warming

def compiled():
    return {
        f"{module.__name__}.{name}": [len(kernel.signatures), sum(kernel.stats.cache_misses.values())]
        for module in (kernels, als_kernels, top_kernels)
        for name, kernel in vars(module).items()
        if hasattr(kernel, "signatures")
    }

data, rating, out = sys.argv[1:]
Warming("explicit" if rating else "implicit").wait()
before = compiled()
columns = {"rating": rating} if rating else {}
dray.train(data, model="factorization", user="u", item="i", rounds=2, eval_fraction=0.2, workers=0, out=out, **columns)
print(json.dumps([before, compiled()]))
"""


@pytest.mark.parametrize("rating", ["r", ""])
def test_training_compiles_nothing_more_and_the_next_process_finds_it_on_disk(tmp_path: Path, rating: str) -> None:
    data = write(tmp_path / "rows.parquet", rated())
    before, after = _train(data, rating, tmp_path / "one", tmp_path / "cache")
    assert after == before
    assert sum(misses for _, misses in before.values()) > 5  # the cache was empty
    again, _ = _train(data, rating, tmp_path / "two", tmp_path / "cache")
    assert sum(misses for _, misses in again.values()) == 0


def _train(data: str, rating: str, out: Path, cache: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, data, rating, str(out)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_process_waits_for_another_that_compiles_and_says_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "LOCKED", str(tmp_path / "lock"))
    monkeypatch.setattr(warming, "WORTH_TELLING_S", 0.0)
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = Warming("explicit")
        time.sleep(0.3)
        assert waiting.doing == warming.TOLD
        fcntl.flock(held, fcntl.LOCK_UN)
        waiting.wait()
    assert waiting.doing == ""


def test_a_process_that_holds_the_lock_for_ever_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "LOCKED", str(tmp_path / "lock"))
    monkeypatch.setattr(warming, "LONGEST_TURN_S", 0.2)
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Warming("implicit").wait()


def test_what_goes_wrong_while_compiling_is_raised_where_the_kernels_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise ValueError("no compiler")

    monkeypatch.setattr(warming, "_descent", broken)
    with pytest.raises(ValueError, match="no compiler"):
        Warming("explicit").wait()
