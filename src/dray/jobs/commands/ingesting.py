"""`dray data ingest` as a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dray.batch.options import Options
from dray.clusters.resolve import Attached, Here
from dray.data.open_source import open_source
from dray.events.telemetry import Sink, Telemetry
from dray.functions import load_function
from dray.ingesting.ingest import ingest
from dray.ingesting.noticed import tell
from dray.ingesting.recipe import Recipe, recipe_of
from dray.ingesting.written import IngestResult
from dray.jobs.command import shared_paths
from dray.jobs.commands.asked import AskedOfFunction
from dray.jobs.commands.mapping import on_the_cluster
from dray.jobs.shared import Head
from dray.jobs.user_code import Code, code_of, importable_name
from dray.runs.naming import Names
from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(AskedOfFunction):
    """Rows of a source, written as Parquet as a recipe says."""

    data: Any
    """Locations; in this process also a table, or a function that connects to a database."""
    out: str
    recipe: Recipe
    overwrite: bool = False
    function: Callable[[Any], Any] | None = None
    """The transform, in this process; a job imports it by the name in the recipe."""
    name: ClassVar[str] = "data ingest"

    @property
    def code(self) -> Code | None:
        if self.recipe.transform is None:
            return None
        return code_of(self.recipe.transform, [*self.data, self.out], excludes=self.excludes)

    def named(self, names: Names) -> Self:
        return replace(self, out=names.output(self.out))

    def settled(self, head: Head) -> Self:
        paths = shared_paths(head, data=self.data, out=self.out)
        recipe = self.recipe
        if self.function is not None and ":" not in (recipe.transform or ""):
            recipe = replace(recipe, transform=importable_name(self.function, head.url))
        return replace(
            self,
            data=paths["data"],
            out=paths["out"][0],
            recipe=recipe,
            function=None,
            where=on_the_cluster(self.where, head),
            word=head.url,
            output=None,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        recipe, storage = recipe_of(values["recipe"]), StorageOptions(**values["storage"])
        return cls(**{**values, "recipe": recipe, "storage": storage})

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> IngestResult:  # noqa: ARG002
        function = self.function
        if function is None and self.recipe.transform is not None:
            function = load_function(self.recipe.transform)
        telemetry = Telemetry(sinks)
        try:
            source = open_source(self.data, self.storage, **self.read)
            tell(source.notes, telemetry.emit)
            return ingest(
                source,
                self.out,
                self.recipe,
                function=function,
                overwrite=self.overwrite,
                storage=self.storage,
                options=Options(
                    where=self.where, workers=self.workers, cluster=None if self.word is None else where.word
                ),
                emit=telemetry.emit,
                output=self.output,
            )
        finally:
            telemetry.close()

    def result_of(self, told: Mapping[str, Any]) -> IngestResult:
        return IngestResult(**told)
