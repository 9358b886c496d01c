"""Help in sections: options that belong together are listed together."""

from __future__ import annotations

from collections.abc import Mapping

import click

REST = "Other options"
_WIDEST = 27
"""The text of a longer flag begins on the next line."""


def sectioned(sections: Mapping[str, tuple[str, ...]]) -> type[click.Command]:
    """Return a command class whose help shows options by section, named by their first flag without the dashes."""

    class Sectioned(click.Command):
        def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
            found = {option.opts[0].lstrip("-"): option.get_help_record(ctx) for option in options}
            records = {name: record for name, record in found.items() if record is not None}
            width = min(_WIDEST, max(len(flags) for flags, _ in records.values()))
            for title, names in sections.items():
                with formatter.section(title):
                    _write(formatter, [records.pop(name) for name in names], width)
            if records:
                with formatter.section(REST):
                    _write(formatter, list(records.values()), width)

    return Sectioned


def _write(formatter: click.HelpFormatter, records: list[tuple[str, str]], width: int) -> None:
    # Padded to one width in all sections: click fits each list to its own flags.
    formatter.write_dl([(flags.ljust(width), text) for flags, text in records], col_max=_WIDEST)
