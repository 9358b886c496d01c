"""The process that begins every job: it keeps the time limit."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dray.jobs import start
from dray.jobs.marks import Reader

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
print("pids", os.getpid(), child.pid, flush=True)
if "leave" in sys.argv:
    os._exit(0) if os.fork() else time.sleep(60)
time.sleep(60)
"""


def run(place: Path, source: str, *arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    (place / "start.py").write_text(Path(start.__file__).read_text().replace("GRACE_S = 10.0", "GRACE_S = 0.5"))
    (place / "script.py").write_text(source)
    job = {"kind": "script", "script": "script.py", "arguments": arguments, "timeout_s": timeout_s, "versions": {}}
    (place / "job.json").write_text(json.dumps(job))
    return subprocess.run(
        [sys.executable, "start.py"], cwd=place, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("timeout_s", [None, 30])
def test_a_script_gets_its_arguments_and_its_exit_code_is_the_jobs(tmp_path: Path, timeout_s: float | None) -> None:
    done = run(tmp_path, "import sys; print(sys.argv[1:]); sys.exit(3)", "a b", "$HOME", timeout_s=timeout_s)
    assert done.stdout == "['a b', '$HOME']\n"
    assert done.returncode == 3


def test_a_job_over_its_time_is_ended_with_all_it_started(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(tmp_path, STUBBORN, timeout_s=1.0)
    assert 1 < time.monotonic() - started < 20
    assert done.returncode == start.TIME_LIMIT_CODE
    pids, told = Reader().feed(done.stdout)
    assert told == {"time_limit": 1.0}
    assert not any(psutil.pid_exists(int(pid)) for pid in str(pids).split()[1:])


def test_a_job_that_ends_when_asked_has_the_time_to(tmp_path: Path) -> None:
    source = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
time.sleep(60)
"""
    done = run(tmp_path, source, timeout_s=0.5)
    assert "saved\n" in done.stdout
    assert done.returncode == start.TIME_LIMIT_CODE


def test_a_process_that_was_killed_has_the_code_of_its_signal(tmp_path: Path) -> None:
    done = run(tmp_path, "import os; os.kill(os.getpid(), 9)", timeout_s=30)
    assert done.returncode == 128 + 9


def test_a_missing_or_another_dray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = start.importlib.metadata.version("dray")
    assert start.dray_is_missing({"dray": here}) is None
    other = start.dray_is_missing({"dray": "9.9"})
    assert other is not None and f"has dray {here}, the submitter 9.9" in other["what"]

    def missing(_: str) -> str:
        raise start.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(start.importlib.metadata, "version", missing)
    none = start.dray_is_missing({"dray": "0.1.0"})
    assert none is not None and "has no dray" in none["what"] and "Install dray 0.1.0" in none["fix"]


def test_it_needs_nothing_but_the_standard_library_of_an_old_python() -> None:
    tree = ast.parse(Path(start.__file__).read_text(), feature_version=(3, 9))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
