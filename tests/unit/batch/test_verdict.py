"""Whether distributing pays."""

from __future__ import annotations

import json

import pytest

from dray.batch.verdict import Cost, judge


def cost(item_s: float, moving_s: float = 1e-6, item_bytes: float = 100) -> Cost:
    return Cost(100, item_s, moving_s, item_bytes)


def test_a_long_function_is_worth_all_cores_of_the_machine() -> None:
    verdict = judge(cost(0.1), 1000, processes=4)
    assert verdict.here_s == pytest.approx(100)
    assert verdict.machine_s == pytest.approx(25, abs=0.2)
    assert verdict.recommended == "processes"
    assert verdict.cluster_s is None


def test_what_is_over_at_once_is_not_worth_a_process() -> None:
    assert judge(cost(1e-6), 1000, processes=4).recommended == "here"


def test_items_that_cost_more_to_move_than_to_run_stay() -> None:
    verdict = judge(cost(0.001, moving_s=0.01), 100_000, processes=4)
    assert verdict.recommended == "here"
    assert "moving" in verdict.why


def test_a_large_cluster_is_worth_hours_but_not_seconds() -> None:
    assert judge(cost(1.0), 100_000, processes=4, cluster_cpus=100).recommended == "cluster"
    assert judge(cost(0.01), 400, processes=4, cluster_cpus=100).recommended == "processes"


def test_a_cluster_behind_a_network_does_not_help_with_large_items() -> None:
    verdict = judge(cost(0.05, item_bytes=100e6), 1000, processes=4, cluster_cpus=100)
    assert verdict.recommended == "processes"


def test_few_long_items_take_whole_rounds() -> None:
    assert judge(cost(10.0), 5, processes=4).machine_s == pytest.approx(20, abs=0.2)


def test_without_a_number_of_items_the_rates_are_compared() -> None:
    verdict = judge(cost(0.1), None, processes=4, cluster_cpus=100)
    assert verdict.recommended == "cluster"
    assert "not known" in str(verdict)


def test_it_reads_well_and_is_json() -> None:
    verdict = judge(cost(0.0021), 50_000, processes=2, cluster_cpus=64)
    text = str(verdict)
    assert "2.1 ms" in text
    assert "50,000 items" in text
    assert "this machine" in text
    assert "64 CPUs" in text
    assert json.loads(json.dumps(verdict.to_json()))["recommended"] == verdict.recommended


def test_the_times_are_what_is_said_of_them() -> None:
    verdict = judge(cost(0.5, moving_s=0.001, item_bytes=1000), 40, processes=8, cluster_cpus=16.5)
    assert verdict.here_s == 20.0
    assert verdict.machine_s == pytest.approx(0.1 + 5 * 0.5)  # whole rounds
    assert verdict.cluster_s == pytest.approx(3.0 + 3 * 0.5)
    assert judge(cost(0.5), 40, processes=8, cluster_cpus=16, joined=True).cluster_s == pytest.approx(1.5)
    # From 100 items a slot on, rounds do not matter; then moving the items may take longest, or the network.
    assert judge(cost(0.01), 801, processes=8).machine_s == pytest.approx(0.1 + 801 / 8 * 0.01)
    assert judge(cost(0.01), 799, processes=8).machine_s == pytest.approx(0.1 + 100 * 0.01)
    assert judge(cost(0.01, moving_s=0.002), 1000, processes=8).machine_s == pytest.approx(0.1 + 2.0)
    slow = judge(cost(0.01, moving_s=0.002), 1000, processes=8, cluster_cpus=1000, joined=True)
    assert slow.cluster_s == pytest.approx(2.0)
    wide = judge(cost(0.01, item_bytes=1e6), 1000, processes=8, cluster_cpus=1000, joined=True)
    assert wide.cluster_s == pytest.approx(5.0)


@pytest.mark.parametrize("joined", [True, False])
def test_what_has_no_end_is_judged_without_the_start_for_a_thousand(joined: bool) -> None:
    verdict = judge(cost(0.1), None, processes=10, cluster_cpus=100, joined=joined)
    assert (verdict.here_s, verdict.machine_s, verdict.cluster_s) == (100.0, pytest.approx(10.0), pytest.approx(1.0))
    assert judge(cost(0.1), None, processes=10).cluster_s is None


def test_a_less_simple_way_must_be_a_fifth_faster() -> None:
    def recommended(processes: int, cpus: float | None = None) -> tuple[str, str]:
        verdict = judge(cost(1.0), 60_000, processes, cpus)
        return verdict.recommended, verdict.why

    assert recommended(1) == ("here", "it is over before other processes would have helped.")
    assert recommended(2) == ("processes", "2.0 times as fast as one process.")
    assert recommended(2, 2) == ("processes", "2.0 times as fast as one process; a cluster would not gain enough.")
    assert recommended(10, 11) == ("processes", "10.0 times as fast as one process; a cluster would not gain enough.")
    assert recommended(10, 20) == ("cluster", "2.0 times as fast as this machine.")
    assert recommended(1, 20) == ("cluster", "20.0 times as fast as this machine.")


def test_moving_is_blamed_when_it_takes_as_long_as_running_on_all_processes() -> None:
    assert "moving the items costs" in judge(cost(0.004, moving_s=0.0041), 1000, processes=1).why
    assert "it is over" in judge(cost(0.0004, moving_s=0.0001), 10, processes=4).why
    assert "moving the items costs" in judge(cost(0.0004, moving_s=0.00011), 10, processes=4).why


def test_a_verdict_is_told_whole() -> None:
    assert str(judge(Cost(1200, 0.0021, 35e-6, 2_000), 50_000, processes=2, cluster_cpus=64)).splitlines() == [
        "One item      2.1 ms in the function (mean of 1,200), 35 us and 2.0 kB to move it and its result",
        "For 50,000 items:",
        "  one process   105.0 s",
        "  this machine  52.6 s (2 processes)",
        "  the cluster   4.8 s (64 CPUs)",
        'Recommended   where="cluster": 11.1 times as fast as this machine.',
    ]
    told = str(judge(Cost(1, 1.0, 0.001, 10), None, processes=2))
    assert "1.0 s in the function (mean of 1), 1 ms and 10 B to move it" in told
    assert "For 1,000 items (how many there are is not known):" in told
    assert "  the cluster   no cluster is named or joined (cluster=)" in told
