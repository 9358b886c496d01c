"""Show what a model goes by: the share of each feature in all that its trees have gained.

python what_matters.py RUN
python what_matters.py --same RUN OTHER     # are they the same model?
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dray

BAR = 40


def show(run: str) -> None:
    gains = dray.load(run).booster.get_score(importance_type="total_gain")
    total = sum(gains.values())
    for name, gain in sorted(gains.items(), key=lambda item: -item[1]):
        print(f"  {name:<20} {gain / total:4.0%} {'█' * round(BAR * gain / total)}")


def compare(*runs: str) -> None:
    digests = [json.loads(Path(run, "run.json").read_text())["result"]["model_digest"] for run in runs]
    if len(set(digests)) > 1:
        sys.exit(f"The models differ: {', '.join(digests)}")
    print(f"  one digest for both: {digests[0]}")


if __name__ == "__main__":
    if sys.argv[1] == "--same":
        compare(*sys.argv[2:])
    else:
        show(sys.argv[1])
