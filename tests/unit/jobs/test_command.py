"""`dray job`, as far as it needs no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli.job import job
from dray.errors import ConfigError


def refused(*arguments: str) -> ConfigError:
    error = CliRunner().invoke(job, list(arguments)).exception
    assert isinstance(error, ConfigError)
    return error


def test_every_command_has_its_help() -> None:
    for command in ("submit", "list", "status", "logs", "stop", "delete"):
        done = CliRunner().invoke(job, [command, "--help"])
        assert done.exit_code == 0
        assert "--json" in done.output


def test_what_cannot_be_meant_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("")
    script = str(tmp_path / "main.py")
    assert "same thing" in refused("list", "--cluster", "a", "--endpoint", "http://b").what
    assert "cannot be used with --no-wait" in refused("submit", script, "--no-wait", "--retries", "1").what
    assert "arguments, --working-dir and --exclude are for scripts" in refused("submit", "run.yaml", "--", "x").what
    assert "--env NOT_HERE: there is no such" in refused("submit", script, "--env", "NOT_HERE").what
    assert "no script" in refused("submit", str(tmp_path / "gone.py")).what
    assert "not a job endpoint" in refused("submit", script, "--cluster", "local").what


def test_a_secret_is_not_sent_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "0123456789abcdef")
    (tmp_path / "main.py").write_text("")
    error = refused("submit", str(tmp_path / "main.py"), "--env", "AWS_SECRET_ACCESS_KEY")
    assert "looks like a secret" in error.what
    assert "0123456789abcdef" not in str(error)
