"""Whether distributing pays."""

from __future__ import annotations

import json

import pytest

from dray.mapping.verdict import Cost, judge


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
