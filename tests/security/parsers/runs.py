"""Files of run directories."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dray.batch import output
from dray.cli.runs import _print_table
from dray.elastic.checkpoint_writer import as_checkpoint
from dray.errors import DrayError
from dray.events.log import LocalLog
from dray.learners.stored import learner_of, open_recommender
from dray.learners.xgboost.previous import read_previous
from dray.runs.alive import beat, is_alive
from dray.runs.checkpoints import Checkpoints, WrittenCheckpoint
from dray.runs.comparing import compare_runs
from dray.runs.contents import contents_of_run
from dray.runs.directory import RunDirectory, open_resumable, open_run
from dray.runs.listing import RunSummary, list_runs
from dray.runs.parameters import differing
from dray.runs.recording import Recording
from dray.runs.trained_on import trained_on
from dray.storage import DEFAULT
from dray.training.resume import _config
from security.attack import Parser
from security.real import KEPT, run_of

FINISHED = ("binary", "multiclass", "regression", "continued", "explicit", "implicit")
KILLED = ("killed", "killed-explicit", "killed-csv")


def _each(**reads: Callable[[], Any]) -> dict[str, Any]:
    """Read in every way; what one way refuses, another may take. Returns what each one read."""
    found = {}
    for name, read in reads.items():
        with suppress(DrayError):
            found[name] = read()
    return found


def _file(
    cases: tuple[str, ...],
    name: str,
    read: Callable[[str], Any],
    right: Callable[[Any], bool],
    *,
    structured: bool = False,
) -> Parser:
    """Return a parser of one file of a run, among its other files."""
    places: list[str] = []

    def inputs() -> list[bytes]:
        places.append(run_of(cases[0]))
        found = [(KEPT / case / "run" / name).read_bytes() for case in cases if (KEPT / case / "run" / name).is_file()]
        return [content.replace(b"@HERE@", b"/nowhere") for content in found]

    def parse(content: bytes) -> Any:
        Path(places[0], name).write_bytes(content)
        return read(places[0])

    return Parser(inputs, parse, right, structured)


def _manifest(place: str) -> dict[str, Any]:
    return _each(
        listed=lambda: _listed(place),
        compared=lambda: compare_runs(place, place),
        contents=lambda: contents_of_run(place, DEFAULT),
        config=lambda: _config(open_run(place), DEFAULT, {}),
        resumable=lambda: open_resumable(place),
        trained_on=lambda: trained_on(open_run(place)),
        model=lambda: open_run(place).read_result("model.ubj"),
        learner=lambda: learner_of(place, DEFAULT),
        recommender=lambda: open_recommender(place, DEFAULT),
        alive=lambda: is_alive(open_run(place)),
    )


def _listed(place: str) -> list[RunSummary]:
    found = list_runs(place)
    _print_table(found, differing([summary.parameters for summary in found if summary.parameters]))
    return found


def _is_read(read: dict[str, Any]) -> bool:
    """Whether a manifest was read in every way that its status allows; it lies among files of an XGBoost run."""
    (summary,) = read["listed"]
    wanted = {"listed", "compared", "contents", "config", "trained_on", "model", "learner", "alive"}
    wanted |= {"resumable"} if summary.status == "lost" else set()
    return summary.status in ("finished", "lost") and read.keys() == wanted and read["model"] and not read["alive"]


def _checkpoint(place: str) -> WrittenCheckpoint:
    run = open_run(place)
    checkpoint = Checkpoints(run).read()
    as_checkpoint(checkpoint)
    run._restore(checkpoint)
    return checkpoint


def _events(place: str) -> list[str]:
    """Go on with a log; return its lines."""
    file = Path(place, "events.jsonl")
    log = LocalLog(str(file))
    log.append("{}\n")
    log.close()
    return file.read_text(errors="replace").splitlines()


def _recorded(place: str) -> Recording:
    """Read the tables of a run as one that goes on after many rounds does."""
    run = open_run(place)
    run._restore(WrittenCheckpoint(round=1000, model=b"", rounds=()))
    return run._recording


def _elsewhere(place: str) -> RunDirectory:
    run = open_run(place)
    run.document["process"]["host"] = "elsewhere"
    return run


def _alive() -> Parser:
    """Return a parser of the sign of life of a process on another host; a real one was left just now."""
    places: list[str] = []

    def inputs() -> list[bytes]:
        places.append(run_of("killed"))
        beat(open_run(places[0]))
        return [Path(places[0], "alive").read_bytes()]

    def parse(content: bytes) -> bool:
        Path(places[0], "alive").write_bytes(content)
        return is_alive(_elsewhere(places[0]))

    return Parser(inputs, parse, lambda alive: alive is True, structured=True)


def _mark() -> Parser:
    """The list of what dray wrote into a directory: with it the directory may be replaced."""
    places: list[Path] = []

    def inputs() -> list[bytes]:
        place = Path(tempfile.mkdtemp(), "output")
        places.append(place)
        with output.Output(str(place), DEFAULT, is_file=False) as out:
            place.mkdir(exist_ok=True)
            Path(out.writing(str(place / "part-0.parquet"))).write_bytes(b"rows")
        return [(place / output.MARK).read_bytes()]

    def parse(content: bytes) -> list[str]:
        (places[0] / output.MARK).write_bytes(content)
        return output._foreign(str(places[0]))

    return Parser(inputs, parse, lambda foreign: foreign == [], structured=True)


PARSERS = {
    "output_mark": _mark(),
    "manifest": _file((*FINISHED, *KILLED), "run.json", _manifest, _is_read, structured=True),
    "data": _file(
        (*FINISHED, *KILLED),
        "data.json",
        lambda place: trained_on(open_run(place)),
        lambda read: all(rows > 0 for _, rows, _ in read[-1].files) and len(read[-1].files) > 0,
        structured=True,
    ),
    "latest": _file(KILLED[:1], "checkpoints/latest.json", _checkpoint, lambda read: read.round == 10, structured=True),
    "checkpoint": _file(KILLED[:1], "checkpoints/round-000010.model", _checkpoint, lambda read: read.round == 10),
    "alive": _alive(),
    "events": _file(
        (*FINISHED, *KILLED),
        "events.jsonl",
        _events,
        lambda lines: len(lines) > 1 and lines[-1] == "{}" and all(json.loads(line) for line in lines[:-1]),
        structured=True,
    ),
    "rounds": _file(FINISHED, "rounds.parquet", _recorded, lambda recording: len(recording._rounds) > 0),
    "workers": _file(FINISHED, "workers.parquet", _recorded, lambda recording: len(recording._batches) > 0),
    "cuts": _file(
        ("regression", "continued"),
        "cuts.parquet",
        lambda place: read_previous(place, DEFAULT),
        lambda previous: previous.bins > 1 and previous.cuts.size > 0,
    ),
}
