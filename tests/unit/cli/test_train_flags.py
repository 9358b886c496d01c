"""The flags of `dray train` as the run file's keys, and its help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from dray.cli.main import main
from dray.cli.train import SECTIONS, train
from dray.config.run_file import RunConfig
from dray.jobs import anywhere
from dray.learners.registry import available

RECOMMENDER = ("events", "--model", "factorization", "--user", "u", "--item", "i")


class Asked(Exception):  # noqa: N818
    """Ends the command where training would begin."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        self.config = config


@pytest.fixture(autouse=True)
def nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(config: RunConfig, sinks: Any, job: str | None) -> None:
        raise Asked(config)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(anywhere, "train", ask)


def asked(*arguments: str) -> RunConfig:
    with pytest.raises(Asked) as caught:
        train.main([*arguments], standalone_mode=False)
    return caught.value.config


def test_a_recommender_needs_no_label() -> None:
    config = asked(*RECOMMENDER)
    assert (config.model, config.user, config.item, config.kind) == ("factorization", "u", "i", "implicit")
    assert asked(*RECOMMENDER, "--rating", "stars").kind == "explicit"


def test_every_flag_of_a_recommender_reaches_the_configuration() -> None:
    flags = ["--event", "type", "--time", "t", "--half-life-days", "30", "--eval-fraction", "0.1", "--eval-by", "time"]
    config = asked(*RECOMMENDER, *flags, "--eval-at", "5", "--eval-at", "20", "--param", "factors=8", "--rounds", "3")
    assert (config.event, config.time, config.half_life_days) == ("type", "t", 30)
    assert (config.eval_fraction, config.eval_by, config.eval_at) == (0.1, "time", (5, 20))
    assert (config.params, config.rounds) == ({"factors": 8}, 3)
    assert asked(*RECOMMENDER, "--time", "t", "--eval-last", "2").eval_last == 2


def test_weights_are_put_over_those_by_default() -> None:
    config = asked(*RECOMMENDER, "--event", "type", "--event-weight", "purchase=4", "--event-weight", "like=1.5")
    assert config.event_weights == {"view": 1, "add_to_cart": 3, "purchase": 4, "payment_failed": -2, "like": 1.5}


def test_weights_are_put_over_those_of_the_run_file() -> None:
    values = {"data": "events", "model": "factorization", "user": "u", "item": "i", "event": "type"}
    Path("run.yaml").write_text(yaml.safe_dump(values | {"event_weights": {"view": 2, "buy": 3}}))
    assert asked("run.yaml", "--event-weight", "buy=9").event_weights == {"view": 2, "buy": 9}
    assert asked("run.yaml").event_weights == {"view": 2, "buy": 3}


@pytest.mark.parametrize("command", [("data", "--label", "y"), (*RECOMMENDER, "--time", "t")])
@pytest.mark.parametrize("form", ["%d/%m/%Y %H:%M:%S", "[%d.%m.%Y]", "%Y%m%d", "seconds"])
def test_the_form_of_a_time_is_the_text_that_was_typed(command: tuple[str, ...], form: str) -> None:
    assert asked(*command, "--time-form", f"t={form}").time_form == {"t": form}


def test_every_option_stands_in_one_section_of_the_help() -> None:
    options = [param for param in train.params if isinstance(param, click.Option) and not param.hidden]
    flags = {param.opts[0].lstrip("-") for param in options}
    listed = [name for names in SECTIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert flags - set(listed) == {"json", "quiet"}


def test_the_help_shows_both_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    told = capsys.readouterr().out
    headings = [line for line in told.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [f"{title}:" for title in (*SECTIONS, "Other options")]
    places = [told.index(text) for text in ("\n  --label", "\n--model factorization", "\n  --user", "\nEvaluation")]
    assert places == sorted(places)
    assert "dray train events/ --model factorization --user user_id --item item_id --event type" in told


def test_the_help_loads_no_learner() -> None:
    code = "import sys; from dray.cli.main import main; main(['train', '--help']); print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "xgboost", "ray", "pyarrow", "numpy", "pydantic"} & set(loaded)


def test_the_seed_of_the_split_has_a_flag() -> None:
    assert asked("data", "--label", "y", "--seed", "3").split_seed == 3
    assert asked("data", "--label", "y", "--seed", "3", "--split-seed", "4").split_seed == 4


def test_every_key_of_a_learner_has_a_flag() -> None:
    for learner in available():
        own = learner.Config.model_fields.keys() - RunConfig.model_fields.keys()
        assert {flag.key for flag in learner.flags} == own
        for flag in learner.flags:
            assert learner.Config.flag(flag.key) == f"--{flag.name or flag.key.replace('_', '-')}"
