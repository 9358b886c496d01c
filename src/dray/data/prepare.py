"""Everything workers must agree on before they load: roles, features, categories, the split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dray.data.features import Column
from dray.data.kept_rows import KeptRows
from dray.data.split import PickedRows, Split
from dray.storage import StorageOptions

MissingLabel = Literal["drop", "error"]


@dataclass(frozen=True)
class Preparation:
    """Decided once, by the driver; sent to every worker; small."""

    features: tuple[Column, ...]
    label: Column
    weight: str | None
    group: str | None
    split: Split | PickedRows | None
    label_sample: Split
    """Rows whose labels the driver sees, to estimate the intercept."""
    storage: StorageOptions
    missing_label: MissingLabel = field(default="drop", kw_only=True)
    """What becomes of rows without a label: they are left out, or the learner gets them, and refuses them."""
    kept: KeptRows | None = field(default=None, kw_only=True, compare=False)
    """Rows that this process has read already."""
