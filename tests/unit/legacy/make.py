"""Make the run directories in `kept/`: what dray 0.1.0 (cbdf20c, XGBoost 3.2.0) wrote. Not to be run again.

A run of today must be readable tomorrow, so what lies in `kept/` stays as the code of that commit made it; a later
format gets a folder and a script of its own. Each case has `run/`, and what `dray predict` answered then:
`predicted-eval.parquet` and `predicted-wide.parquet`. Its data stands in `kept/data/`, which cases share: train, eval,
and wide (eval with wider columns, more gaps and unseen categories). Places on the disk are written as @HERE@.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import dray

KEPT = Path(__file__).parent / "kept"
HERE = "@HERE@"
KEY = "@KEY@"
CITIES = np.array(["aachen", "bonn", "celle", "detmold", "essen"])
CLASSES = np.array(["bad", "fair", "good"])
COMMON: dict[str, Any] = {"label": "label", "ignore": ["id"], "workers": 0, "threads": 1}

CASES: dict[str, dict[str, Any]] = {
    "binary": {"rounds": 8, "early_stop": 4, "eval_fraction": 0.25, "params": {"max_depth": 3}},
    "multiclass": {"rounds": 3, "eval_fraction": 0.25, "params": {"max_depth": 2}},
    "regression": {"rounds": 6, "eval": ["data/eval.parquet"], "params": {"max_depth": 3, "max_bin": 600}},
    "continued": {"rounds": 4, "eval": ["data/eval.parquet"], "params": {"max_depth": 3, "max_bin": 600}},
    "dart": {"rounds": 6, "params": {"max_depth": 3, "booster": "dart", "rate_drop": 0.3}},
    "ranking": {"rounds": 5, "eval_fraction": 0.25, "group": "query", "params": {"max_depth": 3}},
    "killed": {"rounds": 40, "eval_fraction": 0.25, "params": {"max_depth": 2}},
    "killed-csv": {"rounds": 40, "eval_fraction": 0.25, "params": {"max_depth": 2}, "cache": "cache"},
}
RECOMMENDERS: dict[str, dict[str, Any]] = {
    "explicit": {"rating": "stars", "rounds": 4},
    "implicit": {"event": "type", "rounds": 3},
    "killed-explicit": {"rating": "stars", "rounds": 30},
}


DATA = {case: case for case in ("multiclass", "regression", "ranking", "killed-csv")}
DATA |= {"binary": "binary", "dart": "binary", "killed": "binary", "continued": "regression"}
DATA |= dict.fromkeys(RECOMMENDERS, "ratings")


def table(kind: str, rows: int, seed: int, *, wide: bool = False) -> pa.Table:
    """Return rows of every kind of column; `wide` ones have values, gaps and categories that training lacks."""
    random = np.random.default_rng(seed)
    amount = random.lognormal(3, 2, rows) * (50 if wide else 1)
    whole = random.integers(-5, 50, rows)
    flag = random.random(rows) < 0.4
    city = random.integers(0, len(CITIES), rows)
    signal = np.log(amount) / 2 + 0.05 * whole + flag + 0.5 * (city == 3) + random.normal(size=rows)
    hidden = random.random(rows) < (0.2 if wide else 0.05)
    signal = np.where(hidden & (random.random(rows) < 0.7), signal.max(), signal)
    names = np.where(random.random(rows) < 0.1, "zeven", CITIES[city]) if wide else CITIES[city]
    columns: dict[str, Any] = {
        "id": np.arange(rows, dtype=np.int32),
        "amount": pa.array(amount.astype(np.float32), mask=hidden),
        "whole": whole.astype(np.int16),
        "flag": flag,
        "city": pa.array(names, mask=random.random(rows) < 0.05),
    }
    if kind == "regression":
        columns["day"] = pa.array(random.integers(18_000, 20_000, rows).astype(np.int32)).cast(pa.date32())
        columns["moment"] = pa.array(random.integers(1_600_000_000, 1_600_900_000, rows)).cast(pa.timestamp("s"))
    if kind == "multiclass":
        columns["label"] = CLASSES[np.searchsorted([2, 4], signal)]
    elif kind == "ranking":
        columns["query"] = np.repeat(np.arange(rows), random.integers(2, 20, rows))[:rows]
        columns["label"] = np.searchsorted([2, 3, 4], signal)
    elif kind == "regression":
        columns["label"] = (10 + 3 * signal).astype(np.float32)
    else:
        columns["label"] = (signal > 3).astype(np.int8)
    return pa.table(columns)


def pairs(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    users, items = random.integers(0, 40, rows), random.integers(0, 25, rows)
    kinds = np.array(["view", "add_to_cart", "purchase"])
    return pa.table(
        {
            "user": [f"u{number:02}" for number in users],
            "item": items * 3,
            "stars": np.clip(3 + (users % 2 == items % 2) - 0.5 + random.normal(0, 0.3, rows), 1, 5).round(1),
            "type": kinds[random.choice(3, rows, p=[0.8, 0.15, 0.05])],
        }
    )


def make_data(kind: str) -> None:
    """Write data/, from the seeds: the same bytes for each case that shares them."""
    Path("data").mkdir()
    if kind == "ratings":
        pq.write_table(pairs(600, 1), "data/train.parquet", row_group_size=200, compression="zstd")
        pq.write_table(pairs(60, 2), "data/eval.parquet")
        return
    train = table(kind, 700 if kind == "regression" else 320, 1)
    if kind == "killed-csv":
        train = train.set_column(train.schema.get_field_index("city"), "city", train["city"].fill_null("none"))
        pyarrow.csv.write_csv(train, "data/train.csv")
        return
    pq.write_table(train, "data/train.parquet", row_group_size=400, compression="zstd")
    pq.write_table(table(kind, 100, 2), "data/eval.parquet")
    pq.write_table(table(kind, 100, 3, wide=True), "data/wide.parquet")


def make_trees(case: str) -> None:
    data = "data/train.csv" if case == "killed-csv" else "data/train.parquet"
    settings = COMMON | CASES[case] | {"data": data, "out": "run"}
    if case == "continued":
        dray.train(**settings | {"out": "first"})
        dray.train(**settings | {"continue_from": "first", "params": {"max_depth": 3}})
        shutil.rmtree("first")
    elif case.startswith("killed"):
        kill_in_training(settings)
        return
    else:
        dray.train(**settings)
    for name in ("eval", "wide"):
        dray.predict("run", f"data/{name}.parquet", f"predicted-{name}.parquet", keep=["id"], workers=0, threads=1)


def make_recommender(case: str) -> None:
    settings = {"data": "data/train.parquet", "model": "factorization", "user": "user", "item": "item", "out": "run"}
    settings |= {"params": {"factors": 4}, "workers": 0, "threads": 1, "eval_fraction": 0.2, **RECOMMENDERS[case]}
    if case.startswith("killed"):
        kill_in_training(settings)
        return
    dray.train(**settings)
    dray.predict("run", "data/eval.parquet", "predicted-eval.parquet", keep=["user", "item"], workers=0, threads=1)


KILLED = """
import os, signal, sys, time
import dray
from dray.config.run_file import make_config
from dray.training.factorization import copier
from dray.training.train import train
from dray.learners.xgboost import ring as xgboost_ring
from dray.elastic import worker

class KillItself:
    def event(self, event):
        if event.kind == "checkpoint" and event.data["round"] >= 10:
            os.kill(os.getpid(), signal.SIGKILL)
        if event.kind == "round":
            time.sleep(0.05)
    def sample(self, samples): pass
    def close(self): pass

worker.CHECKPOINT_S = copier.EVERY_S = 0.0
worker.CHECKPOINT_SHARE = copier.SHARE = 1e9
agree = xgboost_ring.agree
xgboost_ring.agree = lambda flag: (time.sleep(0.05), agree(flag))[1]
train(make_config(eval(sys.argv[1])), sinks=[KillItself()])
"""


def kill_in_training(settings: dict[str, Any]) -> None:
    """Train in a process that gets SIGKILL after a checkpoint of round 10 or later."""
    ended = subprocess.run([sys.executable, "-c", KILLED, repr(settings)], check=False)
    assert ended.returncode == -9, ended
    assert Path("run/checkpoints/latest.json").exists()


def without_places(root: Path) -> None:
    """Write @HERE@ for the directory that all was made in, and a name that no machine has for this one."""
    for copy in sorted(root.glob("cache/*")):
        for file in root.glob("run/*.json*"):
            file.write_text(file.read_text().replace(copy.name, KEY))
        for file in copy.rglob("*.json*"):
            file.write_text(file.read_text().replace(copy.name, KEY))
        copy.rename(copy.with_name(KEY))
    for file in [file for file in root.rglob("*") if file.suffix in (".json", ".jsonl") or file.name == "alive"]:
        text = file.read_text().replace(str(root), HERE).replace(f'"{os.uname().nodename}"', '"a-host"')
        file.write_text(text)


def main(names: list[str]) -> None:
    for case in names or [*CASES, *RECOMMENDERS]:
        with tempfile.TemporaryDirectory() as made:
            root = Path(made).resolve()
            os.chdir(root)
            make_data(DATA[case])
            (make_trees if case in CASES else make_recommender)(case)
            without_places(root)
            os.chdir("/")
            shutil.rmtree(KEPT / case, ignore_errors=True)
            shutil.copytree(root / "data", KEPT / "data" / DATA[case], dirs_exist_ok=True)
            shutil.copytree(root, KEPT / case, ignore=shutil.ignore_patterns("data"))


if __name__ == "__main__":
    main(sys.argv[1:])
