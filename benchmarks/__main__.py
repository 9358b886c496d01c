"""Every benchmark in turn: `python benchmarks [--quick] [--data DIR]`; options go to each of them."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = (
    "startup",
    "ring",
    "training",
    "loading",
    "predicting",
    "scaling",
    "mapping",
    "ingest",
    "jobs",
    "factorization",
)

if __name__ == "__main__":
    here = Path(__file__).parent
    codes = [subprocess.call([sys.executable, str(here / f"{name}.py"), *sys.argv[1:]]) for name in BENCHMARKS]
    sys.exit(max(codes))
