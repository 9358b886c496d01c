"""Batches on a Ray cluster: a task each. The only file of the map that imports Ray."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import cloudpickle
import ray
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)

from dray.batch import packing, run_items, wire
from dray.batch.executor import Batch, BatchEvent, Died, Done, Trouble
from dray.batch.function import BatchFunction, Context, Tell, ignore, opened
from dray.batch.processes import Printed, to_the_streams
from dray.batch.shared import Store
from dray.clusters.cluster import Cluster
from dray.errors import ClusterError, ConfigError, DrayError, WorkerError
from dray.threads.apply import set_environment

LOOK_EVERY_S = 2.0
_PRINTED = 100_000
_functions: dict[bytes, Callable[[Any], Any]] = {}
"""In a worker: the function of the map that it works for. One at a time, so that old ones do not pile up."""
_told: list[Any] = []
"""In a worker: what the function of the batch has told."""


class _ObjectStore:
    """Keeps large objects in Ray's object store."""

    def keep(self, value: Any) -> Any:
        return ray.put(value)

    def view(self, handle: Any) -> Any:
        return ray.get(handle)

    def drop(self, handle: Any) -> None:
        del handle  # the last reference to it, which frees it


_stores: dict[str, Store] = {}


def _store() -> Store:
    """Return the store of the cluster that this process is connected to: it ends with the connection."""
    session = str(ray.get_runtime_context().get_job_id())
    address = f"{ray.get_runtime_context().gcs_address} {session}"
    if address not in _stores:
        _stores.clear()
        _stores[address] = Store(_ObjectStore())
    return _stores[address]


def _run(
    digest: bytes,
    function: tuple[bytes, list[str]],
    payload: bytes,
    keys: list[Hashable],
    values: list[Any],
    limit_s: float | None,
    threads: int,
    own_process: bool,
) -> tuple[Any, ...]:
    """Run a batch in a worker of Ray's. What it prints and tells comes back with the results."""
    _told.clear()
    out, err = io.StringIO(), io.StringIO()
    wire.objects.clear()
    wire.objects.update(zip(keys, ray.get(values) if values else [], strict=True))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if digest not in _functions:
                _functions.clear()
                data, path = function
                # What the driver can import from a directory, a worker that sees the directory can import as well.
                sys.path.extend(entry for entry in path if entry not in sys.path and os.path.exists(entry))  # noqa: PTH110
                loaded = wire.loads(data)
                if isinstance(loaded, BatchFunction):
                    set_environment(threads)
                _functions[digest] = opened(loaded, Context(threads, own_process, _told.append))
        except BaseException as error:
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            return "unusable", f"{type(error).__name__}: {error}"[:500], missing
        try:
            items = wire.loads(payload)
        except BaseException as error:
            return "unreadable", f"It cannot be read on the worker: {type(error).__name__}: {error}"[:500]
        found, troubles, seconds = run_items.run(_functions[digest], items, limit_s, hard=True)
        results = run_items.pack_results(found, troubles, items)
    printed = out.getvalue()[:_PRINTED], err.getvalue()[:_PRINTED]
    return "done", results, troubles, seconds, printed, cloudpickle.dumps(_told)


class RayTasks(packing.Packing):
    """An executor with a slot for each CPU of the cluster that an item may use. Closes the cluster if it owns it."""

    task_overhead_s = 0.005
    name = "cluster"

    def __init__(
        self,
        function: Callable[[Any], Any] | BatchFunction[Any, Any],
        cluster: Cluster,
        *,
        workers: int | None = None,
        limit_s: float | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        own_process: bool = False,
        output: Printed | None = None,
        tell: Tell = ignore,
    ) -> None:
        super().__init__(_store())
        self._cluster = cluster
        self._resources = {"num_cpus": 1.0, **(resources or {})}
        self._workers = workers
        self._limit_s = limit_s
        self._threads = max(1, int(self._resources["num_cpus"]))
        self._own_process = own_process
        self._output = output or to_the_streams
        self._tell = tell
        self._name = packing.name_of(function)
        self._batches: dict[Any, Batch] = {}
        self._sent_at: dict[Any, float] = {}
        self._looked_at = time.monotonic()
        self.slots = self._count_slots()
        data, self._keys = packing.pack_function(function, self._store)
        self._digest = f"{id(self)}-{time.time_ns()}".encode()
        self._function = ray.put((data, [os.path.abspath(entry) for entry in sys.path]))  # noqa: PTH100
        self._task = ray.remote(_run).options(**_options(self._resources, runtime_env))

    def waiting(self) -> int:
        return len(self._batches)

    def submit(self, batch: Batch) -> None:
        keys = list(dict.fromkeys((*self._keys, *batch.shared)))
        values = [self._store.handle(key) for key in keys]
        how = self._limit_s, self._threads, self._own_process
        ref = self._task.remote(self._digest, self._function, batch.payload, keys, values, *how)
        self._batches[ref] = batch
        self._sent_at[ref] = time.perf_counter()

    def poll(self, timeout_s: float) -> list[BatchEvent]:
        if not self._batches:
            time.sleep(timeout_s)
            return []
        refs = list(self._batches)
        ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        self._look()
        return [self._answer(ref, self._batches.pop(ref)) for ref in ready]

    def close(self, good: bool) -> None:
        if not good:
            for ref in self._batches:
                with contextlib.suppress(Exception):
                    ray.cancel(ref, force=True)
        self._batches.clear()
        self._store.release(self._keys)
        self._keys = ()
        self._store.end()
        self._function = None
        self._cluster.close()

    def _answer(self, ref: Any, batch: Batch) -> BatchEvent:
        gone_s = time.perf_counter() - self._sent_at.pop(ref)
        try:
            kind, *answer = ray.get(ref)
        except RayTaskError as error:
            raise _failed(error) from error
        except RayError as error:
            return self._lost(batch, error, gone_s)
        if kind == "unusable":
            raise _unusable(self._name, answer[0], answer[1])
        if kind == "unreadable":
            return Died(batch.number, answer[0], "pickle", outside=False)
        results, troubles, seconds, printed, told = answer
        for value in pickle.loads(told):  # noqa: S301  (from a worker of ours)
            self._tell(value)
        for text, to_stderr in zip(printed, (False, True), strict=True):
            if text:
                self._output(text, to_stderr)
        failed = [Trouble(*trouble) for trouble in troubles]
        return Done(batch.number, results, failed, seconds, bytes=len(results))

    def _lost(self, batch: Batch, error: RayError, gone_s: float) -> BatchEvent:
        if isinstance(error, RuntimeEnvSetupError):
            raise ConfigError(f"The runtime_env cannot be set up: {_line(error)}", fix="Mend it.") from error
        if isinstance(error, OutOfMemoryError):
            return Died(batch.number, "Ray ended its process: the node ran low on memory.", "memory")
        if isinstance(error, NodeDiedError | RaySystemError):
            return Died(batch.number, f"Its node is gone: {_line(error)}", blameless=True)
        if batch.count == 1 and self._limit_s is not None and gone_s > self._limit_s:
            reason = f"It took longer than {self._limit_s:g} s and could not be interrupted."
            return Died(batch.number, reason, "time", outside=False)
        if isinstance(error, WorkerCrashedError | TaskCancelledError):
            reason = "Its process ended (os._exit, a crash, or killed by the function, from outside or for memory)."
            return Died(batch.number, reason)
        return Died(batch.number, f"Its process ended: {_line(error)}")

    def _look(self) -> None:
        """See whether the cluster has grown, or has lost all that an item needs."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self.slots = self._count_slots()

    def _count_slots(self) -> int:
        fitting = [_fits(node, self._resources) for node in ray.nodes() if node["Alive"]]
        slots = sum(fitting)
        if not slots:
            wants = ", ".join(f"{name} {value:g}" for name, value in self._resources.items())
            raise ClusterError(
                f"No node of the cluster has what an item needs: {wants}.",
                fix="Ask for less (resources=), or for a cluster with larger nodes.",
            )
        return min(slots, self._workers) if self._workers else slots


def _fits(node: Mapping[str, Any], wanted: Mapping[str, float]) -> int:
    """Return how many items a node has room for at the same time."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    room = [
        int(node["Resources"].get(names.get(name, name), 0.0) / amount) for name, amount in wanted.items() if amount
    ]
    return min(room, default=1)


def _options(resources: Mapping[str, float], runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    named = {name: value for name, value in resources.items() if name in ("num_cpus", "num_gpus", "memory")}
    own = {name: value for name, value in resources.items() if name not in named}
    # A batch that is lost is the engine's to look after, which knows whose fault it was.
    options: dict[str, Any] = {**named, "max_retries": 0}
    if own:
        options["resources"] = own
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    return options


def _unusable(name: str, reason: str, missing: str | None) -> ConfigError:
    if missing:
        fix = (
            f'Make "{missing}" importable on the workers: runtime_env={{"working_dir": "."}} sends this directory, '
            '{"pip": [...]} installs packages; or define the function in the main program.'
        )
    else:
        fix = "Install the same versions of the libraries on the workers."
    return ConfigError(f"The workers cannot load the function {name}: {reason}", fix=fix)


def _failed(error: RayTaskError) -> Exception:
    cause = error.cause
    if isinstance(cause, DrayError):
        return cause
    missing = "dray" if "No module named 'dray'" in str(error) else None
    if missing:
        return ConfigError("The workers of the cluster have no dray.", fix="Install the same version of dray there.")
    return WorkerError(f"A batch could not be run: {type(cause).__name__}: {_line(cause)}")


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
