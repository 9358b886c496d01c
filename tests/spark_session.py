"""A Spark session of two executors, and what dray does in it, told as JSON: `python spark_session.py DATA`.

In a process of its own: a session's Java lives as long as its process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from dray.clusters.spark import cluster as on_spark
from dray.clusters.spark.start import RayOnSpark
from dray.errors import ClusterError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.learners.configs import make_config
from dray.training.train import train
from living import asked, commands, named

RAY = ("raylet", "gcs_server")


def below(names: tuple[str, ...] = RAY) -> list[psutil.Process]:
    """The processes of Ray that this process has started, also by Spark."""
    return named(psutil.Process().children(recursive=True), *names)


class Witness:
    """A sink that looks at the processes when training begins."""

    def __init__(self) -> None:
        self.environments: list[dict[str, str]] = []
        self.commands = ""

    def event(self, event: Event) -> None:
        if event.kind == "phase" and event.data["name"] == "train":
            self.environments = [environment for _, environment in asked(below(), psutil.Process.environ)]
            self.commands = "\n".join(commands(psutil.Process().children(recursive=True)))

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def run(data: str, **settings: Any) -> tuple[Any, Witness]:
    witness = Witness()
    values = {"data": data, "label": "label", "rounds": 5, "cluster": "spark", **settings}
    return train(make_config(values), sinks=[witness]), witness


def refusal(data: str, **settings: Any) -> str:
    try:
        run(data, **settings)
    except ClusterError as error:
        return str(error)
    raise AssertionError("it ran")


def left() -> list[str]:
    """What lives of Ray once it had time to end: executors' nodes go a few seconds after their Spark task."""
    deadline = time.monotonic() + 30
    while (alive := [*below(), *launchers()]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [name for _, name in asked(alive, psutil.Process.name)]


def launchers() -> list[psutil.Process]:
    """The processes that start Ray's nodes and clean up after them."""
    commands_of = asked(psutil.Process().children(recursive=True), psutil.Process.cmdline)
    return [process for process, words in commands_of if "ray.util.spark.start_ray_node" in words]


def a_run(data: str, context: Any) -> dict[str, Any]:
    before = dict(os.environ)
    began = time.monotonic()
    result, witness = run(data, workers=2)
    seconds = time.monotonic() - began
    after = dict(os.environ)
    [token] = {environment["RAY_AUTH_TOKEN"] for environment in witness.environments}
    settings = json.dumps(context.getConf().getAll())
    files = [path for path in Path(os.environ["SPARK_HOME"], "work").rglob("*") if path.is_file()]
    return {
        "seconds": seconds,
        "digest": result.model_digest,
        "digest_here": run(data, workers=0)[0].model_digest,
        "workers": result.workers,
        "decided": [proof.decided for proof in result.threads],
        "processes_of_ray": len(witness.environments),
        "modes": sorted({environment["RAY_AUTH_MODE"] for environment in witness.environments}),
        "openmp": sorted({environment["OMP_NUM_THREADS"] for environment in witness.environments}),
        # Which Spark's own environment does not have.
        "openblas": sorted({environment["OPENBLAS_NUM_THREADS"] for environment in witness.environments}),
        "told": [
            place
            for place, text in (
                ("a command", witness.commands),
                ("Spark's settings", settings),
                *((str(path), path.read_text(errors="replace")) for path in files),
            )
            if token in text
        ],
        "files": len(files),
        "environment": sorted(name for name in {*before, *after} if before.get(name) != after.get(name)),
        "left": left(),
    }


def executors_are_taken(data: str, context: Any, count: int, timeout_s: float) -> dict[str, Any]:
    def take() -> None:
        context.setJobGroup("taken", "taken")
        try:
            context.parallelize(range(count), count).foreach(lambda _: time.sleep(600))
        except Exception:
            return

    taken = threading.Thread(target=take)
    taken.start()
    while on_spark.running_tasks(SparkSession.active()) < count:
        time.sleep(0.1)
    on_spark.NODES_TIMEOUT_S = timeout_s
    began = time.monotonic()
    told = refusal(data, workers=2)
    seconds = time.monotonic() - began
    context.cancelJobGroup("taken")
    taken.join()
    return {"told": told, "seconds": seconds, "left": left()}


def interrupted_while_the_head_starts(data: str) -> dict[str, Any]:
    launched = []

    def interrupt(_: object, *__: object) -> bool:
        launched.extend(launchers())
        raise KeyboardInterrupt

    wait, RayOnSpark._wait_for_port = RayOnSpark._wait_for_port, interrupt  # type: ignore[method-assign]
    try:
        run(data, workers=2)
    except KeyboardInterrupt:
        return {"launched": len(launched), "left": left()}
    finally:
        RayOnSpark._wait_for_port = wait  # type: ignore[method-assign]
    raise AssertionError("it ran")


def the_users_own(data: str) -> dict[str, Any]:
    from ray.util.spark import cluster_init

    os.environ["RAY_AUTH_MODE"] = "disabled"
    cluster_init.setup_ray_cluster(max_worker_nodes=1, num_cpus_worker_node=1, num_gpus_worker_node=0)
    result, _ = run(data, workers=1)
    stays = [name for _, name in asked(below(), psutil.Process.name)]
    scratch = cluster_init._active_ray_cluster.temp_dir
    cluster_init.shutdown_ray_cluster()
    Path(f"{scratch}.lock").unlink()  # which Ray leaves
    return {"digest": result.model_digest, "stays": sorted(stays), "left": left()}


def main(data: str) -> None:
    # Spark's processes inherit it. Ray by itself looks for its `ray` there.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    began = time.monotonic()
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    settings = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"}  # as Databricks has it
    # Ray's nodes on one machine start one after another, each 10 s after the one before.
    settings["RAY_ON_SPARK_RAY_WORKER_NODE_STARTUP_INTERVAL"] = "1"
    for name, value in settings.items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = builder.getOrCreate()
    context = session.sparkContext
    told: dict[str, Any] = {"session_s": time.monotonic() - began}
    try:
        told["too_many"] = refusal(data, workers=3)
        told["interrupted"] = interrupted_while_the_head_starts(data)
        told["run"] = a_run(data, context)
        told["taken"] = executors_are_taken(data, context, 1, 30.0)
        told["all_taken"] = executors_are_taken(data, context, 2, 3.0)
        on_spark.NODES_TIMEOUT_S = 90.0
        print(json.dumps(told))
        print(json.dumps(the_users_own(data)))
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
