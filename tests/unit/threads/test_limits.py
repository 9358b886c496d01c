from __future__ import annotations

from pathlib import Path

from dray.threads.cgroups import MemoryLimit, cpu_quota, memory_limits, throttled_s
from dray.threads.limits import affinity, cpus_of_this_process


def machine(root: Path, cgroup: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_no_cgroup_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert cpus_of_this_process(tmp_path) == affinity()


def test_a_version_2_quota_is_read(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/a\n", a__cpu_DOT_max="150000 100000\n")
    assert cpu_quota(root) == 1.5


def test_max_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(machine(tmp_path, "0::/\n", cpu_DOT_max="max 100000\n")) is None


def test_the_tightest_enclosing_group_counts(tmp_path: Path) -> None:
    files = {"a__b__cpu_DOT_max": "max 100000", "a__cpu_DOT_max": "50000 100000", "cpu_DOT_max": "400000 100000"}
    assert cpu_quota(machine(tmp_path, "0::/a/b\n", **files)) == 0.5


def test_a_path_of_the_host_falls_back_to_the_containers_own_group(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/kubepods/pod1/c1\n", cpu_DOT_max="200000 100000")
    assert cpu_quota(root) == 2.0


def test_a_version_1_quota_is_read_beside_other_controllers(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct__docker__x__cpu_DOT_cfs_quota_us": "300000\n",
        "cpu,cpuacct__docker__x__cpu_DOT_cfs_period_us": "100000\n",
        "cpu,cpuacct__cpu_DOT_cfs_quota_us": "-1\n",
        "cpu,cpuacct__cpu_DOT_cfs_period_us": "100000\n",
    }
    root = machine(tmp_path, "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n", **files)
    assert cpu_quota(root) == 3.0


def test_throttling_is_read_from_both_versions(tmp_path: Path) -> None:
    two = machine(tmp_path / "2", "0::/\n", cpu_DOT_stat="usage_usec 9\nnr_throttled 4\nthrottled_usec 2500000\n")
    one = machine(
        tmp_path / "1", "3:cpu:/\n", cpu__cpu_DOT_stat="nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n"
    )
    assert throttled_s(two) == throttled_s(one) == 2.5
    assert throttled_s(tmp_path) == 0.0


def test_no_cgroup_is_no_limit_of_memory(tmp_path: Path) -> None:
    assert memory_limits(tmp_path) == []


def test_memory_limits_of_all_enclosing_groups_of_version_2_are_read(tmp_path: Path) -> None:
    files = {
        "a__b__memory_DOT_max": "max\n",
        "a__b__memory_DOT_current": "300\n",
        "a__memory_DOT_max": "1000\n",
        "a__memory_DOT_current": "900\n",
        "a__memory_DOT_stat": "anon 5\ninactive_file 200\n",
        "memory_DOT_max": "5000\n",
        "memory_DOT_current": "1500\n",
    }
    assert memory_limits(machine(tmp_path, "0::/a/b\n", **files)) == [MemoryLimit(1000, 700), MemoryLimit(5000, 1500)]


def test_memory_limits_of_version_1_are_read(tmp_path: Path) -> None:
    files = {
        "memory__docker__x__memory_DOT_limit_in_bytes": "2000\n",
        "memory__docker__x__memory_DOT_usage_in_bytes": "900\n",
        "memory__docker__x__memory_DOT_stat": "inactive_file 1\ntotal_inactive_file 400\n",
        "memory__memory_DOT_limit_in_bytes": "9223372036854771712\n",
        "memory__memory_DOT_usage_in_bytes": "7000\n",
    }
    root = machine(tmp_path, "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n", **files)
    assert memory_limits(root) == [MemoryLimit(2000, 500), MemoryLimit(9223372036854771712, 7000)]


def test_a_memory_limit_whose_path_is_the_hosts_falls_back_to_the_containers_own_group(tmp_path: Path) -> None:
    files = {"memory_DOT_max": "2000", "memory_DOT_current": "500"}
    assert memory_limits(machine(tmp_path, "0::/kubepods/pod1/c1\n", **files)) == [MemoryLimit(2000, 500)]
