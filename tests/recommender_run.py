"""A finished run of model factorization, trained in this process, for those who ask one."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dray.learners.factorization import fold_in
from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.factors import Seen
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.ratings import Ratings
from dray.runs.directory import RunDirectory
from serial_factorization import fit_explicit, fit_implicit

USERS, ITEMS, PAIRS = 300, 80, 4_000
WEIGHTS = {"view": 1.0, "purchase": 5.0, "payment_failed": -2.0}
COLUMNS = {"user": "user_id", "item": "item_id"}


def make_model(kind: Literal["explicit", "implicit"] = "implicit", *, text: bool = True) -> FactorModel:
    """Return a model of users u000... (or 0...) and items i00... (or 0...), from the same pairs each time."""
    random = np.random.default_rng(0)
    keys = random.choice(USERS * ITEMS, PAIRS, replace=False)
    ratings = Ratings(
        (keys // ITEMS).astype(np.int32),
        (keys % ITEMS).astype(np.int32),
        random.integers(1, 6, PAIRS).astype(np.float32),
        pa.array([f"u{number:03}" for number in range(USERS)] if text else range(USERS)),
        pa.array([f"i{number:02}" for number in range(ITEMS)] if text else range(ITEMS)),
    )
    settings: dict[str, Any]
    if kind == "explicit":
        chosen = ExplicitSettings(factors=4, epochs=5)
        fit = fit_explicit(ratings, chosen)
        assert fit.scale is not None
        settings = {name: getattr(chosen, name) for name in ("regularization", "learning_rate", "epochs")}
        settings["unit"] = fit.scale.unit
    else:
        wanted = ImplicitSettings(factors=4, iterations=3)
        fit = fit_implicit(ratings, wanted)
        settings = {name: getattr(wanted, name) for name in fold_in.ALTERNATION}
    seen = Seen.of(ratings.users, ratings.items, USERS, ratings.values)
    return FactorModel.of(kind, fit.factors, ratings.user_ids, ratings.item_ids, seen, settings, as_of=1_000_000.0)


def write_run(
    location: str, kind: Literal["explicit", "implicit"] = "implicit", *, text: bool = True, **config: Any
) -> str:
    """Write a finished run; return its location. `config` changes what run.json says was asked for."""
    how = {"rating": "stars"} if kind == "explicit" else {"event": "type", "event_weights": WEIGHTS}
    asked = {"model": "factorization", **COLUMNS, **how, **config}
    directory = RunDirectory.create(location, config=asked)
    make_model(kind, text=text).save(directory.path("model"))
    directory.finish({"learner": "factorization"})
    directory.close()
    return location
