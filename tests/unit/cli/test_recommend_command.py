"""`dray recommend`, and `dray predict` with a recommender, as people call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.cli.main import main
from dray.cli.recommend import _tell as tell
from dray.learners.factorization.model import FactorModel
from dray.recommending.recommend import RecommendResult
from dray.runs.directory import RunDirectory
from recommender_run import USERS, write_run

KEYS = {
    "users": int,
    "users_unknown": int,
    "users_folded": int,
    "items_unknown": int,
    "rows": int,
    "seconds": float,
    "users_per_second": float,
    "peak_memory_bytes": int,
    "output": str,
    "files": int,
    "workers": int,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(str(tmp_path_factory.mktemp("runs") / "shop"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


class TestRecommend:
    def test_the_result_as_json_has_every_key(self, run: str, tmp_path: Path, capsys: Any) -> None:
        document = call(capsys, "recommend", run, "--top", "3", "--out", "lists")
        assert {name: type(value) for name, value in document.items()} == KEYS
        assert (document["users"], document["rows"]) == (USERS, 3 * USERS)
        assert document["output"] == str(tmp_path / "lists")

    def test_few_users_are_shown_as_a_table(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["recommend", run, "--users", "u001,nobody", "--top", "2"]) == 0
        shown = capsys.readouterr()
        lines = shown.out.splitlines()
        assert lines[0].split() == ["user", "rank", "item", "score", "by"]
        assert lines[1].split()[:2] == ["u001", "1"] and lines[3].split()[0] == "nobody"
        assert "knows no training event of 1 user: they get popular items" in shown.err

    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (1, "1 user has no training event: they get popular items."),
            (25, "25 users have no training event: they get popular items."),
        ],
    )
    def test_users_without_a_training_event_are_no_strangers(
        self, number: int, words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        counts = {"users": number, "users_unknown": number, "users_folded": 0, "items_unknown": 0, "rows": 1}
        measured = {"seconds": 1.0, "users_per_second": 1.0, "peak_memory_bytes": 1}
        tell(RecommendResult(**counts, **measured, output="lists", files=1, workers=0), asked=False)  # type: ignore[arg-type]
        first, last = capsys.readouterr().err.splitlines()
        assert first.startswith("lists: 1 row for ") and " in 1 file, " in first
        assert last == words

    def test_few_users_as_json_are_lists(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        document = call(capsys, "recommend", run, "--users", "u001", "--top", "2", "--quiet")
        assert [row["rank"] for row in document["recommendations"]] == [1, 2]

    def test_many_users_are_not_shown(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        words = refused(capsys, "recommend", run)
        assert f"lists of {USERS} users are too many" in words and "--out DIR" in words

    def test_flags_choose_items_and_what_was_seen(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        Path("items.csv").write_text("item_id\ni01\ni02\ni03\n")
        flags = ("--users", "u001", "--items", "items.csv", "--include-seen")
        document = call(capsys, "recommend", run, *flags)
        assert sorted(row["item"] for row in document["recommendations"]) == ["i01", "i02", "i03"]

    def test_new_users_are_answered_by_their_events(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        Path("events.csv").write_text("user_id,item_id,type\nnew,i05,purchase\nu001,i05,view\n")
        document = call(capsys, "recommend", run, "--events", "events.csv", "--top", "2")
        by = {row["user"]: row["by"] for row in document["recommendations"]}
        assert by == {"new": "fold-in", "u001": "factors"}

    def test_similar_items_are_shown(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        document = call(capsys, "recommend", run, "--similar-to", "i01", "--similar-to", "i02", "--top", "2")
        assert [(row["item"], row["rank"]) for row in document["similar"]] == [
            ("i01", 1), ("i01", 2), ("i02", 1), ("i02", 2)
        ]  # fmt: skip
        assert main(["recommend", run, "--similar-to", "i01", "--out", "like.parquet"]) == 0
        assert pq.read_table("like.parquet").column_names == ["item", "rank", "similar", "score", "by"]

    def test_vectors_are_exported(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        document = call(capsys, "recommend", run, "--export", "vectors", "--bias-in-vector")
        users, items = (pq.read_table(file) for file in document["files"])
        assert (users.num_rows, len(users["vector"][0])) == (USERS, 5)
        assert items["id"][1].as_py() == "i01"

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (("--export", "x", "--users", "u001"), "--users cannot be used with --export"),
            (("--similar-to", "i01", "--events", "x"), "--events cannot be used with --similar-to"),
            (("--export", "x", "--similar-to", "i01"), "--similar-to cannot be used with --export"),
            (("--bias-in-vector",), "--bias-in-vector is for --export"),
            (("--users", "u001", "--top", "0"), "0 items were asked for"),
            (("--users", "u001", "--workers", "-1"), "workers is -1"),
            (("--users", "u001", "--threads", "0"), "threads is 0"),
            (("--users", ""), "no users"),
            (("--users", "missing.csv"), "missing.csv"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, run: str, flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert words in refused(capsys, "recommend", run, *flags)

    def test_the_help_says_what_it_is_for(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["recommend", "--help"]) == 0
        shown = capsys.readouterr().out
        assert "dray recommend runs/shop --users ann,bob" in shown
        for flag in ("--users", "--top", "--exclude-seen", "--items", "--events", "--similar-to", "--export", "--out"):
            assert flag in shown


class TestScores:
    @pytest.fixture
    def pairs(self) -> str:
        table = pa.table(
            {"n": [1, 2, 3, 4], "user_id": ["u001", "nobody", "u002", "u003"], "item_id": ["i01"] * 3 + ["x"]}
        )
        Path("pairs").mkdir()
        pq.write_table(table.slice(0, 2), "pairs/a.parquet")
        pq.write_table(table.slice(2), "pairs/b.parquet")
        return "pairs"

    @pytest.mark.parametrize("workers", ["0", "2"])
    def test_each_pair_has_a_score_and_strangers_are_counted(
        self, run: str, pairs: str, workers: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        document = call(capsys, "predict", run, pairs, "out", "--keep", "n", "--workers", workers)
        assert document["rows"] == 4 and document["files"] == 2
        assert document["unseen"] == {"user_id": 1, "item_id": 1}
        table = pq.read_table("out")
        model = dray.load(run)
        assert isinstance(model, FactorModel)
        scores = model.score(["u001", "nobody", "u002", "u003"], ["i01", "i01", "i01", "x"])
        assert table.to_pydict() == {"n": [1, 2, 3, 4], "score": pytest.approx(scores.values.tolist())}
        assert sorted(path.name for path in Path("out").glob("[!.]*")) == ["a.parquet", "b.parquet"]

    def test_strangers_are_told(self, run: str, pairs: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", run, pairs, "out"]) == 0
        words = capsys.readouterr().err
        assert '1 row with a value of "user_id" that the model does not know; predicted without it.' in words

    def test_pairs_may_be_of_any_format(self, run: str, capsys: pytest.CaptureFixture[str]) -> None:
        Path("pairs.csv").write_text("user_id,item_id\nu001,i01\n")
        assert call(capsys, "predict", run, "pairs.csv", "out")["rows"] == 1

    def test_ids_are_typed_as_the_models_are(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        numbers = write_run(str(tmp_path / "numbers"), "explicit", text=False)
        pq.write_table(pa.table({"user_id": ["1"], "item_id": pa.array([2], pa.int16())}), "pairs.parquet")
        assert call(capsys, "predict", numbers, "pairs.parquet", "out.parquet")["unseen"] == {}

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (("--type", "class"), "Leave out --type"),
            (("--type", "probability"), "Leave out --type"),
            (("--contributions",), "Leave out --contributions"),
            (("--keep", "m"), 'no column "m"'),
        ],
    )
    def test_what_is_for_trees_is_refused(
        self, run: str, pairs: str, flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert words in refused(capsys, "predict", run, pairs, "out", *flags)
        assert not Path("out").exists()

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            (pa.table({"user": ["u001"], "item_id": ["i01"]}), "user_id"),
            (pa.table({"user_id": ["u001"]}), "item_id"),
        ],
    )
    def test_pairs_without_a_column_of_ids_are_refused(
        self, run: str, table: pa.Table, words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pq.write_table(table, "pairs.parquet")
        assert words in refused(capsys, "predict", run, "pairs.parquet", "out")
        assert not Path("out").exists()

    @pytest.mark.parametrize("strange", [1.5, 1, None, [1]])
    def test_a_pair_whose_user_is_not_known_is_scored_by_its_item_and_counted(self, run: str, strange: Any) -> None:
        pq.write_table(pa.table({"user_id": pa.array([strange]), "item_id": ["i01"]}), "strange.parquet")
        pq.write_table(pa.table({"user_id": ["nobody"], "item_id": ["i01"]}), "new.parquet")
        result = dray.predict(run, "strange.parquet", "strange.csv")
        dray.predict(run, "new.parquet", "new.csv")
        assert result.rows == 1 and (result.unseen | result.unreadable) == {"user_id": 1}
        assert Path("strange.csv").read_text() == Path("new.csv").read_text()

    def test_an_unfinished_recommender_scores_nothing(self, pairs: str, capsys: pytest.CaptureFixture[str]) -> None:
        RunDirectory.create("runs/half", config={"model": "factorization"}).close()
        assert "it has no model" in refused(capsys, "predict", "runs/half", pairs, "out")
