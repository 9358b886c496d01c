"""What must not travel with a job does not."""

from __future__ import annotations

import pytest

from dray.config.private import check_environment, check_texts, is_secret_name, texts_in
from dray.errors import ConfigError

HERE = {"AWS_SECRET_ACCESS_KEY": "abcdefghijklmnop", "HOME": "/home/somebody", "SHORT_TOKEN": "x"}


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "DB_PASSWORD", "api_key", "OPENAI_APIKEY"),
        *("PGPASSWORD", "MYSQL_PWD", "RAY_AUTH_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE", "KEY"),
    ],
)
def test_a_variable_that_sounds_like_a_secret_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match="all users that may list jobs") as caught:
        check_environment({name: "value"}, {})
    assert "the cluster itself" in caught.value.fix


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "STAGE", "MONKEY", "AUTHOR", "KEYBOARD", "PWD", "OLDPWD"])
def test_other_variables_may_travel(name: str) -> None:
    assert not is_secret_name(name)
    check_environment({name: "value"}, HERE)


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://me:hunter2hunter2@host/db",
        "-----BEGIN RSA PRIVATE KEY-----\nabc",
        "AKIAIOSFODNN7EXAMPLE",
        "prefix abcdefghijklmnop suffix",
    ],
)
def test_a_secret_is_also_known_by_its_value(value: str) -> None:
    with pytest.raises(ConfigError, match="could read it"):
        check_environment({"HARMLESS": value}, HERE)
    with pytest.raises(ConfigError, match="could read it"):
        check_texts("The run file", texts_in({"a": [{"b": value}], "c": 1}), HERE)


def test_a_path_and_the_name_of_a_variable_are_no_secrets() -> None:
    here = HERE | {"PWD": "/home/somebody/work", "RAY_AUTH_TOKEN_PATH": "/home/somebody/token"}
    check_texts("The run file", ["/home/somebody/work/data", "/home/somebody/token"], here)
    check_texts("The run file", ["postgresql://me:${DB_PASSWORD}@host/db", "s3://bucket/x", "/home/somebody"], HERE)


@pytest.mark.parametrize("name", ["", "1ST", "A-B", "A B", "A=B"])
def test_a_variable_must_have_the_name_of_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f'"{name}" cannot be the name of a variable'):
        check_environment({name: "x"}, {})


def test_what_is_too_short_to_be_told_apart_is_no_secret() -> None:
    with pytest.raises(ConfigError, match="The value of X holds the value of the environment variable MY_TOKEN"):
        check_environment({"X": "is 12345678!"}, {"MY_TOKEN": "12345678"})
    check_environment({"X": "is 1234567!"}, {"MY_TOKEN": "1234567"})
