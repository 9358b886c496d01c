"""Recommenders beside scikit-surprise and `implicit`: speed, accuracy, growth, memory.

python benchmarks/factorization.py                     20M ratings, 5M events, 3 repeats: half an hour or more
python benchmarks/factorization.py --quick             a tenth, once
python benchmarks/factorization.py --ratings FILE      also 5 folds of a real file: u.data, ratings.dat, ratings.csv
python benchmarks/factorization.py --learner-alone     without `dray train`: the learner in a script, no workers

The contenders come with an extra: pip install 'dray[bench-recommend]'. Where they do not go together with dray, make an
environment of their own (pip install scikit-surprise implicit pyarrow) and give its Python with --surprise-python and
--implicit-python.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import bench
import factorization_explicit
import factorization_implicit
import reporting
from factorization_job import Job, Part

PARTS: dict[str, Callable[[Job], Part]] = {
    "speed": factorization_explicit.speed,
    "accuracy": factorization_explicit.accuracy,
    "growth": factorization_explicit.growth,
    "implicit": factorization_implicit.speed,
    "top": factorization_implicit.top,
    "one": factorization_implicit.one_user,
}


def main() -> int:
    parser = bench.options("Factorize with dray, scikit-surprise and implicit.")
    parser.add_argument("--ratings", type=Path, action="append", default=[], metavar="FILE", help="may be repeated")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be repeated")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--learner-alone", action="store_true", help="measure the learner, not the command")
    parser.add_argument("--surprise-python", default=sys.executable, metavar="PATH", help="has scikit-surprise")
    parser.add_argument("--implicit-python", default=sys.executable, metavar="PATH", help="has implicit")
    asked = parser.parse_args()
    scale, repeats = (10, asked.repeats or 1) if asked.quick else (1, asked.repeats or 3)
    chosen = {name: part for name, part in PARTS.items() if not asked.only or name in asked.only}
    if chosen.keys() & {"speed", "accuracy"}:
        _require(asked.surprise_python, "surprise", "scikit-surprise", "--surprise-python")
    if chosen.keys() & {"implicit", "top"}:
        _require(asked.implicit_python, "implicit", "implicit", "--implicit-python")
    found: dict[str, Part] = {}
    with bench.session(asked.cores) as (env, scratch):
        machine = reporting.hardware()
        machine["versions"] |= {
            "numba": _version(sys.executable, "numba"),
            "scikit-surprise": _version(asked.surprise_python, "scikit-surprise"),
            "implicit": _version(asked.implicit_python, "implicit"),
        }
        job = Job(
            asked.data, scratch, env, asked.dray, asked.cores, repeats, scale, asked.learner_alone,
            asked.surprise_python, asked.implicit_python, asked.ratings,
        )  # fmt: skip
        for name, part in chosen.items():
            print(f"-- {name}", flush=True)
            found[name] = part(job)
    reporting.publish(
        "factorization",
        f"Recommenders, {asked.cores} cores, median of {repeats}",
        machine,
        [table for part in found.values() for table in part.tables],
        [must for part in found.values() for must in part.musts],
        {name: part.figures for name, part in found.items()},
        save=not asked.quick and not asked.only and not asked.learner_alone,
    )
    return 0


def _require(python: str, module: str, package: str, flag: str) -> None:
    if subprocess.run([python, "-c", f"import {module}, pyarrow"], capture_output=True, check=False).returncode:
        raise SystemExit(
            f"{python} cannot import {module} and pyarrow.\n"
            f"pip install {package} pyarrow, or give a Python that has them with {flag} PATH."
        )


def _version(python: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip() or "-"


if __name__ == "__main__":
    sys.exit(bench.exit_code(main))
