"""Settings of the property tests: few examples, and no deadline on a busy machine."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # so that tests find ingest_rows.py in any import mode

settings.register_profile("quick", max_examples=40, deadline=None)
settings.load_profile("quick")
