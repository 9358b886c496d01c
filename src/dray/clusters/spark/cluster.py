"""Ray inside the Spark session of this process: joined if one runs there, else started and ended with the run."""

from __future__ import annotations

import os
import platform
import secrets
import signal
import sys
import threading
import time
from typing import Any

from dray.clusters.environment import environment_for_ray, refresh_authentication
from dray.clusters.joined import JoinedCluster, join
from dray.clusters.quiet import OPTIONS, quiet
from dray.clusters.spark.plan import Plan, Session, check_master, executors_expected, plan, scales
from dray.clusters.spark.spark_private import executors, has_context, running_tasks, slots
from dray.clusters.spark.start import RayOnSpark
from dray.errors import ClusterError, DrayError
from dray.threads.apply import environment

NODES_TIMEOUT_S = 90.0
"""How long to wait for the next node; a machine may start several one after another, 10 s each."""
NEW_MACHINES_TIMEOUT_S = 600.0
"""How long if executors have to come first."""
_PROBLEM_TIMEOUT_S = 10.0
_EXECUTORS_TIMEOUT_S = 30.0
_SETTLED_S = 5.0
_YOUNG_S = 60.0
_TAG = "dray-look"
# One of these that is set says which Spark is meant: spark-submit, a shell, a Databricks cluster.
_CONFIGURED_BY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "DATABRICKS_RUNTIME_VERSION")


class SparkCluster(JoinedCluster):
    """A Ray on Spark. `close()` ends it, and the session, as far as they were started for the run."""

    def __init__(
        self,
        *,
        workers: int,
        threads: int | None,
        may_grow: bool,
        leave: bool,
        started: RayOnSpark | None = None,
        session: Any = None,
        reason: str = "Ray on Spark: the one that runs in this session.",
    ) -> None:
        self._started = started
        self._session = session
        self._reason = reason
        super().__init__("spark", workers=workers, threads=threads, leave=leave, may_grow=may_grow)

    def decide(self, workers: int, threads: int | None, *, may_grow: bool = False) -> None:
        super().decide(workers, threads, may_grow=may_grow)
        self.reasons = (*self.reasons, self._reason)

    def close(self) -> None:
        started, session = self._started, self._session
        self._started = self._session = None
        try:
            super().close()
        finally:
            _end(started, session)


def open_on_spark(current: str | None, *, workers: int, threads: int | None, may_grow: bool) -> SparkCluster:
    """Return the Ray of this process's Spark session, connected. `current` is the Ray that it has joined by itself."""
    running = _running_here()
    if current is not None and current != running:
        raise ClusterError(
            f"This process is already connected to the Ray cluster at {current}, which is not in its Spark session.",
            fix='Call ray.shutdown() first, or use the one that is there: cluster="auto".',
        )
    if running is not None:
        if current is None:
            join(running, workers=workers, threads=threads, may_grow=may_grow)
        return SparkCluster(workers=workers, threads=threads, may_grow=may_grow, leave=current is None)
    session, ours = _session()
    started: RayOnSpark | None = None
    try:
        decided = plan(_look_at(session), workers, threads, may_grow=may_grow)
        there = _check_executors(session, decided)
        started = RayOnSpark(session)
        _start(started, decided, there)
        _wait_for_nodes(started, session, decided)
    except BaseException:
        _leave_ray()
        _end(started, session if ours else None)
        raise
    return SparkCluster(
        workers=workers,
        threads=threads,
        may_grow=may_grow,
        leave=True,
        started=started,
        session=session if ours else None,
        reason=decided.reason,
    )


def _running_here() -> str | None:
    init = sys.modules.get("ray.util.spark.cluster_init")
    active = getattr(init, "_active_ray_cluster", None)
    return None if active is None else str(active.address)


def _session() -> tuple[Any, bool]:
    """Return the Spark session, and whether it was made here."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ClusterError(
            "Spark's Python library is not installed.", fix="Install it: pip install 'dray[spark]'."
        ) from None
    session = SparkSession.getActiveSession()
    ours = False
    if session is None:
        there = has_context()  # another thread's session
        if not there and not any(name in os.environ for name in _CONFIGURED_BY):
            raise ClusterError(
                "There is no Spark session in this process.",
                fix='Make it before dray.train(..., cluster="spark"), run under spark-submit, or say which Spark: '
                "`PYSPARK_SUBMIT_ARGS='--master spark://host:7077 pyspark-shell' dray train ...`",
            )
        ours = not there and "DATABRICKS_RUNTIME_VERSION" not in os.environ
        builder = SparkSession.builder.appName("dray") if ours else SparkSession.builder
        # A bar for each of Ray's nodes would be drawn over the run's own display.
        session = (builder.config("spark.ui.showConsoleProgress", "false") if ours else builder).getOrCreate()
    try:
        session.sparkContext  # noqa: B018
    except Exception:
        raise ClusterError(
            "This is a Spark Connect session, whose cluster is out of reach: Ray needs the driver's own.",
            fix="Run on the driver of a classic session; on Databricks, on compute with dedicated access mode.",
        ) from None
    return session, ours


def _look_at(session: Any) -> Session:
    """Return what is known of the session, after the executors of a young one have had time to come."""
    context = session.sparkContext
    settings = {str(name): str(value) for name, value in context.getConf().getAll()}
    check_master(context.master)
    expected = executors_expected(context.master, settings)
    began = seen_at = time.monotonic()
    seen = executors(context)
    settled_s = _SETTLED_S if time.time() - context.startTime / 1000 < _YOUNG_S else 0.0
    while not scales(settings) and (expected is None or seen < expected):
        now = time.monotonic()
        if now - began > _EXECUTORS_TIMEOUT_S or (expected is None and seen and now - seen_at >= settled_s):
            break
        time.sleep(0.2)
        if (found := executors(context)) != seen:
            seen, seen_at = found, time.monotonic()
    return Session(context.master, settings, seen, slots(context))


def _check_executors(session: Any, decided: Plan) -> dict[str, str]:
    """Refuse executors whose Python could not run a worker: Ray would try again and again.

    Return the variables that they lack: Ray looks for its `ray` in PATH, where a virtual environment's is not.
    """

    def look(_: int) -> dict[str, str]:  # sent as it is: what it runs in may have no dray
        import os
        import platform
        import shutil
        import sys
        from importlib.metadata import PackageNotFoundError, version

        path = os.environ.get("PATH", os.defpath)
        missing = "" if shutil.which("ray") else os.path.dirname(sys.executable) + os.pathsep + path  # noqa: PTH120
        found = {"python": platform.python_version(), "path": missing}
        for name in ("ray", "dray"):
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = ""
        return found

    context = session.sparkContext
    limit_s = NEW_MACHINES_TIMEOUT_S if decided.may_come else NODES_TIMEOUT_S
    late = threading.Event()

    def give_up() -> None:
        late.set()
        context.cancelJobsWithTag(_TAG)

    timer = threading.Timer(limit_s, give_up)
    timer.start()
    context.addJobTag(_TAG)
    try:
        there = context.parallelize(range(decided.nodes), decided.nodes).map(look).collect()
    except Exception as error:
        if late.is_set():
            raise ClusterError(
                f"Spark has given this session no core for {limit_s:g} s: other jobs hold them, or no executor comes.",
                fix="Wait for those jobs or cancel them, or look at Spark's own pages why executors are missing.",
            ) from None
        raise ClusterError(
            f"Spark's executors cannot run Python as this process does: {_cause(str(error))}",
            fix="Give them the same Python: set PYSPARK_PYTHON to it before the session starts.",
        ) from error
    finally:
        timer.cancel()
        context.removeJobTag(_TAG)
    from importlib.metadata import version

    here = {"python": platform.python_version(), "ray": version("ray"), "dray": version("dray")}
    for found in there:
        for name, value in here.items():
            if found[name] != value:
                raise ClusterError(
                    f"An executor of Spark's has {f'{name} {found[name]}' if found[name] else f'no {name}'}, "
                    f"the driver {value}.",
                    fix="Use one environment on both: PYSPARK_PYTHON, `--archives`, or %pip install on Databricks.",
                )
    return next(({"PATH": found["path"]} for found in there if found["path"]), {})


def _start(started: RayOnSpark, decided: Plan, there: dict[str, str]) -> None:
    import ray

    token = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),  # for this cluster only
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with environment_for_ray(token):
        refresh_authentication()
        try:
            # The executors' own environment says OMP_NUM_THREADS=1: Spark sets it to its tasks' cores.
            started.start(decided, {**there, **environment(decided.threads), **token})
            handler = signal.getsignal(signal.SIGTERM)
            try:
                with quiet():
                    ray.init(address=started.address, **OPTIONS)
            finally:
                if threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGTERM, handler)  # Ray puts its own there
        except DrayError:
            raise
        except Exception as error:
            raise ClusterError(
                f"Ray did not start in this Spark session: {_cause(str(error))}",
                fix="Check the driver's memory and temporary directory, and that executors reach it by network.",
            ) from error


def _wait_for_nodes(started: RayOnSpark, session: Any, decided: Plan) -> None:
    """Wait for all nodes that were asked for; raise if no other one comes."""
    import ray

    limit_s = NEW_MACHINES_TIMEOUT_S if decided.may_come else NODES_TIMEOUT_S
    count, since = 0, time.monotonic()
    while True:
        alive = sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
        if alive >= decided.nodes:
            return
        waited_s = time.monotonic() - since
        if alive > count:
            count, since = alive, time.monotonic()
        elif waited_s > (_PROBLEM_TIMEOUT_S if started.problem else limit_s):
            raise _too_few(started.problem, running_tasks(session), alive, decided, waited_s)
        time.sleep(0.2)


def _too_few(problem: str | None, running: int, alive: int, decided: Plan, waited_s: float) -> ClusterError:
    what = f"{alive} of {decided.nodes} Ray nodes have started in Spark, and no other one for {waited_s:.0f} s"
    if problem:
        return ClusterError(
            f"{what}: {_cause(problem)}", fix="Look into the executors' logs (Spark's pages show them) for more."
        )
    if running > alive:
        return ClusterError(
            f"{what}: {running - alive} tasks of other Spark jobs hold cores.",
            fix="Wait for those jobs or cancel them, or use fewer workers.",
        )
    return ClusterError(
        f"{what}: Spark has given no more executors with {decided.cpus} free cores.",
        fix="Use fewer workers or threads, or look at Spark's own pages why executors are missing.",
    )


def _cause(text: str) -> str:
    """Return the line of a long trace that tells most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line.partition(":")[0] or "Error:" in line]
    return (telling or lines or ["no reason given"])[-1][:300]


def _leave_ray() -> None:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


def _end(started: RayOnSpark | None, session: Any) -> None:
    try:
        if started is not None:
            started.end()
            refresh_authentication()
    finally:
        if session is not None:
            session.stop()
