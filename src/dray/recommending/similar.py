"""Items that are like others, as a table or a file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dray.batch.output import Output
from dray.batch.table_files import kind_of_file, table_file
from dray.learners.ids import as_ids, as_model_has
from dray.learners.recommender import RecommendingModel, require_some
from dray.learners.stored import open_recommender
from dray.storage import DEFAULT, StorageOptions, write_atomically


def similar_items(
    model: str | RecommendingModel, items: Sequence[str | int], top: int = 10, storage: StorageOptions = DEFAULT
) -> pa.Table:
    """Return the most similar items of each as rows of item, rank, similar, score, by.

    Of an item that the model does not know, what is popular; `by` says so.
    """
    require_some(top)
    known = open_recommender(model, storage)
    tables = []
    for item in as_model_has(as_ids(items, "item id"), known.item_ids, "item"):
        best = known.similar(item.as_py(), top)
        count = len(best.items)
        tables.append(
            pa.table(
                {
                    "item": pa.array([item.as_py()] * count, known.item_ids.type),
                    "rank": pa.array(range(1, count + 1), pa.int32()),
                    "similar": best.items,
                    "score": pa.array(best.scores, pa.float32()),
                    "by": pa.array([best.by] * count, pa.string()),
                }
            )
        )
    return pa.concat_tables(tables)


def write_table(table: pa.Table, out: str, storage: StorageOptions = DEFAULT, *, overwrite: bool = False) -> str:
    """Write a table as one file: `out` itself, of the kind that its ending says, or Parquet in it; return its name."""
    single = kind_of_file(out) is not None
    with Output(out, storage, is_file=single, overwrite=overwrite) as output:
        name = output.out if single else f"{output.out}/part-00000.parquet"

        def write(stream: pa.NativeFile) -> None:
            with table_file(stream, name, table.schema) as add:
                add(table)

        write_atomically(output.writing(name), storage, write)
    return name


def export_vectors(
    model: str | RecommendingModel,
    out: str,
    *,
    bias_in_vector: bool = False,
    storage: StorageOptions = DEFAULT,
    overwrite: bool = False,
) -> list[str]:
    """Write users.parquet and items.parquet with ids and vectors to `out`, for an index of nearest neighbours."""
    known = open_recommender(model, storage)
    with Output(out, storage, is_file=False, overwrite=overwrite) as output:
        users, items = (f"{output.out}/{side}.parquet" for side in ("users", "items"))
        known.export(output.writing(users), "users", bias_in_vector=bias_in_vector, storage=storage)
        known.export(output.writing(items), "items", bias_in_vector=bias_in_vector, storage=storage)
    return [users, items]
