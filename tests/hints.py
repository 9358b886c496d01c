"""Whether a hint can be followed: its flags are of the command, its values are taken, its commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

import click

from dray.cli.main import dray
from dray.data.read_options import OPTIONS
from dray.hints import PROSE, is_value

READ_OPTIONS = {name for options in OPTIONS.values() for name in options}
END = r"(?=`|\)|[;,:](?:\s|$)|(?<!\.)\.(?:\s|$)|$)"
COMMAND = re.compile(rf"\bdray ((?:train|resume|predict|recommend|map|runs|cluster|job|data|cache)\b[^`]*?){END}")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])(?:[ =]('[^']*'|\"[^\"]*\"|\S*[^\s.,;:)`]))?")
PUT_IN = "1"
"""What stands for a value that is not known before."""
METAVAR = re.compile(r"[A-Z][A-Z_]*|\.\.\.|<.*>")


def commands(group: click.Group = dray, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by what is typed: "train", "cluster up"."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        yield f"{path}{name}", command


COMMANDS = dict(commands())


def faults(hint: str, of: Iterable[str]) -> list[str]:
    """Return what is wrong with a hint that is shown by any of these commands."""
    found: list[str] = []
    rest = hint
    for match in COMMAND.finditer(hint):
        found += _faults_of_command(match[1])
        rest = rest.replace(match[0], " ", 1)
    rest = re.sub(r"`[^`]*`", " ", rest)  # a command of another program
    for name, value in FLAG.findall(rest):
        having = [COMMANDS[command] for command in of if _option(COMMANDS[command], name)]
        found += _faults_of_flag(name, value, having, f"--{name} is no flag of {', '.join(of)}")
    return found


def faults_shown_by(hint: str, arguments: list[str]) -> list[str]:
    """Return what is wrong with a hint that this command line has ended with; of an unknown command any flag counts."""
    words = [word for word in arguments if not word.startswith("-")]
    names = [" ".join(words[:count]) for count in (2, 1)]
    command = next((name for name in names if name in COMMANDS), None)
    return faults(hint, [command] if command else COMMANDS)


def faults_in_function(hint: str) -> list[str]:
    """Return the flags that a function speaks of outside whole commands."""
    rest = re.sub(r"`[^`]*`", " ", COMMAND.sub(" ", hint))
    return [f"--{name} is a flag" for name, _ in FLAG.findall(rest)]


def _faults_of_command(typed: str) -> list[str]:
    words = typed.split()
    name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
    if isinstance(COMMANDS[name], click.Group) and len(words) > 1 and words[1] not in PROSE and name not in ("runs",):
        return [f"dray {typed}: there is no such command"]
    found = []
    for flag, value in FLAG.findall(typed):
        having = [COMMANDS[name]] if _option(COMMANDS[name], flag) else []
        found += _faults_of_flag(flag, value, having, f"--{flag} is no flag of dray {name}")
    return found


def _option(command: click.Command, flag: str) -> click.Option | None:
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return next((option for option in options if f"--{flag}" in (*option.opts, *option.secondary_opts)), None)


def _faults_of_flag(name: str, value: str, having: list[click.Command], missing: str) -> list[str]:
    if name in ("help", "version"):
        return []
    if not having:
        return [missing]
    options = [option for command in having if (option := _option(command, name)) is not None]
    if not value or not is_value(value) or all(option.is_flag for option in options):
        return []
    [value] = shlex.split(value) if value[0] in "'\"" else [value]
    if name == "read" and "=" in value and value.partition("=")[0] not in READ_OPTIONS | {PUT_IN}:
        return [f"--read has no option {value}"]
    if METAVAR.fullmatch(value) or value == PUT_IN:
        return []
    return [] if any(_takes(option, value) for option in options) else [f"--{name} does not take {value}"]


def _takes(option: click.Option, value: str) -> bool:
    try:
        option.type.convert(value, option, None)
    except click.BadParameter:
        return False
    return True
