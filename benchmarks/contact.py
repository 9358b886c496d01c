"""First contact: data as it is found, and the commands that a newcomer types. How many tries does each take?

    python benchmarks/contact.py ../shared/data

For each set: describe it, train with an evaluation, and predict for a part of it, written anew as CSV and as JSON.
A newcomer types what seems right, and after a failure adds what the messages told: the flags with their values, and the
names of columns that a file without a header has. Nothing else is put in: a hint that does not help costs a try.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import split

import pyarrow.parquet as pq

PART = 200
MOST_TRIES = 4
_FLAGS = re.compile(r"--[a-z-]+(?: (?:\"[^\"]*\"|'[^']*'|[^\s.,;:]+(?:[.,][^\s.,;:]+)*))")
_NAMES = re.compile(r"columns are f0 to f(\d+)")


@dataclass(frozen=True)
class Set:
    """A set of data and what a newcomer types about it."""

    file: str
    train: tuple[str, ...]
    roles: dict[str, int] = field(default_factory=dict)
    """Flags that name a column, by its place: what is put in once the columns turn out to have no names."""


TREES = ("--eval-fraction", "0.2", "--rounds", "30")
PAIRS = ("--model", "factorization", "--user", "user", "--item", "item", "--eval-fraction", "0.1", "--rounds", "3")
SETS = [
    Set("tabular/abalone.csv", ("--label", "rings", *TREES), {"--label": -1}),
    Set("tabular/mammography.csv", ("--label", "class", *TREES), {"--label": -1}),
    Set("tabular/oil-spill.csv", ("--label", "class", *TREES), {"--label": -1}),
    Set("tabular/phoneme.csv", ("--label", "class", *TREES), {"--label": -1}),
    Set("tabular/taxis.csv", ("--label", "fare", *TREES)),
    Set("tabular/winequality-white.csv", ("--label", "quality", *TREES), {"--label": -1}),
    Set("events/amazon-beauty-train.txt", PAIRS, {"--user": 0, "--item": 1}),
    Set("events/lastfm-train.txt", PAIRS, {"--user": 0, "--item": 1}),
    Set(
        "events/online-retail.parquet",
        (*("--model", "factorization", "--user", "CustomerID", "--item", "StockCode", "--time", "InvoiceDate"),
         *("--eval-by", "time", "--eval-fraction", "0.1", "--rounds", "3")),
    ),
]  # fmt: skip


def dray(*arguments: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "dray", *arguments], cwd=cwd, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def taught(arguments: Sequence[str], said: str, roles: dict[str, int]) -> list[str]:
    """Return the arguments with what the messages told put in."""
    better = list(arguments)
    for found in _FLAGS.findall(said):
        flag, value = split(found)
        known = [better[at : at + 2] for at in range(len(better))]
        is_theirs = value.startswith("names=")  # names are the user's to say, and optional
        if flag in ("--read", "--format", "--time-form") and not is_theirs and [flag, value] not in known:
            better += [flag, value]
    if names := _NAMES.search(said):
        places = int(names[1]) + 1
        for flag, place in roles.items():
            better[better.index(flag) + 1] = f"f{place % places}"
    return better


def tries(command: Sequence[str], roles: dict[str, int], cwd: Path) -> tuple[int, list[str], str]:
    """Return how many tries a command took, and the arguments that worked."""
    arguments, said = list(command), ""
    for number in range(1, MOST_TRIES + 1):
        code, now = dray(*arguments, cwd=cwd)
        said += now
        if code == 0:
            return number, arguments, now
        better = taught(arguments, said, roles)
        if better == arguments:
            break
        arguments = better
    return 0, arguments, said


def write_part(source: Path, trained: list[str], cwd: Path) -> int:
    """Write some rows of a set anew, as CSV with the model's names of the columns and as JSON lines."""
    rows = read_rows(source, trained)
    names = list(rows[0])
    with (cwd / "part.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    (cwd / "part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


def read_rows(source: Path, trained: list[str]) -> list[dict[str, object]]:
    if source.suffix == ".parquet":
        table = pq.read_table(source).slice(1000, PART)
        return [
            {name: None if value is None else str(value) for name, value in row.items()} for row in table.to_pylist()
        ]
    delimiter = " " if source.suffix == ".txt" else ","
    lines = list(csv.reader(source.read_text().splitlines(), delimiter=delimiter))
    if any("header=false" in argument for argument in trained):
        return [{f"f{at}": cell for at, cell in enumerate(cells)} for cells in lines[:PART]]
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[1 : PART + 1]]


def try_set(one: Set, directory: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="dray-contact-") as place:
        cwd = Path(place)
        os.environ["XDG_CACHE_HOME"] = str(cwd / "cache")
        source = directory / one.file
        found: dict[str, object] = {"set": one.file}
        found["describe"], _, said = tries(["data", "describe", str(source)], {}, cwd)
        # A newcomer looks first: what describe has told is known when the training is typed.
        found["train"], trained, said = tries(["train", str(source), *one.train, "--out", "run"], one.roles, cwd)
        if not found["train"]:
            return found | {"said": said[-600:]}
        rows = write_part(source, trained, cwd)
        for kind in ("csv", "jsonl"):
            out = f"out.{kind}"
            found[kind], _, said = tries(["predict", "run", f"part.{kind}", out], {}, cwd)
            if found[kind]:
                written = (cwd / out).read_text().splitlines()
                found[f"{kind} rows"] = f"{len(written) - (kind == 'csv')} of {rows}"
            else:
                found["said"] = said[-600:]
        return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", help="a part of a set's name")
    asked = parser.parse_args()
    columns = ("set", "describe", "train", "csv", "jsonl", "csv rows", "jsonl rows")
    print(("{:<32}" + " {:>10}" * 6).format(*columns))
    for one in SETS:
        if asked.only and asked.only not in one.file:
            continue
        row = try_set(one, asked.directory.resolve())
        print(("{:<32}" + " {:>10}" * 6).format(*(str(row.get(name, "-")) for name in columns)), flush=True)
        if "said" in row:
            print(row["said"])
