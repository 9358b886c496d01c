"""Every reader of bytes that dray did not write just now is given changed copies of real ones.

No crash, no hang, no growth: a DrayError, or an answer. DRAY_FUZZ_CASES and DRAY_FUZZ_SEED say how many and which;
`make fuzz` has 200,000 for each.
"""

from __future__ import annotations

import os
from importlib import import_module

import pytest

from security.attack import failures

MODULES = ("models", "runs", "ingests", "texts", "clusters", "network")
NAMES = [f"{module}.{name}" for module in MODULES for name in import_module(f"security.parsers.{module}").PARSERS]
CASES = int(os.environ.get("DRAY_FUZZ_CASES", "2000"))
SEED = int(os.environ.get("DRAY_FUZZ_SEED", "0"))


@pytest.mark.timeout(max(300, CASES // 10))
@pytest.mark.parametrize("name", NAMES)
def test_changed_bytes_are_read_or_refused_in_words(name: str) -> None:
    found = failures(name, CASES, SEED)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("broken.raises", "KeyError"),
        ("broken.dies", "SIGSEGV"),
        ("broken.hangs", "it hangs"),
        ("broken.grows", "MiB for"),
        ("broken.waits", "it hangs"),
        ("broken.behind_a_seal", "Error"),
    ],
)
def test_a_reader_that_is_broken_is_noticed(name: str, word: str) -> None:
    found = failures(name, 60, SEED, most=1)
    assert found
    assert word in found[0]
    assert "again: " in found[0]


def test_a_reader_that_discards_what_is_real_is_noticed() -> None:
    (found,) = failures("broken.discards", 60, SEED)
    assert "broken.discards cannot read what is real" in found
    assert "was read as None" in found
