"""A running cluster for a soak: a head with two CPUs, one held by another job, and a node that comes and goes."""

import contextlib
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import measure
import psutil
from running_head import free_port, running_head

HOLDER = Path(__file__).parent / "cpu_holder.py"
HOLD_TIMEOUT_S = 60
RAY = str(Path(sys.executable).with_name("ray"))


class SoakCluster:
    """It is started when it is first asked for, all of it on this machine. Close it."""

    def __init__(self, env: Mapping[str, str], scratch: Path) -> None:
        self._env = env
        self._scratch = scratch
        self._stack = contextlib.ExitStack()
        self._address: str | None = None
        self._own: set[psutil.Process] = set()
        self._holder: subprocess.Popen[str] | None = None
        self._node: Node | None = None

    @property
    def address(self) -> str:
        if self._address is None:
            before = set(psutil.Process().children())
            self._address = self._stack.enter_context(running_head(2, self._env, self._scratch))
            self._holder = subprocess.Popen(
                [sys.executable, str(HOLDER), self._address],
                env=dict(self._env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._stack.callback(self._end_holder, self._holder)
            self._own = set(psutil.Process().children()) - before
        return self._address

    @contextlib.contextmanager
    def one_cpu(self) -> Iterator["Node"]:
        """Have one CPU free; give a node, which is not started yet, and see it gone at the end."""
        node = self._node = Node(self.address, self._env, self._scratch / "node.log")
        try:
            self._tell_holder("hold")
            yield node
        finally:
            node.end()
            self._node = None

    def free_cpu(self) -> None:
        """Have two CPUs free."""
        self._tell_holder("free")

    def processes(self) -> set[psutil.Process]:
        """Return the processes of the head, the other job and the node: not strays."""
        found = {process for root in self._own for process in measure.tree(root.pid)}
        return found | (self._node.processes() if self._node else set())

    def close(self) -> None:
        self._stack.close()

    def _tell_holder(self, word: str) -> None:
        holder = self._holder
        assert holder is not None and holder.stdin is not None and holder.stdout is not None
        holder.stdin.write(f"{word}\n")
        holder.stdin.flush()
        if not select.select([holder.stdout], [], [], HOLD_TIMEOUT_S)[0] or not holder.stdout.readline():
            raise measure.CommandFailedError(f"no answer to {word!r}: has a run left a CPU of the cluster taken?")

    @staticmethod
    def _end_holder(holder: subprocess.Popen[str]) -> None:
        assert holder.stdin is not None
        holder.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(10)
        holder.kill()
        holder.wait()


class Node:
    """A Ray node with one CPU."""

    def __init__(self, address: str, env: Mapping[str, str], log: Path) -> None:
        self._command = [
            *(RAY, "start", f"--address={address}", "--block", "--num-cpus=1", "--node-ip-address=127.0.0.1"),
            *(
                "--disable-usage-stats",
                "--object-store-memory=100000000",
                f"--dashboard-agent-listen-port={free_port()}",
            ),
        ]
        self._env = env
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._family: set[psutil.Process] = set()

    @property
    def started(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, env=dict(self._env), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def processes(self) -> set[psutil.Process]:
        if self._process is not None:
            self._family |= measure.tree(self._process.pid)
        return self._family

    def kill(self) -> bool:
        """Kill its raylet, as a machine's crash does; say whether there was one."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == "raylet":
                    process.kill()
                    return True
        return False

    def terminate(self) -> bool:
        """Ask it to go; say whether it was there."""
        self.processes()
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.send_signal(signal.SIGTERM)
        return True

    def end(self) -> None:
        """See it gone, frozen workers included."""
        if self._process is not None:
            self.terminate()
            measure.end(self.processes(), grace_s=10)
            self._process.wait()
