from __future__ import annotations

import json
import os
import subprocess
import sys

from dray.threads.apply import environment

SCRIPT = """
import json, sys
from dray.threads.apply import apply, set_environment
if sys.argv[1] == "early":
    set_environment(3)
import numpy, xgboost
from threadpoolctl import threadpool_info
def openmp():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"]
before = openmp()
with apply(3):
    inside = openmp()
print(json.dumps([before, inside, openmp()]))
"""


def threads_of_openmp(when: str) -> list[list[int]]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, when]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return [list(map(int, pools)) for pools in json.loads(done.stdout)]


def test_every_variable_has_the_number() -> None:
    assert environment(4)["OMP_NUM_THREADS"] == "4"
    assert set(environment(4).values()) == {"4"}


def test_the_environment_set_before_the_library_loads_undoes_the_one_inherited() -> None:
    before, _, _ = threads_of_openmp("early")
    assert before
    assert set(before) == {3}


def test_applied_threads_hold_inside_the_context_whatever_was_inherited() -> None:
    before, inside, after = threads_of_openmp("late")
    assert set(before) == {1}
    assert set(inside) == {3}
    assert after == before
