"""A recommender with ids: saved, loaded, asked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.errors import ConfigError, DataError, ModelError
from dray.learners.factorization import top
from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.model import FactorModel
from s3_server import S3Server

USERS = ["ann", "bob", "cäcilie", "new"]
ITEMS = ["w", "x", "y", "z", "never"]


def small(
    kind: Any = "explicit", users: Any = USERS, items: Any = ITEMS, values: Any = None, **changes: Any
) -> FactorModel:
    random = np.random.default_rng(0)
    implicit = kind == "implicit"
    factors = Factors.of(
        random.standard_normal((4, 3), dtype=np.float32),
        random.standard_normal((5, 3), dtype=np.float32),
        None if implicit else np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        None if implicit else np.array([1, 2, 3, 4, 5], np.float32),
        0.0 if implicit else 3.5,
    )
    seen = Seen.of(np.array([0, 0, 1, 2, 2, 2, 1], np.int32), np.array([0, 1, 1, 0, 1, 2, 3], np.int32), 4, values)
    return FactorModel.of(kind, factors, users, items, seen, {"regularization": 0.1}, **changes)


def large(users: int, items: int, k: int, ids: Any = None) -> FactorModel:
    random = np.random.default_rng(1)
    of = np.concatenate([np.repeat(np.arange(users), 5), np.zeros(items)]).astype(np.int32)
    had = np.concatenate([random.integers(0, items, users * 5), np.arange(items)]).astype(np.int32)
    factors = Factors.of(
        random.standard_normal((users, k), dtype=np.float32), random.standard_normal((items, k), dtype=np.float32)
    )
    ids = ids or (lambda n: pa.array(range(n), pa.int64()))
    return FactorModel.of("implicit", factors, ids(users), ids(items), Seen.of(of, had, users), {})


class TestScores:
    def test_a_known_pair_has_mean_biases_and_product(self) -> None:
        model = small()
        f = model.factors
        expected = 3.5 + 0.2 + 3 + float(f.users[1] @ f.items[2])
        scores = model.score(["bob"], ["y"])
        assert scores.values[0] == pytest.approx(expected, abs=1e-5)
        assert (scores.unknown_users, scores.unknown_items) == (0, 0)

    def test_who_is_unknown_is_scored_by_what_is_known_and_counted(self) -> None:
        scores = small().score(["nobody", "bob", "nobody"], ["y", "nothing", "nothing"])
        assert scores.values.tolist() == pytest.approx([3.5 + 3, 3.5 + 0.2, 3.5])
        assert (scores.unknown_users, scores.unknown_items) == (2, 2)

    def test_one_without_training_events_is_unknown(self) -> None:
        scores = small().score(["new", "ann"], ["w", "never"])
        assert scores.values.tolist() == pytest.approx([3.5 + 1, 3.5 + 0.1])
        assert (scores.unknown_users, scores.unknown_items) == (1, 1)

    def test_unknown_users_of_implicit_feedback_score_by_popularity(self) -> None:
        scores = small("implicit").score(["nobody"] * 3, ["x", "w", "nothing"])
        assert scores.values.tolist() == pytest.approx([3 / 4, 2 / 4, 0])

    def test_scores_stay_within_the_scale_of_the_ratings(self) -> None:
        model = small(limits=(1.0, 5.0))
        assert model.score(["nobody"], ["z"]).values.tolist() == [5.0]

    def test_many_ids_are_found_as_few_are(self) -> None:
        model = large(50, 700, 4)
        users, items = np.arange(600) % 60, np.arange(600) * 2
        few = [float(model.score([int(u)], [int(i)]).values[0]) for u, i in zip(users, items, strict=True)]
        assert model.score(users, items).values.tolist() == few

    def test_pairs_have_two_sides(self) -> None:
        with pytest.raises(ModelError, match="do not make pairs"):
            small().score(["ann"], ["w", "x"])


class TestRecommending:
    def test_the_best_items_come_first_without_those_seen(self) -> None:
        model = small()
        scores = model.score(["ann"] * 4, ITEMS[:4]).values
        listed = model.recommend("ann", 10)
        assert listed.by == "factors"
        assert listed.items.to_pylist() == sorted("yz", key=lambda item: -scores[ITEMS.index(item)])
        assert listed.scores.tolist() == pytest.approx(sorted(scores[2:], reverse=True))
        every = model.recommend("ann", 10, exclude_seen=False)
        assert sorted(every.items.to_pylist()) == ["w", "x", "y", "z"]

    @pytest.mark.parametrize("user", ["nobody", "new"])
    def test_an_unknown_user_gets_what_is_popular_and_it_says_so(self, user: str) -> None:
        listed = small().recommend(user, 3)
        assert listed.by == "popularity"
        assert listed.items.to_pylist() == ["x", "w", "y"]
        assert listed.scores.tolist() == pytest.approx([3 / 4, 2 / 4, 1 / 4])

    @pytest.mark.parametrize("user", ["bob", "nobody"])
    def test_only_the_items_given_are_chosen_from(self, user: str) -> None:
        listed = small().recommend(user, 10, items=["y", "w", "nothing", "never"])
        assert sorted(listed.items.to_pylist()) == ["w", "y"]
        assert listed.unknown_items == 2

    def test_a_large_catalogue_is_ranked_as_a_small_one(self) -> None:
        model = large(20, 30_000, 8)
        for user in range(1, 20):
            listed = model.recommend(user, 10)
            assert listed.items == model.recommend(user, 10, items=np.arange(30_000)).items
        (table,) = model.recommend_many([3, 4], 10)
        assert table["item"].to_pylist()[:10] == model.recommend(3, 10).items.to_pylist()

    def test_many_users_get_the_lists_of_each(self) -> None:
        model = large(700, 900, 8)
        table = pa.concat_tables(model.recommend_many(n=5, threads=2))
        assert table.num_rows == sum(len(model.recommend(user, 5).items) for user in range(700))
        for user in range(0, 700, 50):
            one = model.recommend(user, 5)
            rows = table.filter(pa.compute.equal(table["user"], user))
            assert rows["item"].to_pylist() == one.items.to_pylist()
            assert rows["rank"].to_pylist() == list(range(1, len(one.items) + 1))
            assert rows["score"].to_pylist() == pytest.approx(one.scores.tolist())

    def test_unknown_users_among_many_come_last_and_are_marked(self) -> None:
        table = pa.concat_tables(small().recommend_many(["nobody", "bob", "new"], 2))
        assert table["user"].to_pylist() == ["bob", "bob", "nobody", "nobody", "new", "new"]
        assert table["by"].to_pylist() == ["factors"] * 2 + ["popularity"] * 4
        assert table["item"].to_pylist()[2:4] == ["x", "w"]

    def test_a_list_of_no_items_is_refused(self) -> None:
        model = large(5, 25_000, 4)
        for ask in (
            lambda: model.recommend(1, 0),
            lambda: model.recommend(99, 0),
            lambda: model.similar(1, 0),
            lambda: list(model.recommend_many(n=0)),
            lambda: small().recommend("bob", 0),
        ):
            with pytest.raises(ConfigError, match="0 items"):
                ask()

    def test_one_user_of_a_large_catalogue_is_answered_quickly(self) -> None:
        model = large(50, 100_000, 64)
        model.recommend(1, 10)
        times = []
        for user in range(1, 30):
            begin = time.perf_counter()
            model.recommend(user, 10)
            times.append(time.perf_counter() - begin)
        assert min(times) < 0.05  # a tenth of the catalogue that 5 ms are for; the machine may be busy


class TestNewUsers:
    def test_many_are_answered_as_each_would_be(self) -> None:
        model = small("implicit")
        model.settings |= {"alpha": 10.0, "frequency_power": 1.0}
        events = Seen.of(
            np.array([0, 0, 2], np.int32), np.array([0, 1, 3], np.int32), 3, np.array([1, 5, 2], np.float32)
        )
        table = pa.concat_tables(model.recommend_new(["n1", "n2", "n3"], events, 5)).unify_dictionaries()
        rows = table.to_pylist()
        assert {row["user"]: row["by"] for row in rows} == {"n1": "fold-in", "n2": "popularity", "n3": "fold-in"}
        one = model.recommend_folded(model.fold_in(["w", "x"], [1.0, 5.0]), 5, exclude=["w", "x"])
        assert one.by == "fold-in"
        assert [row["item"] for row in rows if row["user"] == "n1"] == one.items.to_pylist()

    def test_a_stretch_of_the_models_own_users_is_answered_without_looking_them_up(self) -> None:
        model = large(300, 900, 8)
        between = pa.concat_tables(model.recommend_between(100, 300, 5))
        assert between == pa.concat_tables(model.recommend_many(range(100, 300), 5))


class TestSimilarItems:
    def test_they_are_those_of_the_highest_cosine(self) -> None:
        model = large(50, 2_000, 8)
        vectors = model.factors.items / np.linalg.norm(model.factors.items, axis=1, keepdims=True)
        cosines = vectors @ vectors[7]
        cosines[7] = -2
        listed = model.similar(7, 5)
        assert listed.items.to_pylist() == np.argsort(-cosines)[:5].tolist()
        assert listed.scores.tolist() == pytest.approx(np.sort(cosines)[::-1][:5].tolist(), abs=1e-6)

    def test_an_unknown_item_gets_what_is_popular(self) -> None:
        assert small().similar("nothing", 2).by == "popularity"
        assert small().similar("never", 2).items.to_pylist() == ["x", "w"]


class TestIds:
    def test_text_is_not_a_number(self) -> None:
        with pytest.raises(ModelError, match="user ids are text, 1 is whole numbers"):
            small().recommend(1)
        numbers = small(users=[1, 2, 3, 4])
        assert numbers.recommend(1).by == "factors"
        with pytest.raises(ModelError, match="whole numbers, '1' is text"):
            numbers.recommend("1")

    def test_ids_of_both_types_are_refused(self) -> None:
        with pytest.raises(DataError, match=r"1 \(a number\) and 'a' \(text\)"):
            small(users=["a", 1, "b", "c"])

    @pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()])
    def test_integers_of_any_width_are_the_same_ids(self, kind: pa.DataType) -> None:
        model = small(users=pa.array([7, 8, 9, 10], kind))
        assert model.find_users(pa.array([9, 7], pa.int64())).tolist() == [2, 0]
        assert model.find_users(np.array([8], np.int16)).tolist() == [1]

    @pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()])
    def test_text_of_any_kind_is_the_same_id(self, kind: pa.DataType) -> None:
        users = pa.array(USERS).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(USERS, kind)
        assert small(users=users).find_users(["cäcilie"]).tolist() == [2]

    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            (["a", "a", "b", "c"], "'a' has two indices"),
            (["a", None, "b", "c"], "1 of 4 user ids are missing"),
            ([1.5, 2.5, 3.5, 4.5], "cannot be double"),
            ([True, False, True, True], "cannot be bool"),
            (pa.array([2**63, 1, 2, 3], pa.uint64()), "does not fit"),
        ],
    )
    def test_what_is_no_id_is_refused(self, ids: Any, words: str) -> None:
        with pytest.raises(DataError, match=words):
            small(users=ids).find_users(["a"])

    def test_every_index_has_an_id(self) -> None:
        with pytest.raises(ModelError, match="3 users"):
            small(users=["a", "b", "c"])


@pytest.fixture(params=["local", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "model")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.url("runs/model")


class TestKeeping:
    def test_a_loaded_model_answers_as_before(self, location: str) -> None:
        model = small(limits=(1.0, 5.0))
        model.save(location)
        loaded = FactorModel.load(location)
        assert loaded.digest == model.digest
        loaded.verify()
        assert loaded.score(USERS, ITEMS[:4]).values.tolist() == model.score(USERS, ITEMS[:4]).values.tolist()
        assert loaded.recommend("ann").items == model.recommend("ann").items
        assert loaded.user_ids == model.user_ids
        assert (loaded.kind, loaded.settings, loaded.limits) == ("explicit", {"regularization": 0.1}, (1.0, 5.0))

    def test_no_file_holds_a_pickle(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        assert {path.suffix for path in tmp_path.iterdir()} == {".npy", ".arrow", ".json"}
        for path in tmp_path.glob("*.npy"):
            np.load(path, allow_pickle=False)

    def test_nothing_but_its_description_is_read_to_load_it(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        for path in (*tmp_path.glob("*.npy"), *tmp_path.glob("*.arrow")):
            path.unlink()
        assert FactorModel.load(str(tmp_path)).kind == "explicit"

    def test_a_local_model_is_mapped_not_read_and_never_written_to(self, tmp_path: Path) -> None:
        model = small()
        model.save(str(tmp_path))
        loaded = FactorModel.load(str(tmp_path))
        assert not loaded.factors.items.flags.owndata
        loaded.factors.items[:] = 0
        assert FactorModel.load(str(tmp_path)).factors.items.tolist() == model.factors.items.tolist()

    def test_a_model_without_any_seen_items_can_be_kept(self, tmp_path: Path) -> None:
        factors = Factors.of(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
        FactorModel.of("implicit", factors, [1, 2], [3, 4], Seen.nothing(2), {}).save(str(tmp_path))
        assert FactorModel.load(str(tmp_path)).recommend(1).items.to_pylist() == []

    def test_what_each_pair_came_to_and_the_newest_event_are_kept(self, location: str) -> None:
        model = small(values=np.arange(7, dtype=np.float32), as_of=1.5e9)
        model.save(location)
        loaded = FactorModel.load(location)
        assert loaded.as_of == 1.5e9 and small().as_of is None
        assert loaded.seen.values is not None
        assert loaded.seen.values.tolist() == [0, 1, 2, 6, 3, 4, 5]  # by user and item
        assert len({small().digest, model.digest, small(as_of=1.5e9).digest}) == 3

    def test_the_index_of_a_large_catalogue_is_kept_with_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = large(20, 21_000, 8)
        model.save(str(tmp_path))
        assert (tmp_path / "index_codes.npy").exists()
        expected = [model.recommend(user, 10).items.to_pylist() for user in range(20)]

        def build(*_: Any) -> Any:
            raise AssertionError("it was built again")

        monkeypatch.setattr(top, "encode_items", build)
        loaded = FactorModel.load(str(tmp_path))
        assert [loaded.recommend(user, 10).items.to_pylist() for user in range(20)] == expected

    def test_a_small_catalogue_has_no_index(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        assert not list(tmp_path.glob("index_*"))

    def test_the_digest_is_of_the_content(self) -> None:
        assert small().digest == small().digest
        others = [small("implicit"), small(users=["ann", "bob", "cäcilie", "old"]), small(users=[1, 2, 3, 4])]
        changed = small()
        changed.factors.items[0, 0] += np.float32(1e-6)
        assert len({model.digest for model in [small(), changed, *others]}) == 5

    def test_a_changed_file_is_found_out(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        path = tmp_path / "item_factors.npy"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(ModelError, match="not what its digest says"):
            FactorModel.load(str(tmp_path)).verify()

    @pytest.mark.parametrize("name", ["item_factors.npy", "users.arrow", "model.json"])
    @pytest.mark.parametrize("left", [0, 20, 0.9])
    def test_a_file_that_was_cut_off_is_named(self, tmp_path: Path, name: str, left: float) -> None:
        small().save(str(tmp_path))
        path = tmp_path / name
        content = path.read_bytes()
        path.write_bytes(content[: int(left if left > 1 else left * len(content))])
        with pytest.raises(ModelError, match=rf"{name} is damaged"):
            FactorModel.load(str(tmp_path)).recommend("ann")

    def test_a_file_of_another_model_is_named(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        np.save(tmp_path / "item_bias.npy", np.zeros(9, np.float32))
        with pytest.raises(ModelError, match=r"item_bias.npy is damaged: float32\[9\]"):
            FactorModel.load(str(tmp_path)).recommend("ann")

    def test_a_pickle_is_not_opened(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        np.save(tmp_path / "item_bias.npy", np.array([{}] * 5), allow_pickle=True)
        with pytest.raises(ModelError, match="damaged"):
            FactorModel.load(str(tmp_path)).recommend("ann")

    def test_a_place_without_a_model_is_an_error(self, location: str) -> None:
        with pytest.raises(ModelError, match="no factor model"):
            FactorModel.load(location)

    def test_a_newer_format_is_not_guessed_at(self, tmp_path: Path) -> None:
        small().save(str(tmp_path))
        document = json.loads((tmp_path / "model.json").read_text())
        (tmp_path / "model.json").write_text(json.dumps({**document, "format": 99}))
        with pytest.raises(ModelError, match="format 99"):
            FactorModel.load(str(tmp_path))


class TestExport:
    def test_vectors_go_to_parquet_with_their_ids(self, tmp_path: Path) -> None:
        model = small()
        model.export(str(tmp_path / "items.parquet"))
        table = pq.read_table(tmp_path / "items.parquet")
        assert table["id"].to_pylist() == ITEMS
        assert np.array(table["vector"].to_pylist(), np.float32).tolist() == model.factors.items.tolist()
        assert table["bias"].to_pylist() == [1, 2, 3, 4, 5]

    def test_with_the_bias_in_it_the_product_has_the_order_of_scores(self, tmp_path: Path) -> None:
        model = small()
        for side in ("items", "users"):
            model.export(str(tmp_path / f"{side}.arrow"), side, bias_in_vector=True)  # type: ignore[arg-type]
        items, users = (
            np.array(pa.ipc.open_file(str(tmp_path / f"{side}.arrow")).read_all()["vector"].to_pylist())
            for side in ("items", "users")
        )
        scores = model.score(["ann"] * 4, ITEMS[:4]).values
        assert (items @ users[0])[:4] + 3.5 + 0.1 == pytest.approx(scores, abs=1e-5)
