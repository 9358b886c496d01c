"""What the word behind `cluster:` means."""

from __future__ import annotations

import pytest

from dray.clusters.resolve import Attached, Here, Remote, Where, check_name, resolve
from dray.errors import ConfigError


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("local", Here()),
        ("auto", Attached("auto")),
        ("spark", Attached("spark")),
        ("10.0.0.5:6379", Attached("10.0.0.5:6379")),
        ("[::1]:6379", Attached("[::1]:6379")),
        ("http://head:8265/", Remote("http://head:8265")),
        ("https://ray.example.com/team", Remote("https://ray.example.com/team")),
        ("office", Remote("office", named=True)),
        ("gpu-2", Remote("gpu-2", named=True)),
    ],
)
def test_each_word_has_one_meaning(word: str, meant: Where) -> None:
    assert resolve(word) == meant


@pytest.mark.parametrize("word", ["", "Office", "a_b", "-a", "host:port", "s3://bucket", "a" * 60])
def test_what_is_no_cluster_is_refused_with_what_may_stand_there(word: str) -> None:
    with pytest.raises(ConfigError, match="is not a cluster") as refused:
        resolve(word)
    assert "http://head:8265" in refused.value.fix


def test_ray_client_is_refused_with_the_way_instead() -> None:
    with pytest.raises(ConfigError, match="Ray Client") as refused:
        resolve("ray://10.0.0.84:10001")
    assert "8265" in refused.value.fix


@pytest.mark.parametrize("name", ["local", "auto", "spark", "Big", "a.b", "x" * 54, "1st"])
def test_a_name_that_means_something_else_or_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        check_name(name)


def test_a_name_of_53_letters_fits() -> None:
    check_name("x" * 53)
