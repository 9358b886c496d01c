"""A Ray cluster of this machine alone, which lives as long as the run."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import psutil

from dray.clusters.cluster import Cluster
from dray.clusters.environment import environment_for_ray, own_token, refresh_authentication
from dray.clusters.lean import lean_start
from dray.clusters.processes import children_of_ray, see_gone, with_descendants
from dray.clusters.quiet import OPTIONS, quiet
from dray.clusters.scratch import Scratch
from dray.errors import ClusterError
from dray.threads.apply import environment
from dray.threads.decide import Decision

SMALL_STORE_BYTES = 256 << 20
"""Of the object store, where the sample and the model are all that goes through it."""


class LocalCluster(Cluster):
    """An embedded Ray head: loopback only, a token of its own, nothing on the terminal, nothing left behind."""

    def __init__(self, workers: int, decision: Decision, cpus: int, *, rows_move: bool = False) -> None:
        """Start it. `cpus` is what Ray may give out, at least workers x threads.

        Where `rows_move` between the workers the object store may become as large as Ray likes, 30 % of the memory; it
        takes what it is given, not more.
        """
        self.name = "local"
        self.threads = decision.threads
        self.reasons = decision.reasons
        self._store_bytes = None if rows_move else SMALL_STORE_BYTES
        self._scratch = Scratch()
        self._started: list[psutil.Process] = []
        try:
            self._start(workers, cpus)
        except ClusterError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise ClusterError(
                f"Ray did not start on this machine: {_first_line(error)}",
                fix="Check free memory, /dev/shm and the temporary directory, or use --workers 0 (no Ray).",
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def logs(self) -> Path | None:
        return next(iter(sorted(self._scratch.path.glob("session_2*/logs"))), None)

    def close(self) -> None:
        import ray

        # Workers are children of the raylet, so they must be found before it is gone.
        alive = [process for started in self._started for process in with_descendants(started)]
        if self._started:
            ray.shutdown()
            refresh_authentication()
        self._started = []
        see_gone(alive)
        self._scratch.remove()

    def _start(self, workers: int, cpus: int) -> None:
        variables = {
            # The raylet hands its environment to the workers that it starts ahead of time, so they have their
            # threads from birth. A runtime_env would do the same but needs new processes: about 1 CPU second more.
            **environment(self.threads),
            "RAY_USAGE_STATS_ENABLED": "0",
            **own_token(),
        }
        with environment_for_ray(variables):
            refresh_authentication()
            try:
                with lean_start(workers) as lean:
                    self._init(cpus)
            except Exception:
                if not lean:
                    raise
                see_gone([process for started in self._started for process in with_descendants(started)])
                self._init(cpus)

    def _init(self, cpus: int) -> None:
        import ray

        terminate = signal.getsignal(signal.SIGTERM)  # Ray puts its own handler there, with a banner
        try:
            with quiet():
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    object_store_memory=self._store_bytes,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=str(self._scratch.path),
                    **OPTIONS,
                )
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminate)
            self._started = children_of_ray(self._scratch.path)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
