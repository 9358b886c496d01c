"""`python -m dray`: the command where it is not on the PATH."""

from __future__ import annotations

import sys

from dray.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
