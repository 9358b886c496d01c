"""The groups that need no Ray, by the contract: the one of this process, and the double that tests of failures use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.group import GroupContract, SeveralWorkersContract
from dray.elastic.alone import Alone
from dray.elastic.group import Group
from dray.elastic.watch import Watch
from dray.events.telemetry import Telemetry
from factor_group import FactorGroup


class TestAlone(GroupContract):
    @pytest.fixture
    def group(self) -> Iterator[Group]:
        watch = Watch(Telemetry([]), shared=True)
        alone = Alone(1, watch, on_copy=lambda copy: None, learner="factorization")
        yield alone
        alone.close()


class TestFactorGroup(SeveralWorkersContract):
    @pytest.fixture
    def group(self) -> Iterator[Group]:
        double = FactorGroup()
        yield double
        double.close()

    def lose(self, group: Group, worker: int, pid: int) -> None:
        assert isinstance(group, FactorGroup)
        group.lose(worker)
