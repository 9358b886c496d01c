"""A finished run to go on from: its ids, its pairs, its factors. Everything is by the new run's indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.errors import ConfigError
from dray.learners.factorization import explicit
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.factorization.events import UnitRows
from dray.learners.factorization.explicit import FactorBlock, Scale, SideName
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.factors import Floats, Ints
from dray.learners.factorization.implicit_share import ImplicitPlan, PartFactors
from dray.learners.factorization.known import Found, Known, found_before
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.opening import open_recommender
from dray.runs.directory import open_run
from dray.runs.files import MANIFEST, RunFiles
from dray.runs.trained_on import TrainedOn, trained_on
from dray.storage import StorageOptions


@dataclass(frozen=True)
class Previous:
    """An earlier model, and where its users and items are now."""

    model: FactorModel
    trained_on: tuple[TrainedOn, ...] = ()
    """What it has seen, run by run."""

    def found(self) -> Found:
        """Return its ids, as if they had been read."""
        counts = np.diff(self.model.seen.starts)
        return found_before(self.model.user_ids, counts, self.model.item_ids, self.model.item_counts)

    def pairs(self, known: Known, unit_of_user: Ints, units: int) -> list[tuple[UnitRows, ...]]:
        """Return its pairs by unit."""
        seen = self.model.seen
        users = np.repeat(_indices(self.model.user_ids, known.user_ids), np.diff(seen.starts))
        items = _indices(self.model.item_ids, known.item_ids)[seen.items]
        values = np.ones(len(items), np.float32) if seen.values is None else seen.values
        order = np.argsort(unit_of_user[users], kind="stable")
        edges = np.searchsorted(unit_of_user[users[order]], np.arange(units + 1))
        as_of = self.model.as_of
        return [
            (UnitRows(users[rows], items[rows], values[rows], old=True, as_of=as_of),)
            for rows in (order[edges[unit] : edges[unit + 1]] for unit in range(units))
        ]

    def blocks(self, known: Known, plan: ExplicitPlan, scale: Scale) -> tuple[list[FactorBlock], list[FactorBlock]]:
        """Return all blocks of users and of items; new ones begin as in a new run."""
        sides: list[list[FactorBlock]] = []
        for side in explicit.SIDES:
            factors, bias, known_before = self._by_index(side, known)
            own = explicit.side_of(plan.layout, side)
            blocks = []
            for unit in range(plan.units):
                block = explicit.first_block(side, plan.layout, unit, plan.settings, scale)
                rows = own.order[slice(*own.span(unit))]
                there = known_before[rows]
                block.factors[there], block.bias[there] = factors[rows[there]], bias[rows[there]]
                blocks.append(block)
            sides.append(blocks)
        return sides[0], sides[1]

    def parts(self, known: Known, plan: ImplicitPlan) -> tuple[list[PartFactors], list[PartFactors]]:
        sides: list[list[PartFactors]] = []
        for side in explicit.SIDES:
            factors, _, known_before = self._by_index(side, known)
            parts = []
            for unit in range(plan.units):
                rows = explicit.side_of(plan.layout, side).order[slice(*plan.span(side, unit))]
                own, there = plan.first(side, unit), known_before[rows]
                own[there] = factors[rows[there]]
                parts.append(PartFactors.of(own))
            sides.append(parts)
        return sides[0], sides[1]

    def _by_index(self, side: SideName, known: Known) -> tuple[Floats, Floats, Any]:
        """Return factors and biases by the new indices, and which of them the earlier model knows."""
        model, f = self.model, self.model.factors
        before, now = (model.user_ids, known.user_ids) if side == "users" else (model.item_ids, known.item_ids)
        old_factors, old_bias = (f.users, f.user_bias) if side == "users" else (f.items, f.item_bias)
        trained = np.diff(model.seen.starts) > 0 if side == "users" else model.item_counts > 0
        indices = _indices(before, now)[trained]
        factors = np.zeros((len(now), old_factors.shape[1]), np.float32)
        bias, there = np.zeros(len(now), np.float32), np.zeros(len(now), np.bool_)
        factors[indices], bias[indices], there[indices] = old_factors[trained], old_bias[trained], True
        return factors, bias, there


def read_previous(config: FactorizationConfig, storage: StorageOptions) -> Previous | None:
    """Return the run to go on from, if there is one, after looking whether it fits."""
    if config.continue_from is None:
        return None
    model = open_recommender(config.continue_from, storage).model
    model.verify()  # all of it is read in any case, and its indices are trusted from here on
    if model.kind != config.kind:
        raise ConfigError(
            f"The earlier run learned from {_WORDS[model.kind]}, this one is to learn from {_WORDS[config.kind]}.",
            fix=f"Give {'--rating' if model.kind == 'explicit' else '--event'} as the earlier run did.",
        )
    asked = config.params.get("factors")
    if asked is not None and int(asked) != model.describe()["factors"]:
        raise ConfigError(
            f"The earlier run has {model.describe()['factors']} factors, not {asked}.", fix="Leave factors out."
        )
    is_run = RunFiles(config.continue_from, storage).exists(MANIFEST)  # else the directory of a model
    return Previous(model, trained_on(open_run(config.continue_from, storage)) if is_run else ())


_WORDS = {"explicit": "ratings", "implicit": "events"}


def _indices(ids: pa.Array, among: pa.Array) -> Ints:
    """Return where each id is among the new ones, which hold them all."""
    found: Ints = pc.index_in(ids, value_set=among).to_numpy(zero_copy_only=False).astype(np.int32)
    return found
