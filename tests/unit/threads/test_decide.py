from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import ClusterError, ConfigError
from dray.threads.decide import (
    available_cpus,
    share_threads,
    threads_in_process,
    threads_on_this_machine,
    threads_per_worker,
    workers_that_fit,
)


@pytest.mark.parametrize(
    ("affinity", "quota", "cpus"), [(8, None, 8), (8, 2.5, 2), (8, 0.3, 1), (2, 6.0, 2), (0, None, 1), (4, 4.0, 4)]
)
def test_a_process_has_the_cpus_of_its_affinity_within_its_quota(affinity: int, quota: float | None, cpus: int) -> None:
    assert available_cpus(affinity, quota) == cpus


def test_one_process_takes_all_cpus_unless_told_otherwise() -> None:
    assert threads_in_process(8, None) == 8
    assert threads_in_process(8, 3) == 3
    with pytest.raises(ConfigError, match="--threads is 0"):
        threads_in_process(8, 0)


@pytest.mark.parametrize(
    ("nodes", "workers", "threads"),
    [([8], 2, 4), ([7], 2, 3), ([8, 8], 3, 4), ([4, 2], 2, 2), ([16, 1], 3, 5), ([2], 2, 1)],
)
def test_workers_get_the_most_threads_with_which_all_fit(nodes: list[float], workers: int, threads: int) -> None:
    assert threads_per_worker(nodes, workers, None) == threads


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.integers(1, 12))
def test_one_thread_more_would_not_fit(nodes: list[int], workers: int) -> None:
    if sum(nodes) < workers:
        with pytest.raises(ClusterError):
            threads_per_worker(nodes, workers, None)
        return
    threads = threads_per_worker(nodes, workers, None)
    assert workers_that_fit(nodes, threads) >= workers > workers_that_fit(nodes, threads + 1)


def test_a_worker_is_not_spread_over_nodes() -> None:
    with pytest.raises(ClusterError, match=r"need 6 CPUs; the cluster has 8 on 4 nodes") as caught:
        threads_per_worker([2, 2, 2, 2], 2, 3)
    assert "--threads 2" in caught.value.fix


def test_a_cluster_without_nodes_fits_nobody() -> None:
    with pytest.raises(ClusterError):
        threads_per_worker([], 1, None)


def test_more_cpus_asked_than_there_are_is_refused_with_both_numbers() -> None:
    with pytest.raises(ClusterError, match=r"2 workers of 4 threads need 8 CPUs; there are 2") as caught:
        threads_on_this_machine(2, 2, 4)
    assert "--threads 1" in caught.value.fix


def test_up_to_twice_as_many_workers_as_cpus_share_cores_and_are_told_so() -> None:
    decision = threads_on_this_machine(2, 4, None)
    assert decision.threads == 1
    assert "share" in decision.reasons[0]
    with pytest.raises(ClusterError, match="5 workers"):
        threads_on_this_machine(2, 5, None)


def test_asking_for_threads_does_not_allow_sharing() -> None:
    with pytest.raises(ClusterError):
        threads_on_this_machine(2, 3, 1)


def test_the_cpus_of_this_machine_are_divided() -> None:
    assert threads_on_this_machine(8, 3, None).threads == 2
    assert threads_on_this_machine(8, 2, 3).threads == 3


@pytest.mark.parametrize(
    ("threads", "sizes", "shares"),
    [(4, [10], [4]), (4, [10, 10], [2, 2]), (4, [30, 10], [3, 1]), (5, [10, 10], [3, 2]), (1, [10, 10, 10], [1, 1, 1])],
)
def test_members_of_one_process_share_its_threads_by_rows_and_each_has_one(
    threads: int, sizes: list[int], shares: list[int]
) -> None:
    assert share_threads(threads, sizes) == shares


@given(st.integers(1, 64), st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_no_thread_is_left_over_or_used_twice(threads: int, sizes: list[int]) -> None:
    shares = share_threads(threads, sizes)
    assert min(shares) >= 1
    assert sum(shares) == max(threads, len(sizes))


def told(nodes: list[float], workers: int, asked: int | None) -> tuple[str, str]:
    with pytest.raises(ClusterError) as caught:
        threads_per_worker(nodes, workers, asked)
    return caught.value.what, caught.value.fix


def test_too_few_cpus_are_told_with_the_fix_that_helps() -> None:
    assert told([4], 2, 3) == (
        "2 workers of 3 threads need 6 CPUs; there are 4.",
        "Use --threads 2, or fewer workers, or add nodes.",
    )
    assert told([2, 1.5], 4, None) == (
        "4 workers of 1 thread need 4 CPUs; the cluster has 3.5 on 2 nodes (2, 1.5), and a worker lives on one node.",
        "Use --workers 3, or add nodes.",
    )
    assert told([2], 3, 4) == ("3 workers of 4 threads need 12 CPUs; there are 2.", "Use fewer threads, or add nodes.")
    assert told([], 1, None)[0] == (
        "1 workers of 1 thread need 1 CPU; the cluster has 0 on 0 nodes (none), and a worker lives on one node."
    )


def test_as_many_as_there_are_may_be_asked_for() -> None:
    assert threads_per_worker([4, 4], 2, 4) == 4
    assert threads_in_process(8, 8) == 8
    assert threads_in_process(0, None) == 1
    with pytest.raises(ClusterError) as caught:
        threads_in_process(1, 2)
    assert caught.value.what == "--threads 2, but this process may use 1 CPU."
    assert caught.value.fix == "Use --threads 1, or leave it out."


def test_a_part_of_a_cpu_holds_no_worker() -> None:
    assert workers_that_fit([7.5, 2.9, 0.5], 3) == 2


def test_a_decision_says_why() -> None:
    assert threads_on_this_machine(8, 3, None).reasons == ("2 threads each: 8 CPUs for 3 workers.",)
    assert threads_on_this_machine(2, 2, None).reasons == ("1 thread each: 2 CPUs for 2 workers.",)
    assert threads_on_this_machine(8, 2, 1).reasons == ("1 thread for each worker, as asked.",)
    assert threads_on_this_machine(1, 2, None).reasons == (
        "2 workers share 1 CPU: 1 thread each, and no faster than 1 would be.",
    )
    with pytest.raises(ClusterError) as caught:
        threads_on_this_machine(2, 5, None)
    assert caught.value.what == "5 workers on this machine, which has 2 CPUs."
    assert caught.value.fix == "Use --workers 2 (at most 4), or name a larger cluster: --cluster."
