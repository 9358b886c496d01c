"""Random runs, disturbed at random moments: each must finish, with the digest of an undisturbed one, and leave nothing.

python benchmarks/soak.py                  200 runs, of seeds from a random one on: about an hour on 2 idle cores
python benchmarks/soak.py --runs 10        ten
python benchmarks/soak.py --seed 7         of seeds from 7 on
python benchmarks/soak.py --only 1234      the run of one seed, again

A seed fixes what is done to a run and when; what the run is doing then is up to the machine. What is left of a failed
one is kept in runs/soak/SEED: its events, what it said, and the stacks of one that hung.
"""

import argparse
import collections
import contextlib
import datetime
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import bench
import measure
import psutil
import reporting
from soak_cluster import SoakCluster
from soak_plan import draw
from soak_run import Outcome, SoakRun
from soak_settings import Settings

KEPT = Path(__file__).parent.parent / "runs" / "soak"
FULL_RUNS = 200


def main() -> int:
    asked = _options()
    first = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    seeds = asked.only or range(first, first + asked.runs)
    machine, outcomes = reporting.hardware(), []
    with _place() as (env, scratch), contextlib.closing(SoakCluster(env, scratch)) as cluster:
        settings = Settings(scratch, env, asked.dray)
        for number, seed in enumerate(seeds, start=1):
            plan = draw(seed)
            print(f"[{number}/{len(seeds)}] seed {seed}: {plan} ... ", end="", flush=True)
            outcomes.append(SoakRun(plan, settings, cluster, env, scratch, KEPT / str(seed)).run(asked.limit))
            print(_told(outcomes[-1]), flush=True)
    failed = [outcome for outcome in outcomes if outcome.problem]
    report = _report(outcomes, failed)
    print(f"\n{report}")
    if len(outcomes) >= FULL_RUNS:
        _save(report, machine, seeds)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Disturb random runs at random moments.")
    parser.add_argument("--runs", type=int, default=FULL_RUNS, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the first run; the others have those that follow (random)")
    parser.add_argument("--only", type=int, action="append", metavar="SEED", help="just this run; may be repeated")
    parser.add_argument("--limit", type=float, default=180, metavar="SECONDS", help="longer is a hang (%(default)s)")
    parser.add_argument("--dray", default=str(Path(sys.executable).with_name("dray")), help="the dray command")
    return parser.parse_args()


@contextlib.contextmanager
def _place() -> Iterator[tuple[dict[str, str], Path]]:
    """Give the environment of every run and a directory that is their temporary one; end what is left of them."""
    measure.adopt_orphans()
    before = {child.pid for child in psutil.Process().children()}
    # So short that dray takes it for its own temporary directories too: they are looked for there.
    scratch = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    env = measure.clean_environment(
        TMPDIR=str(scratch),
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(32),
        RAY_TMPDIR=str(scratch / "ray"),
    )
    try:
        yield env, scratch
    finally:
        left = psutil.Process().children(recursive=True)
        measure.end({process for process in left if process.pid not in before}, grace_s=2)
        shutil.rmtree(scratch, ignore_errors=True)


def _told(outcome: Outcome) -> str:
    lost = f", {outcome.lost} lost" if outcome.lost else ""
    joined = f", {outcome.joined} joined" if outcome.joined else ""
    return f"{outcome.seconds:.1f} s{lost}{joined}, {f'FAILED: {outcome.problem}' if outcome.problem else 'ok'}"


def _report(outcomes: list[Outcome], failed: list[Outcome]) -> str:
    injected: collections.Counter[str] = collections.Counter()
    for outcome in outcomes:
        injected.update(outcome.injected)
    seconds = [outcome.seconds for outcome in outcomes]
    rows = [
        ["finished", f"{sum(o.finished for o in outcomes)} of {len(outcomes)}"],
        ["equal digests", f"{sum(o.same_digest for o in outcomes)} of {len(outcomes)}"],
        ["stray processes", str(sum(o.strays for o in outcomes))],
        ["directories left behind", str(sum(o.directories_left for o in outcomes))],
        ["disturbances", ", ".join(f"{count} x {kind}" for kind, count in sorted(injected.items())) or "none"],
        ["workers lost", str(sum(o.lost for o in outcomes))],
        ["workers joined in mid-run", str(sum(o.joined for o in outcomes))],
        ["rows reloaded or handed over", f"{sum(o.rows_reloaded for o in outcomes):,}"],
        ["seconds a run", f"{reporting.spread(seconds)}, {sum(seconds) / 60:.0f} minutes in all" if seconds else "-"],
    ]
    failures = [f"- seed {o.plan.seed} ({o.plan}): {o.problem}" for o in failed]
    return "\n".join([reporting.table(["what", "how many"], rows), *([""] if failures else []), *failures])


def _save(report: str, machine: dict, seeds: range) -> None:
    today = datetime.date.today().isoformat()
    file = reporting.RESULTS / f"soak-{today}.md"
    title = f"# Soak: {len(seeds)} random runs, seeds {seeds[0]} to {seeds[-1]}"
    file.write_text(f"{title}\n\n{today}. {reporting.sentence(machine)}\n\n{report}\n")
    print(f"Saved {file}")


if __name__ == "__main__":
    # As Ctrl-C: everything that was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(bench.exit_code(main))
    except KeyboardInterrupt:
        sys.exit(130)
