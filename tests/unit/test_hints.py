"""What to do about an error can be done: every hint in the source is one that its commands, or its functions, take."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import dray
from dray import hints
from dray.data.sources.types import flag_of_type
from dray.errors import ConfigError, DrayError
from dray.hints import as_command, in_arguments, in_flags, speaks_python
from dray.learners.labels import SHORT_NAMES
from dray.learners.registry import available
from hints import COMMANDS, faults

ROOT = Path(dray.__file__).parent
JOBS = ("job submit", "train", "resume", "predict", "recommend", "map", "data ingest")
TRAINING = ("train", "resume")
CLUSTERS = ("cluster up", "cluster down", "cluster status", "cluster add", "cluster remove", "job submit")
SHOWN_BY: dict[str, tuple[str, ...]] = {
    "api.py": (),
    "cli/": tuple(COMMANDS),
    "batch/": ("predict", "recommend", "map", "data ingest"),
    "clusters/": ("train", "resume", "predict", "recommend", "map", "data ingest", *CLUSTERS),
    "config/": ("train", "resume", "job submit"),
    "data/describing/": ("train",),
    "data/describe.py": ("data describe",),
    "data/synthetic": ("data make",),
    "data/": ("train", "data describe", "data ingest"),
    "elastic/": TRAINING,
    "ingesting/": ("data ingest", "train"),
    "jobs/": (*JOBS, "job logs", "job status", "job stop", "job list"),
    "learners/factorization/predictor": ("predict",),
    "learners/table_predictor": ("predict",),
    "learners/xgboost/predictor": ("predict",),
    "learners/recommender": ("recommend",),
    "learners/": ("train",),
    "mapping/": ("map",),
    "predicting": ("predict",),
    "recommending/": ("recommend",),
    "runs/": ("train", "resume", "predict", "recommend", "runs"),
    "threads/": ("train",),
    "training/": TRAINING,
    "events/": TRAINING,
}
"""Which commands show the errors of which files: the longest beginning of a path counts."""


def texts(node: ast.AST) -> str:
    """Return a string as it would be, with 1 in the place of what is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "1"
    if isinstance(node, ast.JoinedStr):
        return "".join(texts(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return texts(node.left) + texts(node.right)
    return "1"


def hints_in_source() -> list[tuple[str, str]]:
    """Return (place, hint) of every `fix=`, and of every second text of a warning or a note."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = [word.value for word in node.keywords if word.arg == "fix"]
            if ast.unparse(node.func).rpartition(".")[2] in ("Warned", "Note", "_warn", "Verdict"):
                given += node.args[1:]
            for value in given:
                either = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                found += [
                    (f"{file}:{node.lineno}", text) for one in either if "--" in (text := texts(one)) or "dray " in text
                ]
    return found


HINTS = [(place, hint) for place, hint in hints_in_source() if "--1" not in hint and "dray 1" not in hint]


def shown_by(place: str) -> tuple[str, ...]:
    [*_, best] = sorted((start for start in SHOWN_BY if place.startswith(start)), key=len) or [""]
    return SHOWN_BY.get(best, tuple(COMMANDS))


@pytest.mark.parametrize(("place", "hint"), HINTS, ids=[place for place, _ in HINTS])
def test_every_hint_can_be_followed_on_the_command_line(place: str, hint: str) -> None:
    assert not faults(in_flags(hint), shown_by(place))


@pytest.mark.parametrize(("place", "hint"), HINTS, ids=[place for place, _ in HINTS])
def test_every_hint_names_arguments_in_python(place: str, hint: str) -> None:
    spoken = in_arguments(hint)
    outside = hints._PART.sub(lambda found: "" if found["command"] else found[0], spoken)
    assert "--" not in outside, spoken
    assert not [text for text in given_in(outside) if not is_python(text)], spoken


def given_in(spoken: str) -> list[str]:
    """Return the values of arguments that are dictionaries, lists or text, each with all that follows it."""
    return [spoken[found.end() :] for found in re.finditer(r"\b[a-z_]+=(?=[\[{\"'])", spoken)]


def is_python(text: str) -> bool:
    """Whether a text begins with a literal of Python in which nothing is empty."""
    for end in range(1, len(text) + 1):
        with suppress(SyntaxError, ValueError):
            value = ast.literal_eval(text[:end])
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            return "" not in ([inner] if isinstance(inner, str) else inner)
    return False


@pytest.mark.parametrize("name", ["x", "it's", 'so "called"', "a: b", "{x}", "back\\slash", "été", "1", "a, b"])
def test_a_column_of_any_name_is_named_in_a_shell_and_in_python(name: str) -> None:
    flag = flag_of_type(name, "double")
    assert yaml.safe_load(shlex.split(flag)[1].removeprefix("types=")) == {name: "double"}
    spoken = in_arguments(f"Give it: {flag}, or leave it out: --ignore {shlex.quote(name)}.")
    given, ignored = (text.partition(", or leave")[0].removesuffix(".") for text in given_in(spoken))
    assert ast.literal_eval(given) == {"types": {name: "double"}}
    assert ast.literal_eval(ignored) == [name]


def test_there_are_many_hints() -> None:
    assert len(HINTS) > 100


@pytest.mark.parametrize(
    ("typed", "spoken"),
    [
        ("Use a larger --eval-fraction.", "Use a larger eval_fraction."),
        ("Add --eval-fraction 0.2, or leave --rating out.", "Add eval_fraction=0.2, or leave rating out."),
        ("Give --param quantile_alpha=[0.1,0.9].", 'Give params={"quantile_alpha": [0.1, 0.9]}.'),
        ("Leave them out: --ignore x --ignore 'b c'", 'Leave them out: ignore=["x", "b c"]'),
        ("Use --read header=false.", 'Use read={"header": False}.'),
        ('Use --read "decimal=,".', 'Use read={"decimal": ","}.'),
        ('Use --read decimal=",".', 'Use read={"decimal": ","}.'),
        ("Leave --read encoding out.", 'Leave read["encoding"] out.'),
        ("--read 'types={\"zip\": \"string\"}' reads it", 'read={"types": {"zip": "string"}} reads it'),
        ('Use --read "decimal=,".', 'Use read={"decimal": ","}.'),
        ("Use --read \"quote='\".", 'Use read={"quote": "\'"}.'),
        ('--read "thousands=." --read "decimal=,"', 'read={"thousands": ".", "decimal": ","}'),
        ("Leave it out: --ignore 6", 'Leave it out: ignore=["6"]'),
        ("Leave it out: --ignore 'it'\"'\"'s'.", 'Leave it out: ignore=["it\'s"].'),
        ("Leave it out: --ignore 'a \"b\"'.", 'Leave it out: ignore=["a \\"b\\""].'),
        ("--event-weight view=1 --event-weight buy=5", 'event_weights={"view": 1, "buy": 5}'),
        ("Give --time-form 'when=%d.%m.%Y %H:%M'.", 'Give time_form={"when": "%d.%m.%Y %H:%M"}.'),
        ("Add --key id, or --keep x --keep y.", 'Add key=["id"], or keep=["x", "y"].'),
        ("eval (--eval) and eval_by time (--eval-by time) differ", "eval and eval_by time differ"),
        ("Use --objective ranking, or dray train A --label y.", 'Use objective="ranking", or dray train A --label y.'),
        ("Check with `ray status --address ...` first.", "Check with `ray status --address ...` first."),
        ("Nothing to translate - or -- is there?", "Nothing to translate - or -- is there?"),
    ],
)  # fmt: skip
def test_flags_become_arguments_and_commands_stay(typed: str, spoken: str) -> None:
    assert in_arguments(typed) == spoken


def test_the_command_line_has_the_flag_alone() -> None:
    assert in_flags("early_stop (--early-stop) needs eval (--eval)") == "--early-stop needs --eval"
    assert in_flags("eval_by time (--eval-by time) needs it") == "--eval-by time needs it"


WORDS = {"cluster": {"auto", "local", "spark"}, "objective": {*SHORT_NAMES}, "eval-by": {"time"}}
"""Values of flags that take other text too."""
OTHER_VALUES = {
    ("split-by", "ts"),  # an example
    ("rating", "each"),  # words of help texts, which no function shows
    ("eval-fraction", "sets"),
    ("param", "regularization"),
    ("include-dashboard", "true"),  # a flag of Ray
}


def test_no_word_of_a_sentence_is_taken_for_the_value_of_a_flag() -> None:
    """Also in texts that are put together, of which the tests above see only a part."""
    wrong = set()
    for path in sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in ("cli", "jobs")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = texts(node) if isinstance(node, ast.Constant | ast.JoinedStr) else ""
            for found in hints._PART.finditer(text):
                flag, word = found["name"], found["value"] or ""
                if not flag or not word.isalpha() or word != word.lower() or not hints.is_value(word):
                    continue
                options = [o for c in COMMANDS.values() for o in c.params if f"--{flag}" in o.opts]
                choices = {choice for o in options for choice in getattr(o.type, "choices", ())}
                if (
                    word not in choices | WORDS.get(flag, set())
                    and flag not in hints.SWITCHES
                    and (flag, word) not in OTHER_VALUES
                ):
                    wrong.add(f"{path.name}: --{flag} {word}")
    assert not wrong


def test_the_names_of_arguments_are_those_of_the_learners_flags() -> None:
    for learner in available():
        for flag in learner.flags:
            typed = flag.name or flag.key.replace("_", "-")
            assert in_arguments(f"Change --{typed}.") == f"Change {flag.key}."
            assert (typed in hints.LISTS, typed in hints.PAIRS) == (flag.repeated, flag.pairs), typed


def test_arguments_of_every_hint_exist() -> None:
    """What a flag of train, predict, recommend or ingest becomes is a key of a run file or an argument."""
    keys = {key for learner in available() for key in learner.Config.model_fields} | {
        "endpoint",
        "region",
        "profile",
        "role",
    }
    known = {
        "train": keys | set(inspect.signature(dray.train).parameters),
        **{name: set(inspect.signature(getattr(dray, name)).parameters) for name in ("predict", "recommend")},
    }
    only_typed = {
        "job",
        "json",
        "quiet",
        "help",
        "key",
        "row-number",
        "max-rejects",
        "export",
        "similar-to",
        "bias-in-vector",
    }
    for name, arguments in known.items():
        for parameter in COMMANDS[name].params:
            for option in (o for o in parameter.opts if o.startswith("--") and o.removeprefix("--") not in only_typed):
                assert in_arguments(f"Use {option}.").removeprefix("Use ").removesuffix(".") in arguments, (
                    name,
                    option,
                )


def raising(error: DrayError) -> Any:
    @speaks_python
    def function() -> None:
        raise error

    return function


def test_a_public_function_speaks_python_and_a_command_flags() -> None:
    with pytest.raises(ConfigError, match=r"Use eval_fraction=0\.2"):
        raising(ConfigError("No.", fix="Use --eval-fraction 0.2."))()
    with as_command(), pytest.raises(ConfigError, match=r"Use --eval-fraction 0\.2"):
        raising(ConfigError("No.", fix="Use --eval-fraction 0.2."))()


def test_the_same_mistake_is_told_in_the_words_of_who_made_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dray.cli.main import main

    with pytest.raises(ConfigError) as caught:
        dray.train(str(tmp_path), "y", early_stop=3)
    assert "--" not in str(caught.value) and "eval_fraction" in caught.value.fix
    assert main(["train", str(tmp_path), "--label", "y", "--early-stop", "3"]) == 2
    told = capsys.readouterr().err
    assert "--early-stop needs an evaluation set" in told and "eval_fraction" not in told
    (tmp_path / "run.yaml").write_text(f"data: {tmp_path}\nlabel: y\nearly_stop: 3\n")
    assert main(["train", str(tmp_path / "run.yaml")]) == 2
    assert "early_stop (--early-stop) needs" in capsys.readouterr().err


def test_a_fault_in_a_hint_is_found() -> None:
    assert faults("Use --rating.", ["recommend"]) == ["--rating is no flag of recommend"]
    assert faults("Use --eval-fraction much.", ["train"]) == ["--eval-fraction does not take much"]
    assert faults("Use --read typs={a: b}.", ["train"]) and not faults("Use --read types=....", ["train"])
    assert faults("Try dray cluster lift it.", []) and faults("Try dray predict RUN --label y", [])
    assert not faults("Try dray cluster up fleet.yaml, or dray runs lists them.", [])
    assert re.search("no flag", faults("`ray up` and --nothing", ["map"])[0])
