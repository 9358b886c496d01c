"""The guide to fleets, on hosts with the names that it uses; blocks marked sh need them, the others run anywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hosts.sshd import Machines, why_no_sshd

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "fleet.md"


def test_every_block_of_the_guide_runs(can_have_hosts: None, tmp_path: Path) -> None:
    if reason := why_no_sshd():
        pytest.skip(reason)
    blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    with Machines(["h1", "h2", "h3"]) as machines:
        for host in machines.machines.values():
            # As if an earlier `up` had made it: there is no index to install from in this network.
            (host.directory / ".dray").mkdir()
            (host.directory / ".dray" / "venv").symlink_to(sys.prefix)
        for block in blocks:
            done = subprocess.run(
                [*machines.laptop.prefix, "bash", "-euo", "pipefail", "-c", block],
                cwd=tmp_path,
                env={**machines.environment, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        status = json.loads((tmp_path / "status.json").read_text())
        assert {node["name"] for node in status["nodes"] if node["alive"]} == {"h1/head", "h1/1", "h2/1", "h2/2"}
        assert not [name for host in machines.machines.values() for name in host.names]
