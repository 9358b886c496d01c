"""dray.map beside the alternatives: small items, long items, killers, a large array, no end.

Small items take about a second, so the fastest of several runs counts, not the median: whatever else the machine does
only adds to it. A library with five chunk sizes has five times as many chances for that as dray.

python benchmarks/mapping.py            100,000 items of about 20 us, 200 of 0.2 s, 200 MB, 60 s; 8 repeats
python benchmarks/mapping.py --quick    10,000 items, 40, 20 MB, 10 s; once
"""

import compileall
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench
import measure
import reporting
from reporting import Must

import dray

DRAY, LOOP, RAY = "dray.map", "a loop", "Ray, a task an item"
CHUNKS = (None, 100, 1000, 5000, 12_500)
SLOTS = 2
NAP_S = 0.2
PARTS = {"long": ("long", "killers"), "large": ("large", "large_on_ray"), "endless": ("endless",)}


@dataclass
class Runs:
    """What one way did, a value for each repeat."""

    seconds: list[float] = field(default_factory=list)
    peak_memory_bytes: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def fastest_s(self) -> float | None:
        """The fastest: what else runs on the machine only ever adds, and by seconds."""
        return min(self.seconds, default=None)


@dataclass(frozen=True)
class Sizes:
    items: int
    long_items: int
    megabytes: int
    endless_s: float
    repeats: int


def chunk_option(chunk: int | None) -> list[str]:
    return [f"--chunk={chunk}"] if chunk else []


def ways() -> dict[str, tuple[str, ...]]:
    """Every way to map small items, with its arguments. The others get the chunk size that suits them best."""
    chunked = {
        f"{name}, {f'chunks of {chunk}' if chunk else 'its own chunks'}": (way, *chunk_option(chunk))
        for name, way in (("multiprocessing.Pool", "pool"), ("joblib", "joblib"))
        for chunk in CHUNKS
    }  # fmt: skip
    return {LOOP: ("loop",), DRAY: ("dray",), **chunked, RAY: ("ray",)}


def main() -> int:
    parser = bench.options("Map functions over items with dray and with the alternatives.")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--only", choices=["small", "long", "large", "endless"], action="append")
    asked = parser.parse_args()
    sizes = Sizes(10_000, 40, 20, 10, 1) if asked.quick else Sizes(100_000, 200, 200, 60, 8)
    repeats = asked.repeats or sizes.repeats
    parts = asked.only or ["small", "long", "large", "endless"]
    small: dict[str, Runs] = {}
    figures: dict[str, Any] = {}
    compileall.compile_dir(Path(dray.__file__).parent, quiet=1)  # as in any installation: fresh processes load it
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        if "small" in parts:
            small = _small(sizes.items, repeats, env, scratch)
        for part, whats in (
            ("long", ("long", "killers")),
            ("large", ("large", "large_on_ray")),
            ("endless", ("endless",)),
        ):
            for what in whats if part in parts else ():
                figures[what] = _measured(what, sizes, min(repeats, 3) if part == "long" else 1, env, scratch)

    title = (
        f"Mapping: {sizes.items:,} small items, {sizes.long_items} of {NAP_S} s, an array of {sizes.megabytes} MB, "
        f"{sizes.endless_s:g} s without end; {asked.cores} cores"
    )
    tables = [table for table in (_small_table(small, sizes), _table(figures, sizes)) if table]
    complete = not asked.quick and not asked.only and not any(runs.failures for runs in small.values())
    reporting.publish(
        "mapping", title, machine, tables, musts(small, figures, sizes),
        {"small": {name: vars(runs) for name, runs in small.items()}, **figures}, save=complete,
    )  # fmt: skip
    failed = [f"{name}: {runs.failures[0]}" for name, runs in small.items() if runs.failures]
    failed += [f"{what}: {found['error']}" for what, found in figures.items() if "error" in found]
    for problem in failed:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if failed else 0


def _small(items: int, repeats: int, env: dict[str, str], scratch: Path) -> dict[str, Runs]:
    results = {name: Runs() for name in ways()}
    # Interleaved, so that a slow minute does not hit one way only; every chunk size as often as dray.
    for repeat in range(repeats):
        for name in ways():
            if name != RAY or not repeat:  # that one takes minutes
                _small_once(name, items, results[name], env, scratch)
    return results


def _small_once(name: str, items: int, runs: Runs, env: dict[str, str], scratch: Path) -> None:
    print(f"{name} ... ", end="", flush=True)
    try:
        measured = measure.run(
            bench.contender("mapping_small.py", *ways()[name], "--items", items), env, scratch / "run"
        )
    except measure.CommandFailedError as problem:
        runs.failures.append(str(problem))
        print(f"failed: {problem}", flush=True)
        return
    runs.seconds.append(measured.report["seconds"]["map"])
    runs.peak_memory_bytes.append(measured.peak_memory_bytes)
    print(f"{runs.seconds[-1]:.2f} s", flush=True)


def _measured(what: str, sizes: Sizes, repeats: int, env: dict[str, str], scratch: Path) -> dict[str, Any]:
    size = {"long": sizes.long_items, "killers": sizes.long_items, "endless": sizes.endless_s}.get(
        what, sizes.megabytes
    )
    found: dict[str, Any] = {"seconds": []}
    for repeat in range(repeats):
        print(f"[{repeat + 1}/{repeats}] {what} ... ", end="", flush=True)
        try:
            measured = measure.run(bench.contender("mapping_dray.py", what, "--size", size), env, scratch / "run")
        except measure.CommandFailedError as problem:
            print(f"failed: {problem}", flush=True)
            return {**found, "error": str(problem)}
        found |= {key: value for key, value in measured.report.items() if key != "seconds"}
        found["seconds"].append(measured.report["seconds"].get("map", measured.seconds))
        found["peak_memory_bytes"] = measured.peak_memory_bytes
        found["left_behind"] = measured.left_behind
        print(f"{found['seconds'][-1]:.2f} s", flush=True)
    return found


def _best(small: dict[str, Runs], start: str) -> Runs:
    """Return a library at the chunk size that suits it best."""
    found = [runs for name, runs in small.items() if name.startswith(start) and runs.seconds]
    return min(found, key=lambda runs: min(runs.seconds), default=Runs())


def musts(small: dict[str, Runs], figures: dict[str, Any], sizes: Sizes) -> list[Must]:
    ours = small.get(DRAY, Runs()).fastest_s

    def times(other: Runs) -> float | None:
        return other.fastest_s / ours if ours and other.fastest_s else None

    def share() -> float | None:
        seconds = figures.get("long", {}).get("seconds")
        return 100 * sizes.long_items * NAP_S / SLOTS / statistics.median(seconds) if seconds else None

    def figure(what: str, key: str, unit: float = 1) -> float | None:
        value = figures.get(what, {}).get(key)
        return value / unit if value is not None else None

    return [
        Must("small items, throughput against a Ray task for each", times(small.get(RAY, Runs())), 50, at_least=True),
        Must("small items, against joblib at its best chunk size", times(_best(small, "joblib")), 1.0, at_least=True),
        Must(
            "small items, against multiprocessing.Pool at its best chunk size",
            times(_best(small, "multiprocessing")), 1.0, at_least=True,
        ),
        Must(f"items of {NAP_S} s on {SLOTS} slots, share of perfect", share(), 97, " %", at_least=True),
        Must("results missing when one item in 50 kills its process", figure("killers", "missing"), 0, ""),
        Must(f"{sizes.megabytes} MB in each item of three maps, stored", figure("large", "stored"), 1, " times"),
        Must(f"{sizes.megabytes} MB in each item, put into Ray's store", figure("large_on_ray", "stored"), 1, " times"),
        Must("an endless iterator, spread of memory", figure("endless", "spread_bytes", 1e6), 50, " MB"),
    ]  # fmt: skip


def _small_table(small: dict[str, Runs], sizes: Sizes) -> str:
    ours = small.get(DRAY, Runs()).fastest_s
    rows = []
    for name, runs in small.items():
        if not runs.seconds:
            rows.append([name, "failed", *["-"] * 4])
            continue
        fastest = min(runs.seconds)
        rows.append([
            name, f"{fastest:.2f}", f"{statistics.median(runs.seconds):.2f} of {len(runs.seconds)}",
            f"{sizes.items / fastest:,.0f}", reporting.ratio(fastest, ours),
            f"{statistics.median(runs.peak_memory_bytes) / 1e6:.0f} MB",
        ])  # fmt: skip
    header = [f"{sizes.items:,} small items", "fastest s, start included", "median s", "items/s", "time/dray", "memory"]
    return reporting.table(header, rows) if rows else ""


def _table(figures: dict[str, Any], sizes: Sizes) -> str:
    names = {
        "long": f"{sizes.long_items} items of {NAP_S} s",
        "killers": "the same, one in 50 kills its process",
        "large": f"{sizes.megabytes} MB with each of 100 items, three maps",
        "large_on_ray": f"{sizes.megabytes} MB with each of 100 items, Ray started",
        "endless": f"arrays of 10 kB without end, {sizes.endless_s:g} s",
    }
    rows = []
    for what, found in figures.items():
        if "error" in found:
            rows.append([names[what], "failed", "-", "-"])
            continue
        more = {"killers": "failed", "large": "stored", "large_on_ray": "stored", "endless": "items"}.get(what)
        seconds = statistics.median(found["seconds"])
        rows.append([
            names[what], f"{seconds:.2f}", f"{found['peak_memory_bytes'] / 1e6:.0f} MB",
            f"{more} {found[more]:,}" if more else "",
        ])  # fmt: skip
    return reporting.table(["dray.map", "s", "peak memory", ""], rows) if rows else ""


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
