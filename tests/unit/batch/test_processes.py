"""The map in real processes, which really die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import dray
import map_functions as functions
from dray.batch import processes
from dray.errors import ConfigError, ItemError
from dray.mapping.map import Results
from living import open_files

WHERE = ["processes", "here"]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert not set(psutil.Process().children(recursive=True)) - before
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 2


def run(function: Any, items: Any, **options: Any) -> Results[Any]:
    options = {"where": "processes", "workers": 2, **options}
    return dray.map(function, items, **options)


@pytest.mark.parametrize("where", WHERE)
def test_results_are_those_of_a_loop(where: str) -> None:
    assert list(run(functions.double, range(10_000), where=where)) == [2 * i for i in range(10_000)]
    assert list(run(functions.double, [], where=where)) == []
    assert list(run(functions.double, iter([7]), where=where)) == [14]


def test_lambdas_closures_and_local_classes_work() -> None:
    factor = 3

    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    assert list(run(lambda item: factor * item, range(5))) == [0, 3, 6, 9, 12]
    points = list(run(lambda point: Point(point.x + 1), [Point(1), Point(2)]))
    assert [point.x for point in points] == [2, 3]
    assert all(isinstance(point, Point) for point in points)


def test_items_run_at_the_same_time_in_other_processes() -> None:
    spans = list(run(functions.when, [1.0] * 4, workers=4))
    assert max(begun for begun, _ in spans) < min(ended for _, ended in spans)
    assert os.getpid() not in set(run(functions.pid, range(4)))


def test_as_they_come_the_short_ones_are_first() -> None:
    assert list(run(functions.nap, [1.0, 0.01], ordered=False)) == [0.01, 1.0]
    assert list(run(functions.nap, [1.0, 0.01])) == [1.0, 0.01]


@pytest.mark.parametrize("where", WHERE)
def test_an_item_that_raises_is_named_and_the_cause_is_its_own(where: str) -> None:
    results = run(functions.raises, range(10), where=where)
    with pytest.raises(ItemError, match=r"Item 3 \(3\) failed: ValueError: three is not allowed") as caught:
        list(results)
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.index, caught.value.item, caught.value.kind) == (3, "3", "raised")
    assert "map_functions.py" in caught.value.traceback


@pytest.mark.parametrize("where", WHERE)
def test_failures_are_skipped_or_returned_as_asked(where: str) -> None:
    skipped = run(functions.raises, range(6), where=where, on_error="skip")
    assert list(skipped) == [0, 1, 2, 4, 5]
    assert [error.index for error in skipped.failures] == [3]
    assert skipped.failed == 1
    returned = list(run(functions.raises, range(6), where=where, on_error="return"))
    assert isinstance(returned.pop(3), ItemError)
    assert returned == [0, 1, 2, 4, 5]


def test_every_way_to_end_badly_costs_one_item_and_is_told() -> None:
    results = run(functions.misbehaves, range(100), on_error="skip")
    found = list(results)
    told = {error.index: (error.kind, error.what) for error in results.failures}
    assert [value for value in found if not callable(value)] == [
        i for i in range(100) if i not in (10, 20, 30, 40, 50, 60, 70)
    ]
    assert sorted(told) == [10, 20, 30, 40, 60, 70]
    assert "KeyError: 'ten'" in told[10][1]
    assert "exit code 3" in told[20][1]
    assert "SIGKILL" in told[30][1]
    assert "3 tries" in told[30][1]
    assert "sys.exit('enough')" in told[40][1]
    assert "cannot be pickled" in told[60][1]
    assert "crashed (SIGSEGV)" in told[70][1]
    assert [told[index][0] for index in sorted(told)] == ["raised", "died", "died", "raised", "pickle", "died"]


def test_a_process_that_can_no_longer_answer_is_replaced() -> None:
    results = run(functions.hangs_up, range(20), on_error="skip")
    assert list(results) == [i for i in range(20) if i != 2]
    assert [(error.index, error.kind) for error in results.failures] == [(2, "died")]


def test_a_kill_from_outside_is_survived(tmp_path: Path) -> None:
    assert list(run(functions.killed_the_first_time, [str(tmp_path)])) == ["second try"]


def test_a_process_killed_by_somebody_loses_nothing() -> None:
    others = set(psutil.Process().children())  # such as the S3 server of other tests
    results = run(functions.nap, [0.02] * 150)
    found = [next(results) for _ in range(5)]
    next(child for child in psutil.Process().children() if child not in others).kill()
    assert found + list(results) == [0.02] * 150


@pytest.mark.parametrize("function", [functions.slow_at_two, functions.stubborn, functions.swallows])
def test_time_limits_hold_for_one_item_and_the_others_go_on(function: Any) -> None:
    begun = time.perf_counter()
    results = run(function, range(20), timeout_s=0.5, on_error="skip")
    assert list(results) == [i for i in range(20) if i != 2]
    assert [(error.index, error.kind) for error in results.failures] == [(2, "time")]
    assert "longer than 0.5 s" in results.failures[0].what
    assert time.perf_counter() - begun < 20


def test_time_limits_hold_in_this_process_and_put_the_alarm_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    results = run(functions.slow_at_two, range(5), timeout_s=0.3, on_error="skip", where="here")
    assert list(results) == [0, 1, 3, 4]
    assert signal.getsignal(signal.SIGALRM) is before
    failure: list[BaseException] = []

    def elsewhere() -> None:
        try:
            list(run(functions.double, [1], timeout_s=1, where="here"))
        except ConfigError as error:
            failure.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert 'where="processes"' in str(failure[0])


def test_a_function_that_forks_disturbs_nobody_and_leaves_nobody() -> None:
    assert sorted(run(functions.forks, range(20))) == list(range(20))


def test_what_functions_print_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(run(functions.prints, range(3))) == [0, 1, 2]
    captured = capsys.readouterr()
    assert sorted(captured.out.split("\n")) == ["", "out 0", "out 1", "out 2"]
    assert sorted(captured.err.split("\n")) == ["", "err 0", "err 1", "err 2"]


def test_a_process_that_eats_its_memory_is_ended_and_its_item_named() -> None:
    results = run(functions.eats_memory, range(10), resources={"memory": 500_000_000}, on_error="skip")
    assert list(results) == [i for i in range(10) if i != 2]
    assert [(error.index, error.kind) for error in results.failures] == [(2, "memory")]
    assert "more than 500 MB" in results.failures[0].what


def test_a_function_that_cannot_be_pickled_is_refused_with_the_reason() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"cannot be sent to another process: .*lock") as caught:
        list(run(lambda item: lock.locked(), [1]))
    assert "inside the function" in caught.value.fix


def test_a_function_whose_module_is_missing_in_the_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    module = types.ModuleType("only_here")
    exec("def double(item): return 2 * item", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(ConfigError, match=r"cannot load the function only_here.double: ModuleNotFoundError") as caught:
        list(run(module.double, [1]))
    assert '"only_here" importable' in caught.value.fix


def test_a_module_that_ends_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text("def f(item): return item\n")
    monkeypatch.syspath_prepend(tmp_path)
    import deadly  # type: ignore[import-not-found]

    (tmp_path / "deadly.py").write_text(
        "import os, sys; print('no licence', file=sys.stderr, flush=True); os._exit(9)\n"
    )
    with pytest.raises(dray.DrayError, match=r"end before they are ready: .*exit code 9.*no licence"):
        list(run(deadly.f, [1], runtime_env={"env_vars": {"PYTHONDONTWRITEBYTECODE": "1"}}))


def test_items_that_cannot_be_pickled_are_named_and_the_others_run() -> None:
    items = [1, 2, (number for number in range(3)), 4]
    results = run(str, items, on_error="skip")
    assert list(results) == ["1", "2", "4"]
    assert "generator" in results.failures[0].what
    results = run(str, iter(items), on_error="skip")
    assert list(results) == ["1", "2", "4"]
    assert results.failures[0].index == 2


def test_the_same_array_given_to_every_call_is_stored_once() -> None:
    array = np.arange(1_000_000, dtype=np.float64)
    before = processes.STORE.stored
    assert list(run(functions.total, [(array, i) for i in range(100)])) == [float(i) for i in range(100)]
    assert list(run(functions.total, ((array, i) for i in range(100)))) == [float(i) for i in range(100)]
    assert list(run(functions.weighted, range(100), shared={"weights": array})) == [float(i) for i in range(100)]
    assert list(run(lambda item: float(array[item]), range(5))) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert processes.STORE.stored == before + 1
    assert list(run(functions.is_writable, [array])) == [False]


def test_an_iterator_may_reuse_its_buffer() -> None:
    def reused(size: int) -> Iterator[np.ndarray]:
        buffer = np.zeros(size)
        for number in range(50):
            buffer[0] = number
            yield buffer

    for size in (3, 300_000):
        for where in WHERE:
            assert list(run(functions.first_of, reused(size), where=where)) == [float(i) for i in range(50)]


def test_when_the_machine_runs_out_of_memory_the_largest_process_is_ended_and_its_item_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Low memory is told until the first process has been ended for it."""
    ended: list[tuple[int, str, str]] = []
    end = processes.Processes._end

    def note(place: Any, child: Any, kind: Any, reason: str) -> None:
        if not ended and len(sizes) > 1:  # both are at work
            ended.append((child.pid, kind, reason))
            end(place, child, kind, reason)

    sizes: dict[int, int] = {}

    def own_bytes(pid: int) -> int:
        return sizes.setdefault(pid, 50_000_000 * (1 + len(sizes)))  # the younger, the larger

    monkeypatch.setattr(processes.Processes, "_end", note)
    monkeypatch.setattr(processes, "own_bytes", own_bytes)
    monkeypatch.setattr(processes, "available_memory", lambda: (100, 100) if ended else (2, 100))
    assert list(run(functions.nap, [0.4] * 12)) == [0.4] * 12
    [(pid, kind, reason)] = ended
    assert (pid, kind) == (max(sizes, key=lambda pid: sizes[pid]), "memory")
    assert reason == f"Its process used {sizes[pid] // 1_000_000} MB when the machine ran out of memory."


@pytest.mark.parametrize("memory", [None, (3, 100), (100, 100)])
def test_enough_memory_or_no_word_of_it_ends_no_process(
    monkeypatch: pytest.MonkeyPatch, memory: tuple[int, int] | None
) -> None:
    monkeypatch.setattr(processes, "available_memory", lambda: memory)
    monkeypatch.setattr(processes.Processes, "_end", lambda *_: pytest.fail("a process was ended"))
    assert list(run(functions.nap, [0.3] * 4)) == [0.3] * 4


def test_a_process_that_is_starting_is_not_ended_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    take = processes.Processes._take

    def note(place: Any, child: Any, *message: Any) -> None:
        begun.append(child.pid)
        take(place, child, *message)

    monkeypatch.setattr(processes, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(processes, "available_memory", lambda: (100, 100) if begun else (0, 100))
    monkeypatch.setattr(processes.Processes, "_end", lambda *_: pytest.fail("a process was ended"))
    assert list(run(functions.nap, [0.0], workers=1)) == [0.0]


def test_an_item_for_which_memory_never_suffices_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "available_memory", lambda: (0, 100))
    results = run(functions.nap, [0.0, 5.0], on_error="skip", retries=0)
    list(results)
    error = results.failures[-1]
    assert (error.index, error.kind) == (1, "memory")
    assert "when the machine ran out of memory" in error.what


def test_large_items_make_small_batches_so_that_memory_stays_flat() -> None:
    def arrays() -> Iterator[np.ndarray]:
        for number in range(600):
            yield np.full(500_000, float(number))  # 4 MB

    files: list[int] = []
    results = run(functions.first_of, arrays())
    for number, value in enumerate(results):
        assert value == number
        files.append(sum("memfd:dray" in name for name in open_files()))
    assert max(files) < 16


class Unreadable:
    """Pickles, but cannot be read anywhere."""

    def __reduce__(self) -> Any:
        return functions.raises, (3,)


def test_items_that_cannot_be_read_in_the_process_are_told() -> None:
    results = run(str, [1, Unreadable(), 3, 4], on_error="skip", batch=4)
    found = list(results)
    assert len(found) + results.failed == 4
    assert all(error.kind == "pickle" for error in results.failures)
    assert "three is not allowed" in results.failures[0].what


def test_large_items_and_large_results_do_not_wait_for_each_other() -> None:
    items = [os.urandom(900_000) for _ in range(40)]
    assert list(run(bytes.upper, items, batch=5)) == [item.upper() for item in items]


def test_a_loop_that_is_left_early_ends_the_processes() -> None:
    for value in run(functions.nap, [0.01] * 1000):
        assert value
        break
    results = run(functions.nap, [0.01] * 1000)
    next(results)
    results.close()
    with run(functions.nap, [0.01] * 1000) as results:
        next(results)


def test_results_that_nobody_asks_for_are_complained_about() -> None:
    with pytest.warns(RuntimeWarning, match=r"double, ...\) were never asked for"):
        run(functions.double, range(3))


def test_each_process_has_its_share_of_the_threads() -> None:
    assert set(run(functions.threads, range(2))) == {"1"}
    assert set(run(functions.threads, range(2), resources={"num_cpus": 2})) == {"2"}


def test_the_environment_of_the_processes_can_be_given(tmp_path: Path) -> None:
    given = {"env_vars": {"SETTING": "blue"}, "working_dir": str(tmp_path)}
    assert list(run(functions.variable, ["SETTING"], runtime_env=given)) == ["blue"]
    assert list(run(functions.here, [0], runtime_env=given)) == [str(tmp_path)]
    with pytest.raises(ConfigError, match="no directory of this machine"):
        list(run(functions.here, [0], runtime_env={"working_dir": "s3://bucket/code.zip"}))


def test_maps_may_be_nested_and_run_in_threads() -> None:
    def inner(item: int) -> int:
        return sum(dray.map(functions.double, range(item), where="processes", workers=1))

    assert list(run(inner, [3, 4])) == [6, 12]
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(list(run(functions.double, range(100))))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2 * i for i in range(100)]] * 3


LINES = """
import os
import dray

def talk(item):
    for _ in range(300):
        print("line", os.getpid(), item)

list(dray.map(talk, range(40), where="processes", workers=2))
"""


def test_lines_of_two_processes_do_not_run_together_where_nothing_is_buffered(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LINES)
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 40 * 300
    assert all(re.fullmatch(r"line \d+ \d+", line) for line in lines)


SCRIPT = """
import os, sys, time
import dray

def slow(item):
    print("begun", os.getpid(), flush=True)
    time.sleep(60)

print("driver", os.getpid(), flush=True)
list(dray.map(slow, range(100), where="processes", workers=2))
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_driver_that_is_interrupted_or_killed(sign: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        lines = [driver.stdout.readline() for _ in range(3)]
        pids = [int(line.split()[1]) for line in lines if line.startswith("begun")]
        assert len(pids) == 2
        begun = time.perf_counter()
        driver.send_signal(sign)
        driver.wait(10)
    assert time.perf_counter() - begun < 8
    deadline = time.monotonic() + 5
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_script_needs_no_guard_and_its_main_program_runs_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import dray\nprint('main')\ndef f(x): return x + OFFSET\nOFFSET = 5\nprint(list(dray.map(f, range(3))))\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "main\n[5, 6, 7]\n"


def test_a_verdict_is_measured_and_nothing_is_lost_to_it() -> None:
    verdict = dray.map(functions.nap, [0.05] * 400, explain=True, workers=2)
    assert verdict.cost.item_s == pytest.approx(0.05, rel=0.3)
    assert verdict.here_s == pytest.approx(20, rel=0.3)
    assert verdict.machine_s == pytest.approx(10, rel=0.35)
    assert verdict.recommended == "processes"
    assert "for 400 items" in str(verdict).lower()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"where": "proceses"}, 'Did you mean "processes"'),
        ({"on_error": "ignore"}, "Known: raise, skip, return"),
        ({"each": "files"}, "Known: batch, file"),
        ({"workers": 0}, "workers is 0"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"resources": {"num_gpus": 1}}, "only a cluster has that"),
        ({"runtime_env": {"pip": ["x"]}}, "only a cluster has that"),
        ({"resources": {"memory": "lots"}}, "resources"),
    ],
)
def test_mistakes_are_told_before_anything_runs(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run(functions.double, [1], **options)


def test_what_is_no_function_and_what_are_no_items_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        run(3, [1])
    with pytest.raises(ConfigError, match="nothing to go through"):
        run(functions.double, 3)
