"""Lists for many users: what they hold, where they go, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import dray
from dray.cli.main import main
from dray.data.open_source import open_source
from dray.errors import ConfigError, DataError, DrayError, ModelError, StorageError
from dray.learners.factorization.model import FactorModel
from dray.recommending import lists
from dray.recommending import recommend as recommending
from dray.runs.directory import RunDirectory
from recommender_run import USERS, write_run
from s3_server import S3Server


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(str(tmp_path_factory.mktemp("runs") / "shop"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(str(tmp_path_factory.mktemp("runs") / "numbers"), text=False)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def model_of(run: str) -> FactorModel:
    model = dray.load(run)
    assert isinstance(model, FactorModel)
    return model


def read(out: str | Path) -> pa.Table:
    return pq.read_table(out).replace_schema_metadata(None)


def listed(table: pa.Table, user: Any) -> list[Any]:
    return [row["item"] for row in table.to_pylist() if row["user"] == user]


class TestLists:
    def test_all_users_get_the_lists_that_the_model_gives_each(self, run: str) -> None:
        result = dray.recommend(run, top=4, out="lists")
        table = read("lists")
        assert table.column_names == ["user", "rank", "item", "score", "by"]
        assert (result.users, result.rows, result.files, result.workers) == (USERS, table.num_rows, 1, 0)
        assert (result.users_unknown, result.items_unknown, result.users_folded) == (0, 0, 0)
        assert result.peak_memory_bytes > 10e6
        model = model_of(run)
        for user in ("u000", "u123", "u299"):
            assert listed(table, user) == model.recommend(user, 4).items.to_pylist()
        assert set(table["by"].to_pylist()) == {"factors"}

    def test_what_users_have_seen_is_left_out_unless_asked_for(self, run: str) -> None:
        model = model_of(run)
        had = set(model.item_ids.take(pa.array(model.seen.of_user(3))).to_pylist())
        without = listed(dray.recommend(run, users=["u003"], top=80).table, "u003")
        everything = listed(dray.recommend(run, users=["u003"], top=80, exclude_seen=False).table, "u003")
        assert had and not had & set(without)
        assert set(everything) == had | set(without)

    def test_unknown_users_get_what_is_popular_and_are_counted(self, run: str) -> None:
        result = dray.recommend(run, users=["u001", "nobody", "u002"], top=2)
        assert result.users_unknown == 1
        assert result.table["user"].to_pylist() == ["u001", "u001", "nobody", "nobody", "u002", "u002"]
        assert result.table["by"].to_pylist()[2:4] == ["popularity"] * 2

    def test_only_the_items_named_are_chosen_from(self, run: str) -> None:
        result = dray.recommend(run, users="u001", items="i01,i02,i03,nothing", exclude_seen=False)
        assert sorted(listed(result.table, "u001")) == ["i01", "i02", "i03"]
        assert result.items_unknown == 1

    def test_a_user_who_is_named_twice_has_one_list(self, run: str) -> None:
        assert dray.recommend(run, users="u001,u001", top=3).rows == 3

    def test_many_users_are_written_to_several_files_in_pieces(self, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recommending, "ROWS_A_FILE", 500)
        monkeypatch.setattr(lists, "ROWS_AT_ONCE", 100)
        result = dray.recommend(run, top=5, out="lists", threads=1)
        assert result.files == 3
        assert sorted(path.name for path in Path("lists").glob("*.parquet")) == [
            f"part-0000{at}.parquet" for at in range(3)
        ]
        assert read("lists")["user"].unique().to_pylist() == [f"u{at:03}" for at in range(USERS)]

    def test_one_file_can_be_named(self, run: str) -> None:
        dray.recommend(run, users="u001,u002", top=3, out="some/lists.parquet")
        assert read("some/lists.parquet").num_rows == 6

    def test_workers_give_the_same_lists(self, run: str) -> None:
        dray.recommend(run, top=3, out="here")
        result = dray.recommend(run, top=3, out="there", workers=2, threads=1)
        assert result.workers >= 1 and result.files == 8
        order = [("user", "ascending"), ("rank", "ascending")]
        assert read("there").sort_by(order) == read("here").sort_by(order)

    def test_a_model_in_memory_can_be_asked(self, run: str) -> None:
        model = model_of(run)
        assert dray.recommend(model, users=["u001"], top=3).table["item"].to_pylist() == listed(
            dray.recommend(run, users=["u001"], top=3).table, "u001"
        )
        with pytest.raises(ConfigError, match="in memory only"):
            dray.recommend(model, out="lists", workers=1)

    def test_the_directory_of_a_model_will_do(self, run: str) -> None:
        assert dray.recommend(f"{run}/model", users="u001", top=3).rows == 3

    def test_runs_and_lists_can_be_in_a_store(self, s3_server: S3Server) -> None:
        stored = write_run(s3_server.url("runs/shop"))
        result = dray.recommend(stored, top=3, out=s3_server.url("lists"))
        assert result.rows == 3 * USERS
        again = dray.recommend(stored, users=["u007"], top=3)
        assert listed(again.table, "u007") == model_of(stored).recommend("u007", 3).items.to_pylist()


class TestIds:
    def test_text_becomes_the_numbers_that_the_model_has(self, numbers: str) -> None:
        assert dray.recommend(numbers, users="12, 7", top=1).table["user"].to_pylist() == [12, 7]

    def test_text_that_is_no_number_is_refused(self, numbers: str) -> None:
        with pytest.raises(DataError, match='user "ann" is not a whole number') as caught:
            dray.recommend(numbers, users="12,ann")
        assert "such as 0" in caught.value.fix

    @pytest.mark.parametrize("name", ["ids.parquet", "ids.csv", "ids.jsonl", "ids.txt", "ids"])
    def test_ids_come_from_files_of_many_kinds(self, run: str, name: str) -> None:
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"n": [1, 2], "user_id": ["u004", "u001"]}), name)
        elif name.endswith(".csv"):
            Path(name).write_text("user_id,n\nu004,1\nu001,2\n")
        elif name.endswith(".jsonl"):
            Path(name).write_text('{"user_id": "u004"}\n{"user_id": "u001"}\n')
        else:
            Path(name).write_text("u004\n\nu001\n")
        assert dray.recommend(run, users=name, top=1).table["user"].to_pylist() == ["u004", "u001"]

    def test_the_only_column_of_a_file_has_the_ids_whatever_its_name(self, run: str) -> None:
        pq.write_table(pa.table({"who": ["u004"]}), "ids.parquet")
        assert dray.recommend(run, users="ids.parquet", top=1).table["user"].to_pylist() == ["u004"]

    def test_numbers_in_a_csv_are_text_if_the_models_ids_are(self, run: str) -> None:
        Path("ids.csv").write_text("user_id\n007\n")
        assert dray.recommend(run, users="ids.csv", top=1).table["user"].to_pylist() == ["007"]

    @pytest.mark.parametrize(
        ("write", "words"),
        [
            (lambda: pq.write_table(pa.table({"a": ["u1"], "b": [1]}), "ids.parquet"), 'no column "user_id"'),
            (lambda: pq.write_table(pa.table({"user_id": [1]}), "ids.parquet"), "ids are text"),
            (lambda: pq.write_table(pa.table({"user_id": pa.array([], pa.string())}), "ids.parquet"), "no rows in"),
            (lambda: pq.write_table(pa.table({"user_id": ["u1", None]}), "ids.parquet"), "are missing"),
            (lambda: None, "ids.parquet"),
        ],
    )
    def test_a_file_that_will_not_do_is_named(self, run: str, write: Any, words: str) -> None:
        write()
        with pytest.raises(DrayError, match=words):
            dray.recommend(run, users="ids.parquet")

    def test_an_empty_text_file_has_no_ids(self, run: str) -> None:
        Path("ids.txt").write_text("\n")
        with pytest.raises(DataError, match=r"no users in ids\.txt"):
            dray.recommend(run, users="ids.txt")


class TestNewUsers:
    EVENTS = (
        '{"user_id": "new", "item_id": "i05", "type": "purchase"}\n'
        '{"user_id": "new", "item_id": "i06", "type": "view"}\n'
        '{"user_id": "new", "item_id": "i06", "type": "view"}\n'
        '{"user_id": "newer", "item_id": "nothing", "type": "view"}\n'
        '{"user_id": "u001", "item_id": "i01", "type": "view"}\n'
    )

    def test_they_are_answered_by_their_events(self, run: str) -> None:
        Path("events.jsonl").write_text(self.EVENTS)
        result = dray.recommend(run, events="events.jsonl", top=5)
        assert (result.users, result.users_folded, result.users_unknown) == (3, 1, 1)
        model = model_of(run)
        folded = model.fold_in(["i05", "i06"], [5.0, 2.0])
        best = model.recommend_folded(folded, 5, exclude=["i05", "i06"])
        rows = [row for row in result.table.to_pylist() if row["user"] == "new"]
        assert [row["item"] for row in rows] == best.items.to_pylist()
        assert [row["score"] for row in rows] == pytest.approx(best.scores.tolist(), abs=1e-5)
        by = {row["user"]: row["by"] for row in result.table.to_pylist()}
        assert by == {"new": "fold-in", "newer": "popularity", "u001": "factors"}

    def test_known_and_new_users_are_in_one_file(self, run: str) -> None:
        Path("events.jsonl").write_text(self.EVENTS)
        shown = dray.recommend(run, events="events.jsonl", top=5).table
        for out in ("lists.csv", "lists.jsonl", "lists.parquet"):
            result = dray.recommend(run, events="events.jsonl", top=5, out=out)
            assert (result.files, result.users_folded, result.users_unknown) == (1, 1, 1)
            source = open_source(out)
            found = pa.Table.from_batches([b for piece in source.pieces() for b in source.read(piece, None, print)])
            assert found.column_names == ["user", "rank", "item", "score", "by"]
            assert sorted(found["item"].to_pylist()) == sorted(shown["item"].to_pylist())
            assert listed(found, "new") == listed(shown, "new")

    @pytest.mark.parametrize("name", ["numbers", "run"])
    def test_ids_of_events_are_read_as_the_ids_of_the_model(self, name: str, request: pytest.FixtureRequest) -> None:
        known = request.getfixturevalue(name)
        item = model_of(known).item_ids[5].as_py()
        Path("events.csv").write_text(f"item_id,extra,user_id,type\n{item},?,00090000,purchase\n")
        table = dray.recommend(known, events="events.csv", top=3).table
        assert set(table["user"].to_pylist()) == ({90_000} if name == "numbers" else {"00090000"})
        assert set(table["by"].to_pylist()) == {"fold-in"}

    @pytest.mark.parametrize("form", ["parquet", "frame", "json", "csv"])
    @pytest.mark.parametrize("name", ["numbers", "run"])
    @pytest.mark.parametrize("types", ["text", "integers", "floats"])
    def test_ids_of_any_type_are_read_by_their_text(
        self, types: str, name: str, form: str, request: pytest.FixtureRequest
    ) -> None:
        if form == "csv" and types == "floats":
            pytest.skip("7.0 in text may be an id of its own")
        known = request.getfixturevalue(name)
        items = [5, 6] if name == "numbers" else ["i05", "i06"]
        users: list[Any] = {"text": ["90091"] * 2, "integers": [90_091] * 2, "floats": [90_091.0] * 2}[types]
        if types == "text" or name == "run":
            items = [str(item) for item in items]
        table = pa.table({"user_id": users, "item_id": items, "type": ["purchase", "view"]})
        table = pa.concat_tables(
            [table, pa.table({"user_id": users[:1], "item_id": [None], "type": ["view"]})], promote_options="permissive"
        )
        events: Any = f"events.{form}"
        if form == "frame":
            events = table.to_pandas()  # in which whole numbers with gaps are floats
        elif form == "parquet":
            pq.write_table(table, events)
        elif form == "csv":
            pacsv.write_csv(table, events)
        else:
            Path(events).write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        found = dray.recommend(known, events=events, top=3)
        assert set(found.table["user"].to_pylist()) == ({90_091} if name == "numbers" else {"90091"})
        assert set(found.table["by"].to_pylist()) == {"fold-in"}

    def test_events_without_an_id_are_left_out_and_counted(
        self, run: str, numbers: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [("new", 5), (None, 5), ("newer", None), ("90091", 6)]
        names = ("user_id", "item_id", "type")
        pq.write_table(
            pa.Table.from_pylist([dict(zip(names, (*row, "view"), strict=True)) for row in rows]), "a.parquet"
        )
        assert main(["recommend", numbers, "--events", "a.parquet", "--out", "lists.csv"]) == 0
        assert "3 events without a user or an item that can be an id: left out." in capsys.readouterr().err
        assert set(pacsv.read_csv("lists.csv")["user"].to_pylist()) == {90_091}  # "new" is not a whole number
        assert main(["recommend", run, "--events", "a.parquet", "--out", "text.csv"]) == 0
        assert "2 events without a user or an item that can be an id: left out." in capsys.readouterr().err

    def test_events_without_any_id_are_refused(self, run: str) -> None:
        Path("events.jsonl").write_text('{"user_id": null, "item_id": "i05", "type": "view"}\n')
        with pytest.raises(DataError, match="None of the 1 rows has both a user and an item"):
            dray.recommend(run, events="events.jsonl")

    @pytest.mark.parametrize("kind", ["implicit", "explicit", "aged"])
    @pytest.mark.parametrize("name", ["header.csv", "zero.csv", "zero.json", "none.parquet"])
    def test_events_without_rows_give_an_output_without_lists(
        self, name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        aged: dict[str, Any] = {"time": "at", "half_life_days": 1.0} if kind == "aged" else {}
        run = write_run(str(tmp_path / kind), "explicit" if kind == "explicit" else "implicit", **aged)
        columns = ["user_id", "item_id", "type", "stars", "at"]
        Path(name).write_text(",".join(columns) + "\n" if name == "header.csv" else "")
        if name == "none.parquet":
            types = dict.fromkeys(columns, pa.string()) | {"stars": pa.float64(), "at": pa.int64()}
            pq.write_table(pa.schema(types).empty_table(), name)
        assert main(["recommend", run, "--events", name, "--out", "lists.csv"]) == 0
        assert "The events have no rows: no list is made from them." in capsys.readouterr().err
        assert Path("lists.csv").read_text() == '"user","rank","item","score","by"\n'
        result = dray.recommend(run, events=name, out="lists")
        assert (result.users, result.rows, result.files) == (0, 0, 1)
        assert read("lists").column_names == ["user", "rank", "item", "score", "by"]
        assert dray.recommend(run, events=name).table.num_rows == 0
        assert dray.recommend(run, events=name, users="u009", top=2).rows == 2

    def test_a_header_of_events_alone_still_needs_the_columns_of_the_run(self, run: str) -> None:
        Path("events.csv").write_text("user_id,thing,type\n")
        with pytest.raises(DataError, match="item_id"):
            dray.recommend(run, events="events.csv")

    def test_only_those_asked_for_are_answered(self, run: str) -> None:
        Path("events.jsonl").write_text(self.EVENTS)
        result = dray.recommend(run, events="events.jsonl", users="u009,new", top=2)
        assert result.table["user"].to_pylist() == ["u009", "u009", "new", "new"]
        assert result.users_folded == 1

    def test_what_they_had_is_recommended_if_asked_for(self, run: str) -> None:
        Path("events.jsonl").write_text(self.EVENTS)
        result = dray.recommend(run, events="events.jsonl", users="new", top=80, exclude_seen=False)
        assert {"i05", "i06"} <= set(listed(result.table, "new"))

    def test_old_events_weigh_less_if_they_did_in_training(self, tmp_path: Path) -> None:
        run = write_run(str(tmp_path / "aged"), event=None, time="at", half_life_days=1.0)
        day = 86_400
        pq.write_table(
            pa.table({"user_id": ["new", "new"], "item_id": ["i05", "i06"], "at": [2_000_000, 2_000_000 - day]}),
            "events.parquet",
        )
        model = model_of(run)
        expected = model.recommend_folded(model.fold_in(["i05", "i06"], [1.0, 0.5]), 5, exclude=["i05", "i06"])
        result = dray.recommend(run, events="events.parquet", top=5)
        assert listed(result.table, "new") == expected.items.to_pylist()
        assert result.table["score"].to_pylist() == pytest.approx(expected.scores.tolist(), abs=1e-5)

    def test_ratings_of_new_users_are_folded_in(self, tmp_path: Path) -> None:
        run = write_run(str(tmp_path / "rated"), "explicit", text=False)
        pq.write_table(pa.table({"user_id": [9_000], "item_id": [5], "stars": [5.0]}), "events.parquet")
        assert dray.recommend(run, events="events.parquet", top=5).users_folded == 1

    def test_new_users_are_folded_in_on_workers_too(self, run: str) -> None:
        Path("events.jsonl").write_text(self.EVENTS)
        dray.recommend(run, events="events.jsonl", top=5, out="here")
        dray.recommend(run, events="events.jsonl", top=5, out="there", workers=1)
        order = [("user", "ascending"), ("rank", "ascending")]
        assert read("there").sort_by(order) == read("here").sort_by(order)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ('{"user_id": "new", "item_id": "i05", "type": "wish"}', '"wish"'),
            ('{"user_id": "new", "item": "i05", "type": "view"}', "item_id"),
        ],
    )
    def test_events_that_training_would_refuse_are_refused(self, run: str, line: str, words: str) -> None:
        Path("events.jsonl").write_text(line + "\n")
        with pytest.raises(DataError, match=words):
            dray.recommend(run, events="events.jsonl")


class TestRefusals:
    def test_no_items_at_all_are_no_list(self, run: str) -> None:
        with pytest.raises(ConfigError, match="0 items"):
            dray.recommend(run, top=0)

    @pytest.mark.parametrize("out", ["lists", "lists.parquet"])
    def test_an_output_that_exists_is_not_touched(self, run: str, out: str) -> None:
        dray.recommend(run, users="u001", out=out)
        before = read(out)
        with pytest.raises(StorageError, match="exists and is not empty"):
            dray.recommend(run, users="u002", out=out)
        assert read(out) == before

    def test_nothing_half_written_is_left(self, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recommending, "ROWS_A_FILE", 500)
        made = lists.make_lists

        def fail(job: Any, task: Any) -> Any:
            if task.users[0].start:
                raise DataError("The disk is full.", fix="Make room.")
            return made(job, task)

        monkeypatch.setattr(lists, "make_lists", fail)
        with pytest.raises(DataError, match="disk is full"):
            dray.recommend(run, top=5, out="new/lists")
        assert not Path("new").exists()

    def test_one_file_is_not_for_workers(self, run: str) -> None:
        with pytest.raises(ConfigError, match="one file"):
            dray.recommend(run, out="lists.parquet", workers=2)

    def test_a_place_without_a_run_is_told(self) -> None:
        with pytest.raises(ModelError, match="no run or model"):
            dray.recommend("nowhere")
        Path("empty").mkdir()
        with pytest.raises(ModelError, match="not a run"):
            dray.recommend("empty")

    def test_an_unfinished_run_has_no_model(self) -> None:
        RunDirectory.create("runs/half", config={"model": "factorization"}).close()
        for ask in (dray.recommend, dray.load):
            with pytest.raises(ModelError, match="is running: it has no model"):
                ask("runs/half")

    @pytest.mark.parametrize("config", [{"label": "y"}, {"model": "xgboost"}, None])
    def test_a_run_of_trees_recommends_nothing(self, config: Any) -> None:
        directory = RunDirectory.create("runs/trees", config=config)
        directory.finish({})
        directory.close()
        with pytest.raises(ModelError, match="one of xgboost and not a recommender") as caught:
            dray.recommend("runs/trees")
        assert "dray predict" in caught.value.fix

    def test_a_model_without_its_file_is_told(self, run: str, tmp_path: Path) -> None:
        lost = Path(write_run(str(tmp_path / "lost")))
        (lost / "model" / "model.json").unlink()
        with pytest.raises(ModelError, match="no factor model"):
            dray.recommend(str(lost))


def test_a_run_is_loaded_as_the_model_it_is(run: str) -> None:
    model = model_of(run)
    assert model.as_of == 1_000_000.0
    assert model.recommend("u001", 3).by == "factors"
    assert isinstance(dray.load(f"{run}/model"), FactorModel)


def test_the_result_is_json(run: str) -> None:
    document = dray.recommend(run, users="u001", top=1).to_json()
    assert json.loads(json.dumps(document))["recommendations"][0]["user"] == "u001"
