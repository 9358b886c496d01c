"""Run a case through the public surface, in this process, and compare all that is told with what plain XGBoost says."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import xgboost

import dray
from dray.data.split import Split
from dray.learners.predictor import PredictionType
from dray.learners.xgboost.result import TrainResult
from truth import plain
from truth.cases import Case
from truth.held_out import lowest_of_each
from truth.metrics import Rows, as_predicted, is_better, metric
from truth.tables import SHARE, Tables, make_tables

HERE: dict[str, Any] = {"workers": 0, "threads": 1}
RELATIVE = 1e-6
OF_OBJECTIVE = ("quantile_alpha", "tweedie_variance_power", "huber_slope", "ndcg_exp_gain")


def check(case: Case, place: Path) -> None:
    """Assert that nothing that is told of a case differs from what is so. `place` is an empty directory."""
    with xgboost.config_context(nthread=1):  # the rows are few
        _check(case, place)


def _check(case: Case, place: Path) -> None:
    tables = make_tables(case)
    writer = _Files(place, case.format)
    train = writer.write("train", tables.train, files=2)
    settings: dict[str, Any] = {"label": "label", "ignore": ["id"], "rounds": case.rounds, "seed": case.seed % 1000}
    settings |= {"early_stop": case.early_stop, "cache": str(place / "cache"), **HERE}
    settings |= {"weight": "weight"} if case.weight else {}
    settings |= {"group": "query"} if case.ranking else {}
    if case.evaluation == "fraction":
        settings["eval_fraction"] = SHARE
    elif case.evaluation == "file":
        settings["eval"] = [writer.write("eval", tables.eval, named=True)]
    objective = {"objective": case.objective} if case.objective else {}
    result = dray.train(train, params=case.params, out=str(place / "run"), **objective, **settings)
    _Run(case, place, writer, tables, tables.train, result, None).check()
    if not case.continued:
        return
    drifted = case.continued == "drifted"
    data = writer.write("other", tables.other) if drifted else train
    unsaid = ("max_bin", "base_score") if case.continued != "bare" else (*OF_OBJECTIVE, "max_bin", "base_score")
    params = {name: value for name, value in case.params.items() if name not in unsaid}
    first = str(place / "run")
    more = dray.train(data, params=params, out=str(place / "next"), continue_from=first, **settings)
    trained_on = tables.other if drifted else tables.train
    _Run(case, place, writer, tables, trained_on, more, first).check()


@dataclass(frozen=True)
class _Files:
    place: Path
    format: str

    def write(self, name: str, table: pa.Table, files: int = 1, *, named: bool = False) -> Any:
        """Write rows as some files; return the name of their directory. A table of this process needs no name."""
        if self.format == "table" and not named:
            return table
        borders = np.linspace(0, table.num_rows, files + 1).astype(int)
        folder = self.place / name
        if folder.exists():  # the same rows, for another run
            return str(folder)
        folder.mkdir()
        for number, (start, stop) in enumerate(itertools.pairwise(borders)):
            part = table.slice(start, stop - start)
            if self.format == "csv":
                plain_text = pa.table({column: _decoded(part[column]) for column in part.column_names})
                pyarrow.csv.write_csv(plain_text, folder / f"part-{number}.csv")
            else:
                pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=max(50, part.num_rows // 2))
        return str(folder)


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


@dataclass(frozen=True)
class _Run:
    """A finished run with what it was made from."""

    case: Case
    place: Path
    files: _Files
    tables: Tables
    trained_on: pa.Table
    result: TrainResult
    continued_from: str | None

    def check(self) -> None:
        self._check_rows()
        self._check_rounds()
        self._check_predictions("other", self.tables.other)
        if self.case.evaluation == "none":
            assert self.result.metrics == {}
            return
        assert self.result.metrics
        judged = self._evaluation_rows()
        name = "eval" if self.case.evaluation == "file" else f"held-out-{Path(self.result.directory).name}"
        self._check_metrics(judged, self._check_predictions(name, judged))

    @functools.cached_property
    def booster(self) -> xgboost.Booster:
        return xgboost.Booster(model_file=f"{self.result.directory}/model.ubj")

    @functools.cached_property
    def classes(self) -> list[Any]:
        """The label's own values by their codes: in their order, as what is there already as 0, 1, 2, ... is."""
        return sorted(set(self.tables.train["label"].to_pylist()))

    @property
    def params(self) -> dict[str, Any]:
        return {name: value for name, value in self.case.params.items() if name in OF_OBJECTIVE}

    def _check_rows(self) -> None:
        held_out = int(self._held_out().sum())
        evaluated = {"none": 0, "fraction": held_out, "file": self.tables.eval.num_rows}[self.case.evaluation]
        assert self.result.eval_rows == evaluated
        assert self.result.rows == self.trained_on.num_rows - held_out

    def _held_out(self) -> npt.NDArray[np.bool_]:
        rows = self.trained_on.num_rows
        if self.case.evaluation != "fraction":
            return np.zeros(rows, dtype=bool)
        positions = np.arange(rows)
        if self.case.ranking:
            group = self.trained_on["query"].to_numpy()
            starts = np.append(True, group[1:] != group[:-1])
            positions = positions[np.flatnonzero(starts)][np.cumsum(starts) - 1]
        if self.result.objective.startswith(("binary:", "multi:")):
            return lowest_of_each(self.trained_on["label"].to_pylist(), SHARE, self.case.seed % 1000)
        return Split(SHARE, self.case.seed % 1000).picks(positions)

    def _evaluation_rows(self) -> pa.Table:
        if self.case.evaluation == "file":
            return self.tables.eval
        return self.trained_on.filter(pa.array(self._held_out()))

    def _check_rounds(self) -> None:
        """The decisive metric is the objective's own, the best round is where it is best, and that model is kept."""
        before = 0
        if self.continued_from is not None:
            before = xgboost.Booster(model_file=f"{self.continued_from}/model.ubj").num_boosted_rounds()
        rounds = pq.read_table(f"{self.result.directory}/rounds.parquet")
        assert rounds["round"].to_pylist() == list(range(1, self.result.rounds + 1))
        kept = self.result.best_round if self.case.early_stop is not None else self.result.rounds
        assert self.booster.num_boosted_rounds() == before + kept
        assert kept == 0 or not any("that model is kept" in warning for warning in self.result.warnings)
        if self.case.evaluation == "none":
            return
        decisive = list(self.result.metrics)[-1]
        asked = self.case.params.get("eval_metric")
        own = asked[-1] if asked else plain.own_metric(self.result.objective, **_hashable(self.params))
        if self.case.ranking and not asked:  # lists of another length are as good
            assert _bare(decisive) == _bare(own)
        else:
            assert decisive == f"eval-{own}"
        values = rounds[decisive].to_pylist()
        told = self.result.metrics[decisive]
        if self.case.early_stop is None:
            assert _same(told, values[-1])
            return
        assert not any(is_better(decisive, value, told) for value in values), (told, values)
        if self.result.best_round > 0:
            assert _same(values[self.result.best_round - 1], told), (told, values)
            assert told not in values[: self.result.best_round - 1], (told, values)
        patience = self.result.rounds - self.result.best_round
        assert patience == self.case.early_stop or (patience < self.case.early_stop and len(values) == self.case.rounds)

    def _predicted(self, name: str, table: pa.Table, output: PredictionType) -> pa.Table:
        """What `dray predict` writes: a row for each, in order."""
        out = self.place / f"{Path(self.result.directory).name}-{name}-{output}"
        told = dray.predict(
            self.result.directory,
            self.files.write(name, table),
            str(out),
            keep=["id"],
            output=output,
            cache=str(self.place / "cache"),
            **HERE,
        )
        written = pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(out.rglob("*.parquet"))])
        assert told.rows == written.num_rows == table.num_rows
        assert written["id"].to_pylist() == table["id"].to_pylist()
        return written

    def _check_predictions(self, name: str, table: pa.Table) -> npt.NDArray[np.float64]:
        """What `dray predict` writes is what plain XGBoost says, row by row; returns the predictions."""
        features = dray.load(self.result.directory).features
        softmax = self.result.objective == "multi:softmax"
        written = self._predicted(name, table, "margin" if softmax else "probability")
        columns = [written[column].to_numpy() for column in written.column_names if column != "id"]
        found = np.stack(columns, axis=1) if len(columns) > 1 else columns[0]
        expected = plain.predict(self.booster, features, table, margin=softmax)
        # Sums of float32 may end a hair from another order of adding; what is near 0 has no more digits than its terms.
        close = {"rtol": RELATIVE, "atol": 2e-7 * max(1.0, float(np.median(np.abs(expected))))}
        np.testing.assert_allclose(found, expected, **close, err_msg="plain XGBoost on numbers and codes")
        if not softmax:
            random = np.random.default_rng(self.case.seed)
            framed, rows = plain.predict_frame(self.booster, features, table, random)
            if len(framed):  # else every row has the category that the frame lacks
                np.testing.assert_allclose(found[rows], framed, **close, err_msg="plain XGBoost on a pandas frame")
        if self.result.objective.startswith(("binary:", "multi:")):
            self._check_classes(name, table, expected)
        return found.astype(np.float64)

    def _check_classes(self, name: str, table: pa.Table, expected: npt.NDArray[np.float32]) -> None:
        if expected.ndim == 2:
            classes = expected.argmax(axis=1)
        else:
            classes = (expected > (0 if self.result.objective == "binary:logitraw" else 0.5)).astype(int)
        written = self._predicted(name, table, "class")["prediction"].to_pylist()
        assert written == [self.classes[number] for number in classes]

    def _check_metrics(self, table: pa.Table, predicted: npt.NDArray[np.float64]) -> None:
        objective = self.result.objective
        if objective == "multi:softmax":
            predicted = as_predicted(objective, predicted)
        rows = Rows(
            self._labels(table),
            predicted,
            table["weight"].to_numpy().astype(np.float32).astype(np.float64) if self.case.weight else None,
            table["query"].to_numpy() if self.case.ranking else None,
        )
        wrong = {}
        for name, told in self.result.metrics.items():
            if objective == "binary:logitraw" and _bare(name) == "logloss":
                signs = np.where(rows.label > 0, -1.0, 1.0)
                expected = float(np.average(np.logaddexp(0, signs * predicted), weights=rows.weight))
            elif objective == "binary:logitraw" and _bare(name) == "error":
                expected = metric(name, Rows(rows.label, as_predicted(objective, predicted), rows.weight), self.params)
            else:
                expected = metric(name, rows, self.params)
            if not _same(told, expected, _UNITS_OF_LOGARITHMS if _bare(name) in _LOGARITHMS else _UNITS):
                wrong[name] = f"told {told}, of the predictions {expected}"
        assert not wrong, wrong

    def _labels(self, table: pa.Table) -> npt.NDArray[np.float64]:
        values = table["label"].to_pylist()
        if self.result.objective.startswith(("binary:", "multi:")):
            values = [self.classes.index(value) for value in values]
        return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)


_UNITS = 1e-9
_LOGARITHMS = ("logloss", "mlogloss", "gamma-deviance")
_UNITS_OF_LOGARITHMS = 1e-7
"""A probability, or a quotient, near 1 is a float32 in steps of 6e-8, and so is its logarithm: a small loss is no more
exact."""


def _same(told: float, expected: float, units: float = _UNITS) -> bool:
    """Equal to 1e-6; not a number only where there is none: a logarithm of what is negative."""
    both_not = math.isnan(told) and math.isnan(expected)
    return both_not or math.isclose(told, expected, rel_tol=RELATIVE, abs_tol=units)


def _bare(name: str) -> str:
    return name.removeprefix("eval-").partition("@")[0]


def _hashable(params: Mapping[str, Any]) -> dict[str, Any]:
    """XGBoost names a metric alike for one quantile and for several."""
    return {name: value if not isinstance(value, list) else value[0] for name, value in params.items()}
