"""What Spark's Java side is asked, and what is told where it cannot be asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dray.clusters.spark.spark_private import executors, running_tasks, slots
from dray.errors import ClusterError


class Py4JError(Exception):
    """As py4j names it."""


class Py4JJavaError(Py4JError):
    """What Java raised."""


def context(**methods: Any) -> Any:
    java = SimpleNamespace(**methods)
    return SimpleNamespace(version="5.0.0", _jsc=SimpleNamespace(sc=lambda: java))


def failing(error: Exception) -> Any:
    def method(*_: object) -> None:
        raise error

    return method


def test_the_driver_is_not_counted_as_an_executor() -> None:
    assert executors(context(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: 3))) == 2


@pytest.mark.parametrize(
    "without",
    [
        SimpleNamespace(version="5.0.0"),
        context(),
        context(getExecutorMemoryStatus=failing(Py4JError("does not exist"))),
    ],
)
def test_a_missing_part_is_told_with_the_versions(without: Any) -> None:
    with pytest.raises(ClusterError, match=r"Spark 5\.0\.0 cannot be asked") as told:
        executors(without)
    assert "pyspark>=3.5,<5" in told.value.fix
    for ask in (slots, lambda found: running_tasks(SimpleNamespace(sparkContext=found))):
        with pytest.raises(ClusterError, match="cannot be asked"):
            ask(SimpleNamespace(version="5.0.0"))


def test_what_spark_itself_raises_stays() -> None:
    with pytest.raises(Py4JJavaError):
        executors(context(getExecutorMemoryStatus=failing(Py4JJavaError("stopped"))))
