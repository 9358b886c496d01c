"""The settings have a default for everything, and a mistake in them is named with its fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray import __version__
from dray.clusters.kubernetes.quantities import format_bytes, format_cpus, parse_bytes, parse_cpus
from dray.clusters.kubernetes.settings import Settings, make_settings, read_settings, take_settings
from dray.errors import ConfigError


def test_settings_need_no_file() -> None:
    assert read_settings(None) == Settings()
    assert read_settings(None, name="demo").name == "demo"


def test_the_keys_may_stand_below_kubernetes(tmp_path: Path) -> None:
    plain, below = tmp_path / "plain.yaml", tmp_path / "below.yaml"
    plain.write_text("name: demo\nworkers: {memory: 30G, cpu: 7}\n")
    below.write_text("kubernetes:\n  name: demo\n  workers: {memory: 30G, cpu: 7}\n")
    assert read_settings(str(plain)) == read_settings(str(below))


def test_a_run_file_may_hold_the_settings(tmp_path: Path) -> None:
    settings, run = take_settings({"data": "s3://b/x", "label": "y", "kubernetes": {"name": "demo"}})
    assert settings.name == "demo" and run == {"data": "s3://b/x", "label": "y"}
    assert take_settings(run) == (Settings(), run)
    with pytest.raises(ConfigError, match=r"kubernetes: in the run file is 'demo'"):
        take_settings({"kubernetes": "demo"})
    path = tmp_path / "run.yaml"
    path.write_text("label: y\nkubernetes: {name: demo}\n")
    assert read_settings(str(path)) == settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"wrokers": {}}, 'Unknown key "wrokers" in the settings. Did you mean "workers"'),
        ({"workers": {"memroy": "8Gi"}}, 'Unknown key "workers.memroy" .*Did you mean "memory"'),
        ({"secrets": {"KEY": {"secret": "s", "kye": "k"}}}, 'Unknown key "secrets.KEY.kye" .*Did you mean "key"'),
        ({"secrets": {"KEY": {"secret": "s"}}}, '"secrets.KEY.key" is missing'),
        ({"secrets": {"KEY": "value"}}, '"secrets.KEY" in the settings is'),
        ({"workers": {"memory": "many"}}, "not an amount of memory: write 8Gi, say"),
        ({"workers": {"cpu": "4x"}}, "not a number of CPUs"),
        ({"workers": {"cpu": 0}}, '"workers.cpu" in the settings is 0: .*greater than 0'),
        ({"workers": {"gpu": -1}}, '"workers.gpu" in the settings is -1'),
        ({"workers": {"replicas": 4, "max": 2}}, "are 0, 4 and 2. Put them in order"),
        ({"workers": {"replicas": 1, "min": 2, "max": 3}}, "are 2, 1 and 3"),
        (
            {"env": {"A": "1"}, "secrets": {"A": {"secret": "s", "key": "k"}}},
            "A is in env and in secrets",
        ),
        ({"env": {"RAY_AUTH_TOKEN": "1"}}, "RAY_AUTH_TOKEN is set by dray"),
        ({"volumes": {"data": {"claim": "rows"}}}, "cannot be mounted at data"),
        ({"volumes": {"/etc/dray/": {"claim": "rows"}}}, "cannot be mounted at /etc/dray/"),
        ({"time_limit_s": 900}, r"time_limit_s \(900\) covers the wait"),
        ({"start_deadline_s": 0}, '"start_deadline_s" in the settings is 0'),
        ({"tolerations": [{"effect": "Never"}]}, '"tolerations.0.effect"'),
    ],
)
def test_a_mistake_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make_settings(given)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        (
            {"workers": {"replicas": 4, "max": 2}},
            "workers.min, workers.replicas and workers.max are 0, 4 and 2.",
            "Put them in order.",
        ),
        (
            {"volumes": {"data: x": {"claim": "rows"}}},
            "a volume cannot be mounted at data: x.",
            "Use a path of its own, as /data.",
        ),
        (
            {"workers": {"memory": "many"}},
            '"workers.memory" in the settings is \'many\': "many" is not an amount of memory: write 8Gi, say.',
            "Change workers.memory.",
        ),
        (
            {"head": {"memroy": "8Gi"}},
            'Unknown key "head.memroy" in the settings. Did you mean "memory"?',
            "Known keys: cpu, memory, works.",
        ),
    ],
)
def test_a_mistake_is_told_whole_with_its_fix(given: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings(given)
    assert (caught.value.what, caught.value.fix) == (what, fix)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("- a", "does not hold keys"),
        ("kubernetes: 3", "does not hold keys"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kube.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_settings(str(path))


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the settings file /nowhere.yaml: No such file"):
        read_settings("/nowhere.yaml")


def test_dray_is_installed_unless_the_image_is_ones_own() -> None:
    assert Settings().requirements() == (f"dray=={__version__}",)
    assert make_settings({"image": "me/dray:1"}).requirements() == ()
    assert make_settings({"image": "me/ray:1", "install": ["dray[s3] @ https://x/dray.whl"]}).requirements()


def test_a_recommender_gets_its_extra_unless_one_says_what_to_install() -> None:
    assert Settings().requirements("factorization") == (f"dray[recommend]=={__version__}",)
    assert Settings().requirements("xgboost") == (f"dray=={__version__}",)
    assert make_settings({"image": "me/dray:1"}).requirements("factorization") == ()
    assert make_settings({"install": ["dray @ https://x/dray.whl"]}).requirements("factorization") == (
        "dray @ https://x/dray.whl",
    )


@pytest.mark.parametrize(
    ("text", "number"), [("8Gi", 8 << 30), ("8G", 8 * 10**9), ("8GB", 8 * 10**9), ("512Mi", 512 << 20), (2**30, 2**30)]
)
def test_memory_is_read(text: str | int, number: int) -> None:
    assert parse_bytes(text) == number


def test_quantities_are_written_as_kubernetes_does() -> None:
    assert [format_bytes(parse_bytes(text)) for text in ("8Gi", "8G", "1536Mi")] == ["8Gi", "7629Mi", "1536Mi"]
    assert [format_cpus(parse_cpus(text)) for text in (4, "4", "1.5", "500m", 2.0)] == ["4", "4", "1500m", "500m", "2"]
