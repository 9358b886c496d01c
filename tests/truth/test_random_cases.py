"""Random cases, all of them compared with plain XGBoost: 200 of a fixed seed, or as many as DRAY_TRUTH_CASES says.

`make truth` runs 5,000 of a random seed, which it prints; DRAY_TRUTH_SEED repeats them. A case that fails is printed as
`Case(...)`; `check` repeats it alone. DRAY_TRUTH_SHRINK=1 looks for a simpler case that fails too: that takes minutes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from truth.cases import Case, cases
from truth.checking import check

CASES = int(os.environ.get("DRAY_TRUTH_CASES", "200"))
SEED = int(os.environ.get("DRAY_TRUTH_SEED", "0"))
AT_ONCE = 10
"""With more, hypothesis begins to draw cases that resemble earlier ones."""
SHRINK = (Phase.shrink,) if os.environ.get("DRAY_TRUTH_SHRINK") else ()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chunk", range((CASES + AT_ONCE - 1) // AT_ONCE))
def test_what_is_told_is_what_is_predicted_and_what_plain_xgboost_says(chunk: int) -> None:
    @seed(SEED * 1_000_003 + chunk)
    @settings(
        max_examples=min(AT_ONCE, CASES - chunk * AT_ONCE),
        phases=(Phase.generate, *SHRINK),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.normal,
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(case=cases())
    def holds(case: Case) -> None:
        with tempfile.TemporaryDirectory() as place:
            check(case, Path(place))

    holds()
