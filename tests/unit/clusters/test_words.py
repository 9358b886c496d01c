"""What the word behind `cluster:` means."""

from __future__ import annotations

import pytest

from dray.clusters.words import Word, check_name, understand
from dray.errors import ConfigError


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("local", Word("local", "local")),
        ("auto", Word("auto", "auto")),
        ("spark", Word("spark", "spark")),
        ("10.0.0.5:6379", Word("address", "10.0.0.5:6379")),
        ("[::1]:6379", Word("address", "[::1]:6379")),
        ("http://head:8265/", Word("endpoint", "http://head:8265")),
        ("https://ray.example.com/team", Word("endpoint", "https://ray.example.com/team")),
        ("office", Word("name", "office")),
        ("gpu-2", Word("name", "gpu-2")),
    ],
)
def test_each_word_has_one_meaning(word: str, meant: Word) -> None:
    assert understand(word) == meant


def test_only_endpoints_and_names_are_elsewhere() -> None:
    assert [understand(word).elsewhere for word in ("http://h:8265", "office")] == [True, True]
    assert not any(understand(word).elsewhere for word in ("local", "auto", "spark", "h:6379"))


@pytest.mark.parametrize("word", ["", "Office", "a_b", "-a", "host:port", "s3://bucket", "a" * 60])
def test_what_is_no_cluster_is_refused_with_what_may_stand_there(word: str) -> None:
    with pytest.raises(ConfigError, match="is no cluster") as refused:
        understand(word)
    assert "http://head:8265" in refused.value.fix


def test_ray_client_is_refused_with_the_way_instead() -> None:
    with pytest.raises(ConfigError, match="Ray Client") as refused:
        understand("ray://10.0.0.84:10001")
    assert "8265" in refused.value.fix


@pytest.mark.parametrize("name", ["local", "auto", "spark", "Big", "a.b", "x" * 54, "1st"])
def test_a_name_that_means_something_else_or_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        check_name(name)


def test_a_name_of_53_letters_fits() -> None:
    check_name("x" * 53)
