"""A real PostgreSQL for the tests: its own directory, port and password; not run as root, who it refuses."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

USER = "dray"
PASSWORD = "a secret/with:odd@characters"


@dataclass(frozen=True)
class PostgresServer:
    port: int
    directory: Path

    @property
    def address(self) -> str:
        """The address as a user writes it, with the password in a variable."""
        return f"postgresql://{USER}:${{DRAY_TEST_PASSWORD}}@127.0.0.1:{self.port}/postgres"


def program(name: str) -> Path | None:
    """Return a program of PostgreSQL's; Debian keeps some of them off the path."""
    found = shutil.which(name)
    below = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return Path(found) if found else next(iter(below), None)


@contextmanager
def serve_postgres() -> Iterator[PostgresServer]:
    directory = Path(tempfile.mkdtemp(prefix="dray-postgres-"))
    owner = "nobody" if os.getuid() == 0 else None
    if owner:
        shutil.chown(directory, owner)
        directory.chmod(0o700)
    try:
        password = directory / "password"
        password.write_text(PASSWORD)
        if owner:
            shutil.chown(password, owner)
        data = directory / "data"
        access = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password}"]
        made = _run([str(program("initdb")), f"--pgdata={data}", *access, "--no-sync", "--encoding=UTF8"], owner)
        if made.wait(timeout=120):
            raise RuntimeError(f"initdb failed: {made.stdout.read().decode() if made.stdout else ''}")
        port = _free_port()
        settings = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={directory}"]
        server = _run([str(program("postgres")), "-D", str(data), "-p", str(port), *settings], owner)
        try:
            _wait_until_ready(server, data)
            yield PostgresServer(port, directory)
        finally:
            server.terminate()
            server.wait(timeout=30)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: list[str], owner: str | None) -> subprocess.Popen[bytes]:
    identity = {"user": owner, "group": _group_of(owner), "extra_groups": []} if owner else {}
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env={"PATH": os.defpath}, **identity
    )


def _group_of(owner: str) -> int:
    import pwd

    return pwd.getpwnam(owner).pw_gid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(server: subprocess.Popen[bytes], data: Path, timeout_s: float = 60.0) -> None:
    """Return when it takes connections: it listens before that. It says so in the last line of its pid file."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"postgres ended with {server.returncode}")
        with suppress(OSError, IndexError):
            if (data / "postmaster.pid").read_text().split()[-1] == "ready":
                return
        time.sleep(0.05)
    raise RuntimeError(f"postgres is not ready after {timeout_s:.0f} s")
