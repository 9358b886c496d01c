"""What memory there is, by files as the kernel writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.batch import memory
from dray.threads.cgroups import available_memory

GB = 1_000_000_000


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A machine with 64 GB, 40 of them free, and no container."""
    (tmp_path / "proc/self").mkdir(parents=True)
    meminfo = f"MemTotal: {64 * GB // 1024} kB\nMemAvailable: {40 * GB // 1024} kB\nOdd:\n"
    (tmp_path / "proc/meminfo").write_text(meminfo)
    return tmp_path


def contain(kernel: Path, limit: str, used: int, stat: str) -> None:
    """Put the process into a group of version 2 at the root, as in most containers."""
    (kernel / "proc/self/cgroup").write_text("0::/\n")
    group = kernel / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(stat)


def test_without_a_container_it_is_the_machines(kernel: Path) -> None:
    assert available_memory(kernel) == (40 * GB, 64 * GB)


def test_a_container_without_a_limit_has_the_machines(kernel: Path) -> None:
    contain(kernel, "max", 10 * GB, "inactive_file 0\n")
    assert available_memory(kernel) == (40 * GB, 64 * GB)


def test_what_files_left_in_memory_is_free(kernel: Path) -> None:
    """A container that has read a large file: 9 of its 10 GB are in use, 8 of them by pages of that file."""
    contain(kernel, str(10 * GB), 9 * GB, f"anon {GB}\nactive_file 5\ninactive_file {8 * GB}\n")
    assert available_memory(kernel) == (9 * GB, 10 * GB)


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (10 * GB, 4 * GB, (6 * GB, 10 * GB)),
        (10 * GB, 11 * GB, (0, 10 * GB)),  # over its limit for a moment
        (100 * GB, 4 * GB, (40 * GB, 64 * GB)),  # more than the machine has
    ],
)
def test_the_smaller_of_machine_and_container_holds(
    kernel: Path, limit: int, used: int, expected: tuple[int, int]
) -> None:
    contain(kernel, str(limit), used, "anon 5\n")
    assert available_memory(kernel) == expected


def test_the_limit_of_a_group_that_encloses_the_containers_own_holds(kernel: Path) -> None:
    contain(kernel, "max", 1, "")
    (kernel / "proc/self/cgroup").write_text("0::/pod/c1\n")
    group = kernel / "sys/fs/cgroup/pod"
    (group / "c1").mkdir(parents=True)
    (group / "memory.max").write_text(f"{8 * GB}\n")
    (group / "memory.current").write_text(f"{3 * GB}\n")
    assert available_memory(kernel) == (5 * GB, 8 * GB)


@pytest.mark.parametrize("huge", ["9223372036854771712", "18446744073709551615"])
def test_version_1_without_a_limit_has_the_machines(kernel: Path, huge: str) -> None:
    (kernel / "proc/self/cgroup").write_text("9:memory:/x\n")
    group = kernel / "sys/fs/cgroup/memory/x"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(huge)
    (group / "memory.usage_in_bytes").write_text(f"{GB}\n")
    assert available_memory(kernel) == (40 * GB, 64 * GB)


@pytest.mark.parametrize("text", ["MemTotal: 5 kB\n", "MemAvailable: 5 kB\n"])
def test_a_kernel_that_does_not_tell_is_not_guessed(kernel: Path, text: str) -> None:
    (kernel / "proc/meminfo").write_text(text)
    assert available_memory(kernel) is None
    (kernel / "proc/meminfo").unlink()
    assert available_memory(kernel) is None


def test_memory_of_its_own_is_what_a_process_does_not_share() -> None:
    script = "x = bytearray(100_000_000); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        _, resident, shared, *_ = (int(field) for field in Path(f"/proc/{process.pid}/statm").read_text().split())
        assert shared > 0
        assert memory.own_bytes(process.pid) == (resident - shared) * os.sysconf("SC_PAGE_SIZE") > 100_000_000
        process.stdin.close()
    assert memory.own_bytes(process.pid) == 0  # gone
