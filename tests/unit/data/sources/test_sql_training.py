"""A training on rows of PostgreSQL: it goes on with the rows that it was begun on, which nobody else may read."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PASSWORD, PostgresServer

from dray.data.sources.sql_database import Database
from dray.errors import DataError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.ingesting import copy_files
from dray.learners.configs import make_config
from dray.learners.xgboost import ring as xgboost_ring
from dray.runs.directory import open_run
from dray.storage import DEFAULT
from dray.training.resume import resume
from dray.training.train import train

ROUNDS = 30


class Interrupt:
    """A sink that ends the training after some rounds, as Ctrl-C does."""

    done = False

    def event(self, event: Event) -> None:
        if event.kind == "round" and event.data["round"] >= 3 and not self.done:
            self.done = True
            os.kill(os.getpid(), signal.SIGINT)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def execute(postgres: PostgresServer, *statements: str) -> None:
    with closing(Database(postgres.address).connect()) as connection, closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


@pytest.fixture
def settings(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = os.umask(0o022)
    execute(
        postgres,
        "CREATE TABLE people (id bigint, x double precision, y bigint)",
        "INSERT INTO people SELECT i, sin(i), i % 2 FROM generate_series(1, 500) AS i",
    )
    yield {
        "data": postgres.address, "label": "y", "rounds": ROUNDS, "workers": 0, "threads": 1, "out": "run",
        "read": {"table": "people", "key": "id"},
    }  # fmt: skip
    os.umask(old)
    monkeypatch.setenv("DRAY_TEST_PASSWORD", PASSWORD)
    execute(postgres, "DROP TABLE people")


def interrupted(settings: dict[str, Any]) -> Path:
    """Leave a run behind that was interrupted; return the copy of its rows."""
    agree = xgboost_ring.agree
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(xgboost_ring, "agree", lambda flag: (time.sleep(0.02), agree(flag))[1])
        train(make_config(settings), sinks=[Interrupt()])
    assert open_run("run").document["status"] == "stopped"
    [copy] = Path("cache/dray").iterdir()
    return copy


def test_it_goes_on_with_the_rows_of_before_whatever_became_of_the_table(
    settings: dict[str, Any], postgres: PostgresServer
) -> None:
    whole = train(make_config(settings | {"out": "whole"}))
    shutil.rmtree("cache")
    interrupted(settings)
    execute(postgres, "UPDATE people SET y = 1 - y", "DELETE FROM people WHERE id < 250")
    result = resume("run", DEFAULT, {}, [])
    assert result.model_digest == whole.model_digest
    assert len(list(Path("cache/dray").iterdir())) == 1


@pytest.mark.parametrize("what", ["all of it", "a file"])
def test_a_copy_that_is_gone_is_told(settings: dict[str, Any], what: str) -> None:
    copy = interrupted(settings)
    shutil.rmtree(copy) if what == "all of it" else next(copy.glob("*.parquet")).unlink()
    with pytest.raises(
        DataError, match=rf"The rows of postgresql://.* were copied to .*{copy.name} .* is gone"
    ) as told:
        resume("run", DEFAULT, {}, [])
    assert "Train anew" in told.value.fix
    assert open_run("run").document["status"] == "stopped"


def test_nobody_else_may_read_a_copy(settings: dict[str, Any]) -> None:
    interrupted(settings)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in Path("cache/dray").rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert stat.S_IMODE(Path("cache/dray").stat().st_mode) == 0o700


def test_a_copy_stays_as_long_as_its_run_is_not_finished(settings: dict[str, Any]) -> None:
    copy = interrupted(settings)
    cache, result = str(Path("cache/dray").resolve()), copy / "_ingest.json"
    long_ago = time.time() - (copy_files.KEPT_DAYS + 1) * 86400
    os.utime(result, (long_ago, long_ago))
    copy_files.remove_old(cache, DEFAULT)
    assert result.exists()
    resume("run", DEFAULT, {}, [])
    os.utime(result, (long_ago, long_ago))
    copy_files.remove_old(cache, DEFAULT)
    assert not copy.exists()
