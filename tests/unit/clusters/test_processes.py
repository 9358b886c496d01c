from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dray.clusters.processes import children_of_ray, see_gone, with_descendants

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_only_children_whose_command_names_the_directory_are_of_ray(tmp_path: Path) -> None:
    mine = subprocess.Popen([*SLEEP, f"--session-dir={tmp_path}/session_1"])
    other = subprocess.Popen([*SLEEP, f"{tmp_path.parent}/elsewhere"])
    try:
        found = children_of_ray(tmp_path)
        assert [process.pid for process in found] == [mine.pid]
        for process in found:
            process.terminate()
        see_gone([process for one in found for process in with_descendants(one)])
        assert mine.poll() is not None
        assert other.poll() is None
    finally:
        for child in (mine, other):
            child.kill()
            child.wait()
