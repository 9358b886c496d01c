"""Start and end a Ray inside a Spark session by Ray's own means (`ray.util.spark`), with what those lack.

- Every node has its environment (threads, token) before its first process: by a start hook, whose variables Ray gives
  to the head and, inside the Spark task that starts a node, to that node. They are on no command line and in no
  setting of Spark's.
- Ray sleeps for 20 s while its head starts, joins the cluster to wait for the nodes with its messages on, and only
  warns when fewer have come. Here the head is awaited by its port, and the caller counts the nodes.
- The head's output, which Ray copies to standard output, is kept for errors.
- Interrupted at any moment, what has been started is ended.

Ray has no options for these, so its starter is changed while it starts, as in `lean.py`.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from dray.clusters.environment import kept
from dray.clusters.processes import see_gone, with_descendants
from dray.clusters.ray_private import SPARK_LOGGERS, TESTED, MissingPartError, SparkStarter, replaced
from dray.clusters.spark.plan import Plan
from dray.clusters.spark.spark_private import running_tasks
from dray.errors import ClusterError

HEAD_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_HOOK = "RAY_ON_SPARK_START_HOOK"
# The sample, the models and the items of a map go through it; Ray's own 30 % of the memory would be the workers' loss.
_OBJECT_STORE_BYTES = 1 << 30

_for_nodes: dict[str, str] = {}
_before_ours: str | None = None


class StartHook:
    """What Ray calls when it starts in Spark: the hook that would have been, with our variables for every node."""

    def __init__(self) -> None:
        from ray.util.spark.databricks_hook import DefaultDatabricksRayOnSparkStartHook
        from ray.util.spark.start_hook_base import RayOnSparkStartHook

        self._default: Any
        if _before_ours:
            module, _, name = _before_ours.rpartition(".")
            self._default = getattr(import_module(module), name)()
        elif "DATABRICKS_RUNTIME_VERSION" in os.environ:
            self._default = DefaultDatabricksRayOnSparkStartHook(False)
        else:
            self._default = RayOnSparkStartHook(False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._default, name)

    def custom_environment_variables(self) -> dict[str, str]:
        try:
            variables = dict(self._default.custom_environment_variables())
        except (ImportError, RuntimeError):
            # Databricks' hook wants to show a hint about MLflow, for which it needs a notebook.
            variables = {}
        return {**variables, **_for_nodes}


class RayOnSpark:
    """A Ray that was started in a Spark session. `end()` leaves nothing of it, and may be called again."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._head: subprocess.Popen[str] | None = None
        self._output: deque[str] = deque(maxlen=100)
        self._starter: SparkStarter | None = None
        self._server: Any = None
        self._handle: Any = None
        self._scratch: str | None = None
        self._loggers: list[logging.Logger] = []
        self._tasks_before = running_tasks(session)

    @property
    def address(self) -> str:
        return str(self._handle.address)

    @property
    def problem(self) -> str | None:
        """What kept a node from starting, as far as one has told."""
        return getattr(self._server, "last_worker_error", None)

    def start(self, plan: Plan, variables: Mapping[str, str]) -> None:
        """Start the head and ask Spark for the nodes. They come later; the caller counts them."""
        starter = self._starter = spark_starter()
        self._loggers = [logging.getLogger(name) for name in SPARK_LOGGERS if not logging.getLogger(name).disabled]
        for logger in self._loggers:
            logger.disabled = True
        # Each time Ray asks Spark for a node.
        warnings.filterwarnings("ignore", message="Spark session is not provided")
        # Ray leaves its address in the environment, for every later `ray.init()` of this process.
        with _hooked(variables), self._changed(starter), kept("RAY_ADDRESS"):
            try:
                starter.module.setup_ray_cluster(
                    max_worker_nodes=plan.nodes,
                    min_worker_nodes=plan.nodes,
                    num_cpus_worker_node=plan.cpus,
                    num_gpus_worker_node=plan.gpus,
                    num_cpus_head_node=0,
                    num_gpus_head_node=0,
                    object_store_memory_worker_node=_OBJECT_STORE_BYTES,
                    # It would listen on all of the driver's addresses.
                    head_node_options={"include_dashboard": False, "disable_usage_stats": None},
                    worker_node_options={"disable_usage_stats": None},
                    autoscale_upscaling_speed=float(max(1, plan.nodes)),
                )
            finally:
                self._handle = starter.active

    @kept("RAY_ADDRESS")  # Ray removes it, whatever cluster it names
    def end(self) -> None:
        starter = self._starter
        processes = [] if self._head is None else _started_by(self._head)
        if starter is not None and self._handle is not None and starter.active is self._handle:
            with suppress(Exception):  # Spark may be gone already, and its executors with it
                starter.module.shutdown_ray_cluster()
            starter.forget()
        elif self._server is not None:
            with suppress(Exception):
                self._server.shutdown()
        if self._server is not None:
            self._server.server_close()
        if self._head is not None:
            self._head.terminate()
            see_gone(processes)
            self._head.wait()
        if self._scratch is not None:  # Ray removes it as well, but not its lock, nor that of a head that failed
            shutil.rmtree(self._scratch, ignore_errors=True)
            Path(f"{self._scratch}.lock").unlink(missing_ok=True)
        if self._server is not None:
            self._wait_for_executors()
        for logger in self._loggers:
            logger.disabled = False
        self._head = self._server = self._handle = self._scratch = None
        self._loggers = []

    def _wait_for_executors(self) -> None:
        """Wait until Spark has killed the tasks that held the nodes: the next run wants their cores."""
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        with suppress(Exception):
            while running_tasks(self._session) > self._tasks_before and time.monotonic() < deadline:
                time.sleep(0.2)

    @contextmanager
    def _changed(self, starter: SparkStarter) -> Iterator[None]:
        handler, installed = signal.getsignal(signal.SIGTERM), starter.handles_sigterm

        def note(server: Any) -> None:
            self._server = server

        try:
            with replaced(starter.replacements(self._session, self._start_head, self._wait_for_port, note)):
                yield
        finally:
            if callable(handler) and threading.current_thread() is threading.main_thread():
                # A program that handles SIGTERM ends this process by it. Ray's handler is for those without one.
                signal.signal(signal.SIGTERM, handler)
                starter.handles_sigterm = installed

    def _start_head(
        self, command: list[str], *, extra_env: Mapping[str, str], **_: Any
    ) -> tuple[subprocess.Popen[str], deque[str]]:
        self._scratch = next((part.partition("=")[2] for part in command if part.startswith("--temp-dir=")), None)
        # Ray looks for its `ray` there, and does not find it in a virtual environment that is not activated.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        self._head = head = subprocess.Popen(  # noqa: S603  # as Ray composed it
            command,
            env={**os.environ, **extra_env, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # a terminal's Ctrl-C is the driver's to answer
        )
        threading.Thread(target=lambda: self._output.extend(head.stdout or ()), daemon=True).start()
        return head, self._output

    def _wait_for_port(self, host: str, port: int) -> bool:
        from ray.util.spark.utils import is_port_in_use

        deadline = time.monotonic() + HEAD_TIMEOUT_S
        while time.monotonic() < deadline and self._head is not None and self._head.poll() is None:
            if is_port_in_use(host, port):
                return True
            time.sleep(0.1)
        return False


def spark_starter() -> SparkStarter:
    """Return Ray's starter, or say that this version has another one."""
    try:
        return SparkStarter()
    except MissingPartError as missing:
        import ray

        raise ClusterError(
            f"Ray {ray.__version__} starts inside Spark in a way that dray does not know: it has no {missing}.",
            fix=f"Install a version of Ray that dray was tested with: pip install '{TESTED}'.",
        ) from missing


@contextmanager
def _hooked(variables: Mapping[str, str]) -> Iterator[None]:
    """Let Ray ask our hook; nodes that Ray starts later have the variables too, it keeps them."""
    global _for_nodes, _before_ours
    _before_ours = os.environ.get(_HOOK)
    _for_nodes = dict(variables)
    try:
        with kept(_HOOK):
            os.environ[_HOOK] = f"{__name__}.{StartHook.__name__}"
            yield
    finally:
        _for_nodes, _before_ours = {}, None


def _started_by(head: subprocess.Popen[str]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return with_descendants(psutil.Process(head.pid))
    return []
