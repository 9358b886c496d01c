"""How many Ray nodes a Spark session gets, and how large; and what Ray is told, without Spark."""

from __future__ import annotations

import os

import pytest

from dray.clusters.spark import start as spark_start
from dray.clusters.spark.cluster import _cause, _too_few
from dray.clusters.spark.plan import (
    Plan,
    Session,
    check_master,
    cores_of_an_executor,
    executors_expected,
    plan,
    scales,
)
from dray.errors import ClusterError

STANDALONE = "spark://10.0.0.1:7077"
DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}
TAGS = "spark.databricks.clusterUsageTags."


def session(executors: int = 4, cores: int = 16, master: str = STANDALONE, **settings: str) -> Session:
    return Session(master, settings, executors, executors * cores)


def with_settings(settings: dict[str, str], executors: int = 4, cores: int = 16) -> Session:
    return Session(STANDALONE, settings, executors, executors * cores)


@pytest.mark.parametrize("master", [STANDALONE, "yarn", "local-cluster[2,1,1024]", "spark://a:7077,b:7077"])
def test_masters_that_ray_runs_on(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    ("master", "told", "fix"),
    [
        ("k8s://https://10.0.0.1:443", "does not run inside Spark on Kubernetes", "--on kubernetes"),
        ("local[*]", "has no executors", "--cluster local"),
        ("local", "has no executors", "--cluster local"),
        ("local[*, 4]", "has no executors", "--cluster local"),
        ("mesos://10.0.0.1:5050", "does not run inside Spark on mesos", "standalone"),
    ],
)
def test_other_masters_are_refused(master: str, told: str, fix: str) -> None:
    with pytest.raises(ClusterError) as caught:
        check_master(master)
    assert told in caught.value.what
    assert fix in caught.value.fix


def test_cores_are_as_configured_or_as_the_slots_tell() -> None:
    assert cores_of_an_executor(with_settings({"spark.executor.cores": "5"})) == 5
    assert cores_of_an_executor(session(executors=3, cores=8)) == 8
    assert cores_of_an_executor(Session(STANDALONE, {"spark.task.cpus": "4"}, 2, 4)) == 8
    # Not all of its executors have come, but the master tells.
    assert cores_of_an_executor(Session("local-cluster[2,3,1024]", {}, 0, 6)) == 3
    assert cores_of_an_executor(Session(STANDALONE, {}, 0, 0)) == 1


def test_how_many_executors_will_come() -> None:
    assert executors_expected("local-cluster[2, 1, 1024]", {}) == 2
    assert executors_expected("yarn", {"spark.executor.instances": "7"}) == 7
    assert executors_expected(STANDALONE, {}) is None
    assert executors_expected("yarn", {"spark.executor.instances": "7", **DYNAMIC}) is None


@pytest.mark.parametrize(("cores", "cpus"), [(1, 1), (4, 4), (7, 7), (8, 7), (16, 15)])
def test_a_large_executor_leaves_a_core_to_spark(cores: int, cpus: int) -> None:
    found = plan(session(cores=cores), workers=4, threads=None)
    assert (found.nodes, found.cpus, found.threads) == (4, cpus, cpus)


def test_all_cores_are_used_when_asked_for_by_number() -> None:
    assert plan(session(), workers=4, threads=16) == Plan(4, 16, 0, 16, False)


def test_no_more_nodes_than_the_workers_fill() -> None:
    assert plan(session(), workers=2, threads=None).nodes == 2
    assert plan(session(), workers=4, threads=5).nodes == 2  # three workers on 15 CPUs
    assert plan(session(), workers=8, threads=None) == Plan(4, 15, 0, 7, False)


def test_all_executors_for_a_run_that_decides_later() -> None:
    assert plan(session(), workers=1, threads=None).nodes == 4
    assert plan(session(), workers=3, threads=None, may_grow=True).nodes == 4
    assert plan(session(), workers=9, threads=None, may_grow=True).nodes == 4


@pytest.mark.parametrize(("workers", "threads"), [(5, 8), (4, 17), (61, None)])
def test_too_few_executors_are_an_error_before_anything_starts(workers: int, threads: int | None) -> None:
    with pytest.raises(ClusterError, match="need"):
        plan(session(), workers=workers, threads=threads)


def test_no_executor_is_an_error() -> None:
    with pytest.raises(ClusterError, match="no executor"):
        plan(session(executors=0), workers=2, threads=None)


def test_executors_that_come_when_asked_for_are_counted_on() -> None:
    databricks = {f"{TAGS}clusterScalingType": "autoscaling", f"{TAGS}clusterMaxWorkers": "6"}
    assert scales(DYNAMIC)
    assert scales(databricks)
    assert not scales({f"{TAGS}clusterScalingType": "fixed_size", "spark.dynamicAllocation.enabled": "false"})
    grown = plan(with_settings({**DYNAMIC, "spark.executor.cores": "4"}, executors=0), workers=5, threads=None)
    assert grown == Plan(5, 4, 0, 4, True)
    assert plan(with_settings(databricks), workers=6, threads=None).nodes == 6
    # Beyond the most that may come, workers share.
    assert plan(with_settings(databricks), workers=12, threads=None) == Plan(6, 15, 0, 7, True)
    with pytest.raises(ClusterError, match="need"):
        plan(with_settings(databricks), workers=7, threads=15)


def test_one_executor_is_enough_for_one_worker() -> None:
    assert plan(session(executors=1, cores=4), workers=1, threads=None) == Plan(1, 4, 0, 4, False)


def test_a_run_that_may_grow_begins_with_a_worker_for_each_node() -> None:
    """Each has all the threads of its node, though more workers were hoped for."""
    assert plan(session(executors=2, cores=4), workers=4, threads=None, may_grow=True) == Plan(2, 4, 0, 4, False)
    assert plan(session(executors=2, cores=4), workers=4, threads=None) == Plan(2, 4, 0, 2, False)


def test_gpus_are_those_that_spark_gives_its_executors() -> None:
    assert plan(with_settings({"spark.executor.resource.gpu.amount": "2"}), workers=4, threads=None).gpus == 2
    assert plan(session(), workers=4, threads=None).gpus == 0
    assert plan(with_settings({"spark.executor.resource.gpu.amount": ""}), workers=4, threads=None).gpus == 0


def test_the_reason_counts_in_words() -> None:
    assert plan(session(), workers=4, threads=None).reason == "Ray on Spark: 4 nodes of 15 CPUs, one an executor."
    assert Plan(1, 1, 0, 1, False).reason == "Ray on Spark: 1 node of 1 CPU, one an executor."


def test_every_node_is_given_the_environment_over_what_the_other_hook_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ON_SPARK_START_HOOK", f"{__name__}.TheirHook")
    monkeypatch.setattr("ray._common.utils.load_class", {f"{__name__}.TheirHook": TheirHook}.__getitem__)
    with spark_start._hooked({"OMP_NUM_THREADS": "15", "RAY_AUTH_TOKEN": "secret"}):
        assert os.environ["RAY_ON_SPARK_START_HOOK"] == "dray.clusters.spark.start.StartHook"
        hook = spark_start.StartHook()
        assert hook.get_default_temp_root_dir() == "/scratch"
        assert hook.custom_environment_variables() == {
            "OMP_NUM_THREADS": "15",
            "RAY_AUTH_TOKEN": "secret",
            "THEIRS": "1",
        }
    assert os.environ["RAY_ON_SPARK_START_HOOK"] == f"{__name__}.TheirHook"
    assert spark_start._for_nodes == {}


def test_on_databricks_its_own_hook_goes_on_working(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ON_SPARK_START_HOOK", raising=False)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    monkeypatch.setenv("DATABRICKS_HOST", "https://example")
    monkeypatch.setenv("DATABRICKS_TOKEN", "theirs")
    with spark_start._hooked({"OMP_NUM_THREADS": "15"}):
        hook = spark_start.StartHook()
        assert hook.get_default_temp_root_dir() == "/local_disk0/tmp"
        found = hook.custom_environment_variables()
    assert found["OMP_NUM_THREADS"] == "15"
    assert found["GLOO_SOCKET_IFNAME"] == "eth0"


def test_outside_of_a_notebook_databricks_hint_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ON_SPARK_START_HOOK", raising=False)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with spark_start._hooked({"OMP_NUM_THREADS": "15"}):
        assert spark_start.StartHook().custom_environment_variables() == {"OMP_NUM_THREADS": "15"}


class TheirHook:
    def get_default_temp_root_dir(self) -> str:
        return "/scratch"

    def custom_environment_variables(self) -> dict[str, str]:
        return {"THEIRS": "1", "OMP_NUM_THREADS": "1"}


def test_too_few_nodes_are_told_with_the_reason() -> None:
    asked = Plan(4, 15, 0, 15, False)
    trace = (
        "Ray worker node process exit, reason: Command ...\nTraceback:\n  File x\nRuntimeError: Version mismatch\n.\n"
    )
    assert "3 of 4 Ray nodes" in str(_too_few(trace, 3, 3, asked, 12.0))
    assert "RuntimeError: Version mismatch" in str(_too_few(trace, 3, 3, asked, 12.0))
    assert "2 tasks of other Spark jobs hold cores" in str(_too_few(None, 5, 3, asked, 90.0))
    assert "no more executors with 15 free cores" in str(_too_few(None, 3, 3, asked, 90.0))


def test_the_cause_is_the_last_line_that_names_an_error() -> None:
    assert _cause("a\nValueError: b\nat c\n") == "ValueError: b"
    assert _cause("only this") == "only this"
    assert _cause("") == "no reason given"
