from __future__ import annotations

import subprocess
import sys

CHECK = """
import sys
from dray.learners.lean import preload
preload()
assert "xgboost" in sys.modules, "the learner's library was not loaded"
import dray.training.train, pyarrow, numpy
pyarrow.array(numpy.arange(3)).to_numpy()
assert not {"pandas", "sklearn", "numba"} & set(sys.modules), "more was loaded"
import pandas
assert pandas.DataFrame({"x": [1]}).shape == (1, 1)
"""


def test_a_process_of_our_own_does_not_load_pandas_and_can_still_import_it() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
