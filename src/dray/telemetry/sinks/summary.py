"""The last words of a run: what came of it, how long it took, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dray.telemetry.format import count, duration, metric, size
from dray.telemetry.progress import Failures, Progress


def summary(progress: Progress, now: float) -> list[tuple[str, str]]:
    """Return (label, text) pairs for a finished run, from its result and what was seen on the way."""
    result = progress.result or {}
    lines = [
        ("Rounds", _rounds(result)) if result.get("rounds") is not None else ("Rows", _rows(result)),
        ("Metric", _metrics(progress, result)),
        ("Time", _times(progress, result, now)),
        ("Failures", describe_failures(_failures(progress, result))),
        ("Cores", _cores(result.get("threads") or [])),
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
    text = f"{failures.lost} worker{'s' if failures.lost != 1 else ''} lost"
    text += f", {duration(failures.seconds)} to recover" if failures.seconds else ""
    return text + (f", {count(failures.rows)} rows reloaded" if failures.rows else "")


def how_to_resume(progress: Progress) -> str:
    """Return the command that goes on with a run that was stopped."""
    return f"dray resume {_short(progress.directory)}" if progress.stopped and progress.directory else ""


def _failures(progress: Progress, result: dict[str, Any]) -> Failures:
    """What the result says, which counts those before a resumption too; what was seen where it says nothing."""
    seen, seconds = progress.failures, result.get("seconds")
    return Failures(
        max(result.get("failures") or 0, seen.lost),
        (seconds.get("recovery") if isinstance(seconds, dict) else None) or seen.seconds,
        result.get("rows_reloaded") or seen.rows,
    )


def _rows(result: dict[str, Any]) -> str:
    return count(result["rows"]) if result.get("rows") is not None else ""


def _rounds(result: dict[str, Any]) -> str:
    text = f"{count(result['rounds'])}"
    if result.get("rows") is not None and result.get("features") is not None:
        text += f" on {count(result['rows'])} rows x {count(result['features'])} features"
    if result.get("workers") is not None:
        workers = result["workers"]
        text += ", in this process" if not workers else f", on {workers} worker{'s' if workers != 1 else ''}"
    return text


def _metrics(progress: Progress, result: dict[str, Any]) -> str:
    if progress.best and progress.knows_all_rounds:
        parts = [f"{name} {metric(best.value)} at round {best.round}" for name, best in progress.best.items()]
        return ", ".join(f"best {part}" for part in parts)
    numbers = {name: value for name, value in (result.get("metrics") or {}).items() if isinstance(value, int | float)}
    return ", ".join(f"{name} {metric(value)}" for name, value in numbers.items())


def _times(progress: Progress, result: dict[str, Any], now: float) -> str:
    seconds = result.get("seconds")
    if isinstance(seconds, int | float):
        rate = result.get("rows_per_second")
        return duration(seconds) + (f" ({count(rate)} rows a second)" if rate else "")
    by_phase = {k: v for k, v in (seconds or progress.seconds_by_phase(now)).items() if isinstance(v, int | float)}
    total = by_phase.pop("total", progress.elapsed(now))
    by_phase.pop("recovery", None)  # told with the failures
    parts = ", ".join(f"{name} {duration(value)}" for name, value in by_phase.items() if value >= 0.005)
    return duration(total) + (f" ({parts})" if parts else "")


def _cores(threads: list[dict[str, Any]]) -> str:
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


def _next(progress: Progress, result: dict[str, Any]) -> str:
    directory = str(result.get("directory") or progress.directory or "")
    return f"dray predict {_short(directory)} DATA OUT" if directory and result.get("model") else ""


def _short(location: str) -> str:
    """Return a path below the working directory relative to it, as it would be typed."""
    path = Path(location)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return location
