"""What a process uses right now, read by itself when it is asked: no thread, no process, no CPU of its own."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """One reading. CPU seconds and bytes count from the start of the process and of the host."""

    host: str
    pid: int
    cpu_seconds: float
    memory_bytes: int
    host_cpu_percent: float
    sent_bytes: int
    received_bytes: int


class UsageReader:
    """Reads the usage of this process and its host. One thread at a time."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._host = socket.gethostname()
        psutil.cpu_percent()  # the first reading has nothing to compare with

    def read(self) -> Usage:
        times = self._process.cpu_times()
        network = psutil.net_io_counters()
        return Usage(
            host=self._host,
            pid=os.getpid(),
            cpu_seconds=times.user + times.system,
            memory_bytes=self._process.memory_info().rss,
            host_cpu_percent=psutil.cpu_percent(),
            sent_bytes=network.bytes_sent if network else 0,
            received_bytes=network.bytes_recv if network else 0,
        )
