"""The words of docs/glossary.md: what it replaced is in no module of dray."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import dray

ROOT = Path(dray.__file__).parent
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"

GONE = re.compile(
    r"ring_?master|foreman|crew|deliberat(e|ion)|keeper|conduct(or)?|deals?|dealt|dealing|happenings?|stand(s|ing|ings)?|"
    r"goodbye|mourn(s|ed)?|bury|buries|buried|newcomers?|heirs?|who(ever|m)?|(some|no|any|every)body|he|him|"
    r"let_go|numbers_that_are_none"
)
"""In identifiers, comments, docstrings and messages alike."""

CLASSES = frozenset(("Place", "Places", "OutputPlace", "Part", "OwnPart", "Share", "Stand", "Stands", "Copy", "Copies"))
"""Names of classes that said too little, or the same of several things."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_in(text: str) -> set[str]:
    """Return the words of a text, one by one and two and four together, those inside names too, in lower case.

    >>> sorted(words_in("RingMaster.own_part"))
    ['master', 'master_own', 'own', 'own_part', 'part', 'ring', 'ring_master', 'ring_master_own_part']
    """
    words = [word.lower() for word in _WORD.findall(text)]
    return {"_".join(words[at : at + many]) for many in (1, 2, 4) for at in range(len(words) - many + 1)}


def gone_from(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    classes = {node.name.lstrip("_") for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    words = words_in(path.stem) | words_in(text)
    return {word for word in words if GONE.fullmatch(word)} | (classes & CLASSES)


def found() -> dict[str, set[str]]:
    """Return the replaced words of each module; migrations speak of what was."""
    modules = [path for path in sorted(ROOT.rglob("*.py")) if "migrat" not in path.name]
    return {path.relative_to(ROOT).as_posix(): gone_from(path) for path in modules}


def test_words_that_the_glossary_replaced_are_gone() -> None:
    assert not {file: words for file, words in found().items() if words}


def test_the_glossary_is_one_page_and_has_no_word_twice() -> None:
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    words = [line.split("|")[1].strip() for line in lines if line.startswith("| ") and not line.startswith("| word |")]
    assert len(words) == len(set(words))
    assert len(lines) <= 100
