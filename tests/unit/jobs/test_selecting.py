"""Which files travel with a job, and what is said of those that do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dray.errors import ConfigError
from dray.jobs.ignoring import Ignore
from dray.jobs.selecting import LeftOut, describe, select

SECRETS = (
    *("credentials.json", "tls.key", ".pgpass", ".git-credentials", ".databrickscfg", "id_rsa", "id_ed25519"),
    *("id_work", ".env", ".env.prod", "prod.env", ".netrc", "server.pem", "store.p12", "my-credentials.json"),
    *("secrets.toml", "ID_RSA", "Server.KEY", "terraform.tfstate", "client_secret_12.json", ".npmrc", ".pypirc"),
    *(".envrc", ".env-prod", "spark.keytab", "deploy_rsa", "github_ed25519", "kubeconfig.yaml", "rootkey.csv"),
    *("me_accessKeys.csv", "credentials.csv", "secret.yaml", "office.ovpn"),
)


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def packed(root: Path, *excludes: str) -> list[str]:
    return sorted(file.name for file in select(root, excludes).files)


def why(root: Path, *excludes: str) -> dict[str, str]:
    return {out.name: out.why for out in select(root, excludes).left_out}


@pytest.mark.parametrize(
    ("pattern", "name", "directory", "ignored"),
    [
        ("*.csv", "a.csv", False, True),
        ("*.csv", "deep/down/a.csv", False, True),
        ("/a.csv", "deep/a.csv", False, None),
        ("data/", "data", True, True),
        ("data/", "data", False, None),
        ("data/*.bin", "data/a.bin", False, True),
        ("data/*.bin", "data/x/a.bin", False, None),
        ("data/**/a.bin", "data/x/y/a.bin", False, True),
        ("data/**", "data/x/y", False, True),
        ("**/cache", "x/cache", True, True),
        ("a?c", "abc", False, True),
        ("[ab].py", "b.py", False, True),
        ("[!ab].py", "b.py", False, None),
        ("# comment", "# comment", False, None),
        ("a+b", "a+b", False, True),
        ("[z-a]", "b", False, None),
        ("run[[:digit:]]", "run7", False, True),
        ("run[[:digit:]]", "runs", False, None),
        ("a[]-]b", "a]b", False, True),
        (r"a[\]]b", "a]b", False, True),
        ("a[b", "a[b", False, None),
        ("/**.csv", "deep/a.csv", False, None),
        ("tab\t", "tab", False, None),
        ("space ", "space", False, True),
    ],
)
def test_patterns_mean_what_they_mean_to_git(pattern: str, name: str, directory: bool, ignored: bool | None) -> None:
    assert Ignore([pattern]).verdict(name, directory=directory) is ignored


def test_the_last_pattern_that_fits_decides() -> None:
    ignored = Ignore(["*.csv", "!keep.csv"])
    assert ignored.verdict("a.csv", directory=False)
    assert ignored.verdict("keep.csv", directory=False) is False


def test_caches_secrets_and_what_git_ignores_stay_here_and_are_named(tmp_path: Path) -> None:
    make(tmp_path, "main.py", "lib/a.py", "lib/__pycache__/a.pyc", ".git/config", ".env", "key.pem", "data/big.bin")
    make(tmp_path, "runs/1/model.ubj", "lib/runs/kept.py", "notes.txt")
    (tmp_path / ".gitignore").write_text("data/\n")
    selection = select(tmp_path, excludes=["*.txt"])
    assert [file.name for file in selection.files] == [".gitignore", "main.py", "lib/a.py", "lib/runs/kept.py"]
    assert why(tmp_path, "*.txt") == {
        ".env": "secret",
        ".git/": "cache",
        "data/": "ignored",
        "key.pem": "secret",
        "lib/__pycache__/": "cache",
        "notes.txt": "excluded",
        "runs/": "cache",
    }


@pytest.mark.parametrize("name", SECRETS)
def test_a_file_that_is_named_like_a_secret_stays_here_at_any_depth(tmp_path: Path, name: str) -> None:
    make(tmp_path, "main.py", name, f"deep/down/{name}")
    assert packed(tmp_path) == ["main.py"]
    assert why(tmp_path) == {name: "secret", f"deep/down/{name}": "secret"}


def test_ids_that_are_no_keys_go_along(tmp_path: Path) -> None:
    make(tmp_path, "id_mapping.py", "id_table.parquet", "identity.py", "keys.py", "credentials.py", "environment.py")
    assert why(tmp_path) == {}


@pytest.mark.parametrize(
    "name",
    ["id_resolution/match.py", "keyboard.py", "monkey.key.md", "environment.yml", "tokens.parquet", "tokenizer.json"],
)
def test_names_that_only_resemble_those_of_secrets_go_along(tmp_path: Path, name: str) -> None:
    make(tmp_path, name)
    assert packed(tmp_path) == [name]


def test_a_gitignore_that_takes_all_directories_in_again_does_not_take_the_history_in(tmp_path: Path) -> None:
    make(tmp_path, ".git/objects/aa/bb", "src/a.py")
    (tmp_path / ".gitignore").write_text("/*\n!/*/\n")
    assert packed(tmp_path) == ["src/a.py"]
    assert why(tmp_path)[".git/"] == "cache"


def test_a_gitignore_that_begins_with_a_byte_order_mark_is_read_as_git_reads_it(tmp_path: Path) -> None:
    make(tmp_path, "patients.csv", "a.py")
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbfpatients.csv\r\n.gitignore\r\n")
    assert packed(tmp_path) == ["a.py"]


def test_a_gitignore_does_not_take_a_secret_in_but_the_command_line_does(tmp_path: Path) -> None:
    make(tmp_path, "main.py", "test.key", "other.key")
    (tmp_path / ".gitignore").write_text("!*.key\n")
    assert packed(tmp_path) == [".gitignore", "main.py"]
    assert packed(tmp_path, "!test.key") == [".gitignore", "main.py", "test.key"]


def test_what_is_ignored_can_be_taken_in(tmp_path: Path) -> None:
    make(tmp_path, "main.py", "data/a.csv")
    (tmp_path / ".gitignore").write_text("data/\n")
    assert packed(tmp_path, "!data/") == [".gitignore", "data/a.csv", "main.py"]


def test_links_out_of_the_directory_are_never_followed(tmp_path: Path) -> None:
    make(tmp_path, "outside/secret.txt", "code/main.py")
    code = tmp_path / "code"
    (code / "file.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (code / "relative.txt").symlink_to("../outside/secret.txt")
    (code / "tree").symlink_to(tmp_path / "outside")
    (code / "step").symlink_to(tmp_path)
    (code / "back.py").symlink_to(tmp_path / "step" / "main.py")
    (tmp_path / "step").symlink_to(tmp_path / "outside")
    assert packed(code) == ["main.py"]
    assert why(code) == dict.fromkeys(["file.txt", "relative.txt", "tree/", "step/", "back.py"], "link")
    assert packed(code, "!file.txt") == ["main.py"]


def test_links_within_the_directory_are_packed_as_what_they_lead_to(tmp_path: Path) -> None:
    make(tmp_path, "lib/a.py", "lib/deep/b.py")
    (tmp_path / "a.py").symlink_to("lib/a.py")
    (tmp_path / "other").symlink_to(tmp_path / "lib")
    (tmp_path / "lib" / "around").symlink_to(tmp_path)
    assert packed(tmp_path) == ["a.py", "lib/a.py", "lib/deep/b.py", "other/a.py", "other/deep/b.py"]
    assert why(tmp_path) == {"lib/around/": "link", "other/around/": "link"}


def test_a_working_directory_that_is_a_link_itself_is_packed(tmp_path: Path) -> None:
    make(tmp_path, "code/main.py")
    (tmp_path / "link").symlink_to("code")
    assert packed(tmp_path / "link") == ["main.py"]


def test_a_link_brings_no_secret_in_under_another_name(tmp_path: Path) -> None:
    make(tmp_path, "main.py", ".env", ".git/config", ".aws/config")
    for name, target in {
        "settings.txt": ".env",
        "config.txt": ".git/config",
        "cloud": ".aws",
        "c": ".aws/config",
    }.items():
        (tmp_path / name).symlink_to(target)
    assert packed(tmp_path) == ["main.py"]
    assert why(tmp_path)["settings.txt"] == "secret"


def test_a_link_brings_nothing_in_that_is_left_out_under_its_own_name(tmp_path: Path) -> None:
    make(tmp_path, "main.py", "private/patients.csv", "real/x.csv", "real/y.csv", "big/b.bin", "deep/own/notes.txt")
    (tmp_path / ".gitignore").write_text("private/\n/real/x.csv\n")
    (tmp_path / "deep" / ".gitignore").write_text("notes.txt\n")
    links = {
        "data": "private",
        "one.csv": "private/patients.csv",
        "alias": "real",
        "b2": "big",
        "n": "deep/own/notes.txt",
    }
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    assert packed(tmp_path, "/big") == [".gitignore", "alias/y.csv", "deep/.gitignore", "main.py", "real/y.csv"]
    left_out = why(tmp_path, "/big")
    assert {left_out[name] for name in ("data/", "one.csv", "alias/x.csv", "n")} == {"ignored"}
    assert left_out["b2/"] == "excluded"


def test_a_link_to_nowhere_a_pipe_and_an_unreadable_name_are_passed_over_and_named(tmp_path: Path) -> None:
    make(tmp_path, "main.py")
    (tmp_path / "broken").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_bytes(b"x")
    assert packed(tmp_path) == ["main.py"]
    assert sorted(why(tmp_path).values()) == ["unreadable"] * 3


def test_a_directory_with_very_many_files_is_refused_before_all_are_looked_at(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}.txt" for number in range(6)))
    with pytest.raises(ConfigError, match="more than 5 files"):
        select(tmp_path, most=5)


def test_directories_that_lead_to_each_other_end(tmp_path: Path) -> None:
    places = [tmp_path / str(number) for number in range(9)]
    for place in places:
        place.mkdir()
    for place in places:
        for other in places:
            (place / f"to{other.name}").symlink_to(other)
    with pytest.raises(ConfigError, match="more than 500 directories"):
        select(tmp_path, most=500)


def test_everything_that_is_left_out_is_told_with_a_count_and_how_to_take_it_in() -> None:
    out = [LeftOut(".env", "secret"), *(LeftOut(f"{number}.csv", "ignored") for number in range(25))]
    secret, ignored = describe([*out])
    assert secret == "Left out, named like a secret: 1: .env (--exclude '!NAME' includes one)"
    assert "25: 0.csv" in ignored and "and 5 more (--exclude '!NAME' includes one)" in ignored


GITIGNORES = {
    ".gitignore": "*.log\n/top.txt\nbuild/\n!keep.log\ndocs/*.md\n\\#odd\nsp\\ \n**/x/**\na**/z\n[!a-c].bin\n",
    "lib/.gitignore": "local.txt\n!wanted.log\n/only_here\ndeep/**/end\n",
    "lib/deep/.gitignore": "*\n!.gitignore\n!stay.txt\n",
    "docs/.gitignore": "!b.md\n",
}
NAMES = (
    *("a.log", "keep.log", "top.txt", "lib/top.txt", "build/a", "lib/build/a", "docs/a.md", "docs/b.md", "docs/x/a.md"),
    *("#odd", "sp ", "x/y", "lib/x/y/z", "aq/z", "q/z", "a.bin", "d.bin", "lib/local.txt", "local.txt"),
    *(
        "lib/wanted.log",
        "lib/other.log",
        "lib/only_here",
        "lib/sub/only_here",
        "lib/deep/stay.txt",
        "lib/deep/gone.txt",
    ),
    *("lib/deep/p/q/end", "plain.txt", "lib/a[1].txt"),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
@pytest.mark.parametrize("below", ["", "lib", "lib/deep"])
def test_gitignores_of_all_directories_mean_what_they_mean_to_git(tmp_path: Path, below: str) -> None:
    make(tmp_path, *NAMES)
    for name, text in GITIGNORES.items():
        make(tmp_path, name)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("plain.txt\n")
    root = tmp_path / below
    listed = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert packed(root) == sorted(name for name in listed.split("\0") if name)
