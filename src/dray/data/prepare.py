"""Everything workers must agree on before they load: roles, features, categories, the split."""

from __future__ import annotations

from dataclasses import dataclass

from dray.data.features import Column
from dray.data.split import Split
from dray.storage import StorageOptions


@dataclass(frozen=True)
class Preparation:
    """Decided once, by the driver; sent to every worker; small."""

    features: tuple[Column, ...]
    label: Column
    weight: str | None
    group: str | None
    split: Split | None
    label_sample: Split
    """Rows whose labels the driver sees, to estimate the intercept."""
    storage: StorageOptions
