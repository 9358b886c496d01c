"""The last words of a run: what came of it, how long it took, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

from dray.events.figures import Failures
from dray.events.format import count, duration, many, metric, size
from dray.events.metrics import is_better
from dray.events.run_view import COPY, RunView

_WORTH_TELLING = 0.001
"""A metric that was better by a smaller share was as good."""
_TELLING_S = 1.0
"""The cores of a shorter training tell nothing."""


def summary(progress: RunView, now: float) -> list[tuple[str, str]]:
    """Return (label, text) pairs for a finished run, from its result and what was seen on the way."""
    result = progress.result or {}
    lines = [
        _work(result),
        ("Metric", _metrics(progress, result)),
        ("Verdict", str(result.get("verdict") or "")),
        ("Time", _times(progress, result, now)),
        ("Failures", describe_failures(_failures(progress, result))),
        ("Cores", _cores(result)),
        ("Memory", f"{size(result['peak_memory_bytes'])} at most" if result.get("peak_memory_bytes") else ""),
        ("Output", _short(result["output"]) if isinstance(result.get("output"), str) else ""),
        ("Run", _short(str(result.get("directory") or progress.directory or ""))),
        ("Model", _model(result)),
        ("Next", _next(progress, result)),
    ]
    return [(label, text) for label, text in lines if text]


def describe_failures(failures: Failures) -> str:
    """Return "2 workers lost, 6.1 s to recover, 1,000,000 rows reloaded", or nothing when there were none."""
    if not failures.lost:
        return ""
    text = f"{many(failures.lost, 'workers')} lost"
    text += f", {duration(failures.seconds)} to recover" if failures.seconds else ""
    return text + (f", {many(failures.rows, 'rows')} reloaded" if failures.rows else "")


def how_to_resume(progress: RunView) -> str:
    """Return the command that goes on with a run that was stopped."""
    return f"dray resume {_short(progress.directory)}" if progress.stopped and progress.directory else ""


def _failures(progress: RunView, result: dict[str, Any]) -> Failures:
    """What the result says, which counts those before a resumption too; what was seen where it says nothing."""
    seen, seconds = progress.failures, result.get("seconds")
    return Failures(
        max(result.get("failures") or 0, seen.lost),
        (seconds.get("recovery") if isinstance(seconds, dict) else None) or seen.seconds,
        result.get("rows_reloaded") or seen.rows,
    )


def _work(result: dict[str, Any]) -> tuple[str, str]:
    """What was done: rounds of trees, epochs of a recommender, rows of all else."""
    if result.get("rounds") is None:
        return "Rows", _rows(result)
    return ("Epochs", _epochs(result)) if is_recommender(result) else ("Rounds", _rounds(result))


def is_recommender(result: dict[str, Any]) -> bool:
    """Whether the result counts users, as only that of a recommender does."""
    return "users" in result


def _rows(result: dict[str, Any]) -> str:
    return count(result["rows"]) if result.get("rows") is not None else ""


def _rounds(result: dict[str, Any]) -> str:
    text = f"{count(result['rounds'])}"
    if result.get("rows") is not None and result.get("features") is not None:
        text += f" on {many(result['rows'], 'rows')} x {many(result['features'], 'features')}"
    return text + _where(result)


def _epochs(result: dict[str, Any]) -> str:
    """Return "20 on 1,000,000 ratings, 5,000 users x 3,000 items, 100 factors, on 2 workers"."""
    noun = "ratings" if result.get("objective") == "explicit" else "pairs"
    text = f"{count(result['rounds'])} on {many(result['pairs'], noun)}"
    text += f", {many(result['users'], 'users')} x {many(result['items'], 'items')}"
    text += f", {many(result['factors'], 'factors')}" if result.get("factors") else ""
    return text + _where(result)


def _where(result: dict[str, Any]) -> str:
    workers = result.get("workers")
    if workers is None:
        return ""
    return f", on {many(workers, 'workers')}" if workers else ", in this process"


def _metrics(progress: RunView, result: dict[str, Any]) -> str:
    """Return what the saved model has: "eval-auc 0.92600, round 100, saved", and whether another was better."""
    numbers = {name: value for name, value in (result.get("metrics") or {}).items() if isinstance(value, int | float)}
    text = ", ".join(f"{name} {metric(value)}" for name, value in numbers.items())
    best, rounds = result.get("best_round"), result.get("rounds")
    if result.get("eval_rows") == 0 and rounds is not None:
        return (
            f"{text}; " * bool(text) + "nothing was set aside to evaluate on: --eval-fraction 0.2 tells how good it is"
        )
    if is_recommender(result) or not text:
        return text + (f", at epoch {best}" if text and best not in (None, rounds) else "")
    return f"{text}, {_saved(progress, numbers, rounds)}"


def _saved(progress: RunView, metrics: dict[str, int | float], rounds: int | None) -> str:
    """Return "round 100, saved; best was 0.92790 at round 39: --early-stop 10 would keep it"."""
    name = list(metrics)[-1]  # early stopping goes by it
    best = progress.best.get(name) if progress.knows_all_rounds else None
    if best is not None and best.value == metrics[name]:
        return f"round {best.round}{f' of {rounds}' if best.round != rounds else ''}, saved"
    saved = f"round {rounds}, saved" if rounds is not None else "saved"
    if best is None or not is_better(name, best.value, metrics[name]):
        return saved
    if abs(best.value - metrics[name]) < _WORTH_TELLING * abs(metrics[name]):
        return saved
    whose = f"best {name}" if len(metrics) > 1 else "best"
    patience = _patience(progress.history[name], name, best.round)
    where = f"{metric(best.value)} at round {best.round}"
    return f"{saved}; {whose} was {where}: --early-stop {patience} would keep it"


def _patience(history: Mapping[int, float], name: str, until: int) -> int:
    """Return how many rounds without improvement to bear so as not to stop before a round: in tens."""
    last, best, longest = 0, nan, 1
    for number, value in sorted(history.items()):
        if number <= until and is_better(name, value, best):
            last, best, longest = number, value, max(longest, number - last)
    return 10 * (longest // 10 + 1)


def _times(progress: RunView, result: dict[str, Any], now: float) -> str:
    seconds = result.get("seconds")
    if isinstance(seconds, int | float):
        rate = result.get("rows_per_second")
        return duration(seconds) + (f" ({count(rate)} rows a second)" if rate else "")
    by_phase = {k: v for k, v in (seconds or progress.seconds_by_phase(now)).items() if isinstance(v, int | float)}
    total = by_phase.pop("total", progress.elapsed(now))
    by_phase.pop("recovery", None)  # told with the failures
    by_phase = {COPY: by_phase.pop(COPY, 0.0)} | by_phase  # it was the first
    parts = ", ".join(f"{name} {duration(value)}" for name, value in by_phase.items() if value >= 0.005)
    return duration(total) + (f" ({parts})" if parts else "")


def _cores(result: dict[str, Any]) -> str:
    threads, seconds = result.get("threads") or [], result.get("seconds")
    if isinstance(seconds, dict) and seconds.get("train", _TELLING_S) < _TELLING_S:
        return ""
    used = [entry["used"] for entry in threads if entry.get("used") is not None]
    decided = [entry["decided"] for entry in threads if entry.get("decided") is not None]
    if not used or not decided:
        return ""
    slow = [str(entry["worker"]) for entry in threads if entry.get("ok") is False]
    text = f"{sum(used):.1f} used of {sum(decided)} decided"
    return text + (f"; too few on worker {', '.join(slow)}" if slow else "")


def _model(result: dict[str, Any]) -> str:
    if not result.get("model"):
        return ""
    digest = str(result.get("model_digest") or "")
    return _short(str(result["model"])) + (f" ({digest[:23]})" if digest else "")


def _next(progress: RunView, result: dict[str, Any]) -> str:
    directory = str(result.get("directory") or progress.directory or "")
    if not directory or not result.get("model"):
        return ""
    if is_recommender(result):
        return f"dray recommend {_short(directory)} --top 10 --out DIR"
    return f"dray predict {_short(directory)} DATA OUT"


def _short(location: str) -> str:
    """Return a path below the working directory relative to it, as it would be typed."""
    path = Path(location)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return location
