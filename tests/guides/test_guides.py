"""Every command and every line of Python in the guides works, in the order in which it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from job_head import job_head

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_block_of_the_guide_runs(guide: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```(bash|python)\n(.*?)```", guide.read_text(), flags=re.DOTALL)
    assert blocks
    with place_of(guide) as place:
        env = place | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "DRAY_HOME": str(tmp_path / "home"),
        }
        for language, block in blocks:
            command = ["bash", "-euo", "pipefail", "-c", block] if language == "bash" else [sys.executable, "-c", block]
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0, f"{block}\n{done.stderr}"


@contextmanager
def place_of(guide: Path) -> Iterator[dict[str, str]]:
    """Give the environment of a guide: that of jobs begins with a head that runs."""
    if guide.stem != "jobs":
        yield dict(os.environ)
        return
    with job_head() as head:
        yield {**head.environment, "RAY_API_SERVER_ADDRESS": head.url}
