"""The executor of the items: what was asked for, or what is fastest."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dray.batch.engine import Engine, Move
from dray.batch.executor import Executor
from dray.batch.function import BatchFunction, Context, Tell, ignore, opened
from dray.batch.options import Options
from dray.batch.processes import Printed, Processes
from dray.batch.this_process import ThisProcess
from dray.batch.verdict import Cost, Verdict, judge
from dray.errors import ClusterError, ConfigError
from dray.threads.apply import environment
from dray.threads.limits import cpus_of_this_process

MEASURE_S = 0.5
"""So much of the function is measured before it is decided whether a cluster is faster."""

Function = Callable[[Any], Any] | BatchFunction[Any, Any]


def open_executor(
    function: Function, options: Options, total: int | None, output: Printed | None, tell: Tell = ignore
) -> Executor:
    """Return the executor that was asked for; for "auto" this machine, unless only a cluster has what is needed."""
    if options.where == "here":
        context = Context(max(1, int(options.cpus)), own_process=False, tell=tell)
        return ThisProcess(opened(function, context), options.timeout_s)
    if options.where == "cluster" or (options.where == "auto" and options.only_on_a_cluster):
        return open_cluster(function, options, output, tell)
    return open_processes(function, options, total, output, tell)


def open_processes(
    function: Function, options: Options, total: int | None, output: Printed | None, tell: Tell = ignore
) -> Processes:
    slots = slots_here(options)
    if total is not None:
        slots = max(1, min(slots, total))
    return Processes(
        function,
        slots,
        limit_s=options.timeout_s,
        memory_bytes=options.memory_bytes,
        environment={**environment(max(1, int(options.cpus))), **options.runtime_env.get("env_vars", {})},
        directory=_directory(options.runtime_env.get("working_dir")),
        threads=max(1, int(options.cpus)),
        output=output,
        tell=tell,
    )


def slots_here(options: Options) -> int:
    """Return how many items may run at the same time on this machine."""
    if options.workers != "auto":
        return options.workers
    slots = cpus_of_this_process() / max(options.cpus, 0.01)
    if options.memory_bytes:
        import psutil

        slots = min(slots, psutil.virtual_memory().total / options.memory_bytes)
    return max(1, math.floor(slots))


def open_cluster(function: Function, options: Options, output: Printed | None, tell: Tell = ignore) -> Executor:
    from dray.batch.ray_tasks import RayTasks
    from dray.clusters.connect import connect
    from dray.clusters.joined import JoinedCluster

    name = options.cluster or "auto"
    fills = options.fills_nodes
    threads = None if fills else max(1, math.ceil(options.cpus))
    workers = None if options.workers == "auto" else options.workers
    was_joined = joined()
    embedded = name == "local" and not was_joined
    if embedded and options.runtime_env:
        raise ConfigError(
            "An embedded cluster has no runtime environments.",
            fix='Use where="processes" (env_vars, working_dir), or a running cluster: cluster="auto" or host:port.',
        )
    wanted = slots_here(options) if embedded else workers or 1 if fills else 1
    cluster = connect(name, workers=wanted, threads=threads)
    try:
        resources = dict(options.resources)
        if fills:
            if workers is None and isinstance(cluster, JoinedCluster):
                workers = max(1, len(cluster.nodes()))
                cluster.decide(workers, None)
            resources["num_cpus"] = cluster.threads
        return RayTasks(
            function,
            cluster,
            workers=workers,
            limit_s=options.timeout_s,
            resources=resources,
            runtime_env=options.runtime_env,
            own_process=not was_joined,  # else the user's own tasks may run in the same processes
            output=output,
            tell=tell,
        )
    except BaseException:
        cluster.close()
        raise


def joined() -> bool:
    """Whether this process is connected to a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def offers_cluster(options: Options) -> bool:
    """Whether there is a cluster to compare with: one that is named, or joined. An embedded one gains nothing."""
    return options.where == "auto" and (options.cluster not in (None, "local") or joined())


def cluster_cpus(options: Options) -> float | None:
    """Return the CPUs of the cluster that is named or joined; None if there is none to be reached."""
    from dray.clusters.connect import connect

    if options.cluster in (None, "local", "spark") and not joined():
        return None  # to ask Spark's would be to start it
    with suppress(ClusterError), connect(options.cluster or "auto", workers=1, threads=1) as cluster:
        return sum(node.cpus for node in cluster.nodes())
    return None


def mover(function: Function, options: Options, output: Printed | None) -> Move | None:
    """Return the rule that decides, when the first items are measured, whether to go on to the cluster."""
    if not offers_cluster(options):
        return None
    asked: list[float | None] = []

    def move(engine: Engine) -> Callable[[], Executor] | None:
        if asked or engine.pace.seconds < MEASURE_S:
            return None
        asked.append(cluster_cpus(options))
        verdict = verdict_of(engine, slots_here(options), asked[0], engine.items.remaining, options.cpus)
        if verdict.recommended != "cluster":
            return None
        return lambda: open_cluster(function, options, output)

    return move


def verdict_of(engine: Engine, slots: int, cpus: float | None, items: int | None, item_cpus: float) -> Verdict:
    """Judge from what an engine has measured."""
    pace = engine.pace
    moving_s = pace.overhead_s / pace.items if pace.items else 0.0
    cost = Cost(engine.done, pace.item_s or 0.0, moving_s, pace.item_bytes)
    return judge(cost, items, slots, cpus / max(item_cpus, 0.01) if cpus else None, joined())


def _directory(working_dir: Any) -> str | None:
    if working_dir is None:
        return None
    if not Path(str(working_dir)).is_dir():
        raise ConfigError(
            f'runtime_env["working_dir"] is {working_dir!r}, no directory of this machine.',
            fix='Name a directory, or use where="cluster".',
        )
    return str(working_dir)
