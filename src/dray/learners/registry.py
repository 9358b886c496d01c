"""Which learners there are: dray's own, and those that other packages register. The one place that names learners.

Another package adds a learner by an entry point of the group `dray.learners`, whose name is the word after `--model`:

    [project.entry-points."dray.learners"]
    ridge = "my_package.ridge:RIDGE"
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from dray.errors import ConfigError, nearest
from dray.learners.learner import Learner

GROUP = "dray.learners"
DEFAULT = "xgboost"
RecommenderName = Literal["factorization"]
"""Those of dray's own that recommend, for type checkers: `dray.train` returns another result for them."""
_OWN = {
    "xgboost": "dray.learners.xgboost.learner:XGBOOST",
    "factorization": "dray.learners.factorization.learner:FACTORIZATION",
}


def names() -> list[str]:
    """Return the names of all learners, dray's own first."""
    return [*_OWN, *sorted(_others().keys() - _OWN.keys())]


@cache
def find(name: str) -> Learner:
    """Return a learner by its name. Loads its description, not its library."""
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        learner: Learner = getattr(import_module(module), attribute)
        return learner
    if (entry := _others().get(name)) is None:
        raise ConfigError(f'There is no model "{name}".{nearest(name, names())}', fix=f"Known: {', '.join(names())}.")
    try:
        found: Learner = entry.load()
    except Exception as error:
        raise ConfigError(
            f'The model "{name}" of {entry.value} cannot be loaded: {type(error).__name__}: {error}',
            fix="Repair or remove the package that registers it.",
        ) from error
    if getattr(found, "name", None) != name:
        raise ConfigError(
            f'{entry.value} is registered as the model "{name}", and is named "{getattr(found, "name", "")}".',
            fix="Give both the same name.",
        )
    return found


def available() -> list[Learner]:
    """Return all learners but those of other packages that cannot be loaded: `find` says why."""
    found = []
    for name in names():
        with suppress(ConfigError):
            found.append(find(name))
    return found


def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
