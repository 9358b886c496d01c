"""What a benchmark says: the hardware it ran on, its tables, and whether each figure is what it must be."""

import datetime
import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from measure import Measured

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("dray", "xgboost", "ray", "dask", "pandas", "pyarrow", "numpy")


@dataclass(frozen=True)
class Must:
    """A figure to reach."""

    what: str
    value: float | None
    """None when it was not measured."""
    limit: float
    unit: str = "x"
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "----"
        reached = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "PASS" if reached else "MISS"

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.2f}{self.unit}"
        sign = ">=" if self.at_least else "<="
        return f"{self.verdict}  {self.what}: {value} (must be {sign} {self.limit:g}{self.unit})"


def hardware() -> dict[str, Any]:
    """Return the machine and the versions, with its load beforehand: figures from a busy machine mean little."""
    return {
        "cpu": _cpu_model(),
        "cores_used": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average_before": round(os.getloadavg()[0], 2),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cells[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)),
        ]
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|"
        + "|".join("-" * (width + 2) if index == 0 else "-" * (width + 1) + ":" for index, width in enumerate(widths))
        + "|"
    )
    return "\n".join([line(header), rule, *map(line, rows)])


def spread(values: Sequence[float]) -> str:
    """Return the median with the smallest and the largest."""
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def ratio(value: float | None, to: float | None) -> str:
    return f"{value / to:.2f}x" if value and to else "-"


def figures(measured: Measured) -> dict[str, Any]:
    """Return what is worth keeping of a measurement."""
    return {
        "seconds": measured.seconds,
        "peak_memory_bytes": measured.peak_memory_bytes,
        "rss_sum_bytes": measured.rss_sum_bytes,
        "inner_seconds": measured.report.get("seconds", {}),
    }


def publish(
    name: str, title: str, machine: dict[str, Any], tables: Sequence[str], musts: Sequence[Must], data: Any, save: bool
) -> None:
    """Print the result and, for a run at full size, save it as JSON and Markdown under its date."""
    verdicts = "\n".join(f"- {must}" for must in musts)
    body = "\n\n".join([*tables, verdicts])
    print(f"\n{title}\n\n{body}\n")
    if not save:
        print("Not saved: only a complete run at full size is.")
        return
    RESULTS.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    stem = RESULTS / f"{name}-{today}"
    document = {
        "benchmark": name,
        "date": today,
        "hardware": machine,
        "musts": [{**asdict(must), "verdict": must.verdict} for must in musts],
        "data": data,
    }
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    stem.with_suffix(".md").write_text(f"# {title}\n\n{today}. {sentence(machine)}\n\n{body}\n")
    print(f"Saved {stem}.md and .json")


def sentence(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores_used']} of {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['kernel']}, Python {machine['python']}, {versions}. "
        f"Load average before the start: {machine['load_average_before']}."
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
