"""`dray completion`: commands and flags by the tab key. Where dray knows no word, the shell's files are offered."""

from __future__ import annotations

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

VARIABLE = "_DRAY_COMPLETE"
"""Set by the shell when it asks for words; click reads it."""


def _with_files(shell: type[ShellComplete]) -> type[ShellComplete]:
    """Return a shell's class that offers files where no word fits: most arguments are locations."""

    class WithFiles(shell):  # type: ignore[valid-type, misc]
        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            found: list[CompletionItem] = super().get_completions(args, incomplete)
            return found or [CompletionItem(incomplete, type="file")]

    return WithFiles


SHELLS = {shell.name: _with_files(shell) for shell in (BashComplete, ZshComplete, FishComplete)}
for _name, _shell in SHELLS.items():
    add_completion_class(_shell, _name)


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the lines that make SHELL complete dray's commands and flags.

    \b
    eval "$(dray completion bash)"                                 # now; for good, put the line into ~/.bashrc
    eval "$(dray completion zsh)"                                  # the same, ~/.zshrc
    dray completion fish > ~/.config/fish/completions/dray.fish
    """
    click.echo(SHELLS[shell](ctx.find_root().command, {}, "dray", VARIABLE).source())
