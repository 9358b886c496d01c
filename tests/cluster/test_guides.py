"""Every command and every line of Python in the guides works, in the order in which it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_block_of_the_guide_runs(guide: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```(bash|python)\n(.*?)```", guide.read_text(), flags=re.DOTALL)
    assert blocks
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "DRAY_HOME": str(tmp_path / "home"),
    }
    for language, block in blocks:
        command = ["bash", "-euo", "pipefail", "-c", block] if language == "bash" else [sys.executable, "-c", block]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
