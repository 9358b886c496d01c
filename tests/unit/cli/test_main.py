"""The frame of the command line: quick help, and every failure as words and an exit code."""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import click
import pytest

from dray import __version__
from dray.cli import main as frame
from dray.cli.about import about
from dray.cli.main import COMMANDS, Entry, main
from dray.errors import DataError, WorkerError

HEAVY = ("numpy", "pyarrow", "ray", "xgboost", "pydantic", "rich", "psutil", "yaml")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Put an exception in the list: the command `train` raises it."""
    raised: list[BaseException] = []

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def train(as_json: bool) -> None:
        raise raised[0]

    monkeypatch.setattr(frame, "train", train, raising=False)
    monkeypatch.setitem(COMMANDS, "train", Entry(frame.__name__, "train", "Fail."))
    return raised


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert name in out
        assert entry.help in out


@pytest.mark.parametrize("arguments", [["--help"], ["data", "make", "--help"], ["--version"]])
def test_help_loads_no_heavy_module_and_no_command_it_does_not_show(arguments: list[str]) -> None:
    code = (
        "import resource, sys; from dray.cli.main import main; main(sys.argv[1:]);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print(*sys.modules, file=sys.stderr); print(used.ru_utime + used.ru_stime, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    modules, seconds = done.stderr.splitlines()
    loaded = set(modules.split())
    assert not loaded & set(HEAVY)
    assert not loaded & {entry.module for name, entry in COMMANDS.items() if name not in arguments}
    # Time on the processor, so that a busy machine does not fail this; on an idle one it is the time people wait.
    assert float(seconds) < 0.3


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dray {__version__}\n"


def test_the_version_with_details_names_every_package_that_dray_needs_and_no_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "very-secret")
    assert main(["--version", "--verbose"]) == 0
    out = capsys.readouterr().out
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert said["dray"] == __version__
    assert said["python"].startswith(platform.python_version())
    assert said["xgboost"] == metadata.version("xgboost")
    assert said["ray"] == metadata.version("ray")
    assert said["OMP_NUM_THREADS"] == "3"
    assert "hypothesis" not in said  # a tool of the tests
    assert "very-secret" not in out


def test_a_package_of_an_extra_that_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: ["no-such-package>=1; extra == 'shiny'", "ray>=2"])
    lines = about().splitlines()
    assert "no-such-package  not installed (extra: shiny)" in lines


def test_verbose_alone_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--verbose"]) == 2
    assert "--verbose goes with --version" in capsys.readouterr().err


def test_python_runs_the_package_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dray", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"dray {__version__}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dray tr", ["plain,train"]),
        ("dray train --eval-fra", ["plain,--eval-fraction"]),
        ("dray train --model factor", ["plain,factorization"]),
        ("dray train dat", ["file,dat"]),
        ("dray data de", ["plain,describe"]),
    ],
)
def test_a_shell_is_told_the_words_that_fit_and_otherwise_offers_files(words: str, expected: list[str]) -> None:
    asked = {"_DRAY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "dray"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_for_a_shell_are_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_DRAY_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"), [("trai", "train"), ("runs di", "diff"), ("runs rm --y", "--yes"), ("cache cl", "clear")]
)
def test_bash_takes_the_lines_and_completes_by_them(line: str, expected: str, tmp_path: Path) -> None:
    script = f"""
        dray() {{ {sys.executable} -m dray "$@"; }}
        eval "$(dray completion bash)"
        echo '#!/bin/sh' > dray && echo 'exec {sys.executable} -m dray "$@"' >> dray && chmod +x dray
        COMP_WORDS=(./dray {line}) COMP_CWORD={len(line.split())}
        _dray_completion ./dray
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [expected], done.stderr


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_a_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert (
        capsys.readouterr().err == 'Error: There is no command "trian". Did you mean "train"?\nFix: See dray --help.\n'
    )


def test_a_wrong_option_is_the_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "make", "out", "--rowz", "3", "--json"]) == 2
    captured = capsys.readouterr()
    assert "--rowz" in captured.err
    assert "Fix: See dray data make --help." in captured.err
    assert json.loads(captured.out)["error"]["type"] == "UsageError"


def test_an_error_says_what_and_fix(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(DataError("No rows.", "Add some."))
    assert main(["train"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "Error: No rows.\nFix: Add some.\n"
    assert captured.out == ""


def test_with_json_an_error_is_a_document_too(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(WorkerError("A worker died.", "Look at its log."))
    assert main(["train", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "error": {"type": "WorkerError", "what": "A worker died.", "fix": "Look at its log."}
    }


def test_ctrl_c_is_one_line_and_130(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(KeyboardInterrupt())
    assert main(["train"]) == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_an_unexpected_error_is_one_line_and_a_file(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("DRAY_TRACEBACK", raising=False)
    failing.append(ZeroDivisionError("a bug\nin two lines"))
    assert main(["train"]) == 1
    (file,) = tmp_path.iterdir()
    first, second = capsys.readouterr().err.splitlines()
    assert first == "Error: Unexpected ZeroDivisionError: a bug"
    assert str(file) in second
    assert "Traceback" in file.read_text()


def test_dray_traceback_shows_it_at_once(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_TRACEBACK", "1")
    failing.append(ZeroDivisionError("a bug"))
    assert main(["train"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_drama() -> None:
    code = "from dray.cli.output import print_json; print_json(list(range(100000)))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.wait(20) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.fixture
def previous_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("previous_handler")
@pytest.mark.parametrize(
    "after", [None, SystemExit(1), SystemExit(0), WorkerError("No worker is left.", fix=""), OSError("cleaning up")]
)
def test_sigterm_gives_143_whatever_is_raised_in_its_place(
    monkeypatch: pytest.MonkeyPatch, after: BaseException | None
) -> None:
    """Ray raises SystemExit(1) when a signal handler raises SystemExit(143) in `ray.wait`."""

    @click.command()
    def train() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            if after is not None:
                raise after

    monkeypatch.setattr(frame, "train", train, raising=False)
    monkeypatch.setitem(COMMANDS, "train", Entry(frame.__name__, "train", "Be terminated."))
    assert main(["train"]) == 143


@pytest.mark.usefixtures("previous_handler")
def test_a_command_that_ends_well_in_spite_of_sigterm_has_ended_well(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def train() -> None:
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(frame, "train", train, raising=False)
    monkeypatch.setitem(COMMANDS, "train", Entry(frame.__name__, "train", "Take no notice."))
    assert main(["train"]) == 0


def test_an_exit_code_of_a_commands_own_is_kept(failing: list[BaseException]) -> None:
    failing.append(SystemExit(7))
    with pytest.raises(SystemExit) as caught:
        main(["train"])
    assert caught.value.code == 7
