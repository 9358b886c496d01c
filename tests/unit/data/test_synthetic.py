"""Synthetic data: the same bytes from the same seed, the shares asked for, a label to learn but not to solve."""

import errno
import hashlib
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import xgboost as xgb

from dray.data import synthetic, synthetic_files
from dray.data.synthetic import PRESETS, default_files, make, plan_files
from dray.data.synthetic_rows import minority_rows, rows, table_spec
from dray.errors import ConfigError, StorageError, WorkerError


def hashes(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


def test_the_result_says_what_is_on_disk(tmp_path: Path) -> None:
    result = make(tmp_path / "out", rows=3000, features=7, files=3)
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["part-000.parquet", "part-001.parquet", "part-002.parquet"]
    assert (result.rows, result.features, result.files) == (3000, 7, 3)
    assert result.bytes == sum(file.stat().st_size for file in files)
    assert result.seconds > 0
    table = pq.read_table(tmp_path / "out")
    assert (table.num_rows, table.num_columns) == (3000, 8)


def test_columns_are_a_label_then_numbers_then_categories(tmp_path: Path) -> None:
    make(tmp_path / "out", rows=2000, features=10, categorical=0.3)
    schema = pq.read_schema(next((tmp_path / "out").iterdir()))
    assert schema.names[0] == "label"
    assert schema.types == [pa.int8(), *[pa.float32()] * 7, *[pa.string()] * 3]


def test_the_number_of_processes_does_not_change_a_byte(tmp_path: Path) -> None:
    for processes in (1, 2):
        make(tmp_path / str(processes), rows=4000, features=6, files=3, seed=5, processes=processes)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_another_seed_gives_other_rows(tmp_path: Path) -> None:
    for seed in (0, 1):
        make(tmp_path / str(seed), rows=500, features=3, seed=seed)
    assert hashes(tmp_path / "0") != hashes(tmp_path / "1")


def test_no_two_row_groups_are_alike() -> None:
    made = table_spec(3, seed=0, categorical=0, missing=0, minority=0.5)
    firsts = {rows(made, file, group, 0, 10)["num_1"][0].as_py() for file in range(3) for group in range(3)}
    assert len(firsts) == 9


@pytest.mark.parametrize(("count", "features", "share"), [(10, 1, 0.05), (999, 2, 0.05), (5000, 40, 0.3), (64, 3, 0.5)])
def test_the_share_of_the_minority_class_is_exact(tmp_path: Path, count: int, features: int, share: float) -> None:
    make(tmp_path / "out", rows=count, features=features, minority=share)
    ones = pc.sum(pq.read_table(tmp_path / "out")["label"]).as_py()
    assert ones == minority_rows(share, 0, count) == int(share * count + 0.5)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.8])
def test_the_share_of_missing_values_holds(tmp_path: Path, share: float) -> None:
    make(tmp_path / "out", rows=5000, features=20, missing=share)
    table = pq.read_table(tmp_path / "out")
    assert table["label"].null_count == 0
    missing = sum(column.null_count for column in table.columns) / (5000 * 20)
    assert missing == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.2, 4), (1.0, 20)])
def test_the_share_of_categorical_columns_holds(share: float, expected: int) -> None:
    made = table_spec(20, seed=0, categorical=share, missing=0, minority=0.1)
    assert sum(bool(column.levels) for column in made.columns) == expected


def test_a_category_has_several_levels_of_unequal_frequency() -> None:
    made = table_spec(5, seed=3, categorical=1.0, missing=0, minority=0.1)
    table = rows(made, 0, 0, 0, 20_000)
    for column in made.columns:
        counts = sorted(pc.value_counts(table[column.name]).field("counts").to_pylist())
        assert 8 <= len(counts) <= 24
        assert counts[-1] > 3 * counts[0]


def test_numbers_are_finite_and_some_are_correlated() -> None:
    made = table_spec(28, seed=0, categorical=0, missing=0, minority=0.1)
    table = rows(made, 0, 0, 0, 20_000)
    values = np.stack([table[column.name].to_numpy() for column in made.columns])
    assert np.isfinite(values).all()
    # Ranks, for amounts and counts are skewed.
    correlations = np.corrcoef(values.argsort().argsort())[np.triu_indices(28, 1)]
    assert np.abs(correlations).max() > 0.4
    assert np.median(np.abs(correlations)) < 0.05


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_model_learns_the_label_well_but_not_perfectly(seed: int, share: float) -> None:
    made = table_spec(20, seed=seed, categorical=0.2, missing=0.05, minority=share)
    matrices = [matrix(made, file, count) for file, count in ((0, 15_000), (1, 15_000))]
    params = {"objective": "binary:logistic", "eval_metric": "auc", "max_depth": 3, "eta": 0.2, "nthread": 1}
    scores: dict[str, dict[str, list[float]]] = {}
    xgb.train(params, matrices[0], 60, evals=[(matrices[1], "test")], evals_result=scores, verbose_eval=False)
    assert 0.79 < scores["test"]["auc"][-1] < 0.86


def matrix(made: synthetic_files.TableSpec, file: int, count: int) -> xgb.DMatrix:
    table = rows(made, file, 0, 0, count)
    columns = [
        pc.index_in(table[c.name], pa.array(sorted(c.levels))).cast(pa.float32()) if c.levels else table[c.name]
        for c in made.columns
    ]
    values = np.stack([column.to_numpy() for column in columns], axis=1)
    types = ["c" if c.levels else "float" for c in made.columns]
    return xgb.DMatrix(values, table["label"].to_numpy(), feature_types=types, enable_categorical=True)


@pytest.mark.parametrize(("name", "size"), PRESETS.items())
def test_presets_have_row_groups_that_deal_evenly(name: str, size: tuple[int, int]) -> None:
    count, features = size
    files = default_files(count, features)
    assert files >= (128 if name in ("medium_large", "large", "xlarge") else 4)
    plan = plan_files(count, features, files)
    groups = [rows for file in plan for rows in file.groups]
    assert sum(groups) == count
    assert max(groups) - min(groups) <= 2
    assert max(groups) <= 125_000
    assert max(groups) * features * 4 <= 64 * 2**20
    assert len(groups) >= (32 if name == "tiny" else 128)


def test_a_file_begins_where_the_last_one_ended() -> None:
    plan = plan_files(1003, 5, 4)
    assert [file.start for file in plan] == [0, 250, 501, 752]
    assert plan[-1].start + plan[-1].rows == 1003


def test_progress_ends_at_all_rows(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    make(tmp_path / "out", rows=1000, features=2, files=2, progress=lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard)
    assert heard[-1] == (1000, 1000)


def test_a_preset_gives_the_size_and_numbers_override_it(tmp_path: Path) -> None:
    result = make(tmp_path / "out", preset="tiny", rows=100)
    assert (result.rows, result.features) == (100, PRESETS["tiny"][1])


BAD: list[tuple[dict[str, object], str]] = [
    ({"rows": 0}, "--rows to 1 or more"),
    ({"rows": -5}, "--rows to 1 or more"),
    ({"features": 0}, "--features to 1 or more"),
    ({"files": 0}, "--files to 1 or more"),
    ({"files": 101}, "--files to at most 100"),
    ({"processes": 0}, "--processes to 1 or more"),
    ({"seed": -1}, "--seed to 0 or more"),
    ({"categorical": 1.1}, "--categorical to a share"),
    ({"missing": 1.0}, "--missing to a share"),
    ({"missing": float("nan")}, "--missing to a share"),
    ({"minority": 0.0}, "--minority to a share"),
    ({"minority": 0.6}, "--minority to a share"),
    ({"minority": 0.001}, "--rows to 500 or more"),
    ({"rows": None}, "--rows and --features"),
    ({"preset": "smal"}, "tiny, small"),
]


@pytest.mark.parametrize(("change", "fix"), BAD)
def test_a_value_out_of_range_is_refused_with_a_fix(tmp_path: Path, change: dict[str, object], fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(tmp_path / "out", **{"rows": 100, "features": 3, **change})  # type: ignore[arg-type]
    assert fix in caught.value.fix
    assert not list(tmp_path.iterdir())


def test_a_misspelt_preset_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='Did you mean "small"'):
        make(tmp_path / "out", preset="smal")


def test_an_output_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(StorageError, match="not an empty directory"):
        make(tmp_path, rows=100, features=3)
    with pytest.raises(StorageError, match="not an empty directory"):
        make(tmp_path / "mine", rows=100, features=3)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_empty_output_directory_and_missing_parents_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        make(out, rows=100, features=3, files=2)
        assert sorted(path.name for path in out.iterdir()) == ["part-000.parquet", "part-001.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty"]


def test_an_object_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a local directory"):
        make("s3://bucket/key", rows=100, features=3)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_forbidden_directory_is_a_storage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        make(tmp_path / "out", rows=100, features=3)


def test_a_disk_too_small_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**9})())
    with pytest.raises(StorageError, match=r"needs about 8\.3 GB, .* has 1\.0 GB free"):
        make(tmp_path / "out", preset="medium")
    assert not list(tmp_path.iterdir())


def test_the_estimate_is_close_to_what_is_written(tmp_path: Path) -> None:
    result = make(tmp_path / "out", rows=40_000, features=20, missing=0)
    groups = sum(len(file.groups) for file in plan_files(40_000, 20, result.files))
    assert synthetic._estimate_bytes(40_000, 20, 4, groups) == pytest.approx(result.bytes, rel=0.1)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (lambda: OSError(errno.ENOSPC, "No space left on device"), StorageError),
        (KeyboardInterrupt, KeyboardInterrupt),
        (lambda: ValueError("a bug"), ValueError),
    ],
)
def test_a_failure_on_the_way_leaves_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Callable[[], BaseException],
    expected: type[BaseException],
) -> None:
    def fail_in_the_second_file(made: object, file: int, *rest: int) -> object:
        if file == 1:
            raise failure()
        return rows(made, file, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(synthetic_files, "rows", fail_in_the_second_file)
    with pytest.raises(expected) as caught:
        make(tmp_path / "deep" / "out", rows=1000, features=3, files=2, processes=1)
    assert not list(tmp_path.iterdir())
    if isinstance(caught.value, StorageError):
        assert "full" in caught.value.what


def test_a_writing_process_that_dies_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    def kill_the_writers(_done: int, _total: int) -> None:
        for writer in multiprocessing.active_children():
            writer.kill()

    with pytest.raises(WorkerError, match="ended unexpectedly"):
        # Enough that they are still writing when the first progress is told, on a busy machine too.
        make(tmp_path / "out", rows=4_000_000, features=20, files=64, processes=2, progress=kill_the_writers)
    assert not list(tmp_path.iterdir())
