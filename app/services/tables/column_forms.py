"""A table as a form, column by column, converted to CREATE TABLE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.core.ddl.writer import table_ddl
from app.core.table.options.entries import MergeEngine
from app.core.table.schema_bounds import DEFAULT_BOUNDS, SchemaBounds
from app.core.types.dialects import Dialect
from app.services.tables.tables import validate_table


@dataclass(frozen=True)
class FormColumn:
    """A column: its type in SQL, whether it is a key column, and its function, empty if the merge engine decides."""

    name: str
    type: str
    in_key: bool
    function: str


@dataclass(frozen=True)
class ColumnForm:
    """A table; ``order`` is the sequence field, empty for the order of arrival."""

    name: str
    engine: MergeEngine
    order: str
    columns: Sequence[FormColumn]

    def ddl(self, bounds: SchemaBounds = DEFAULT_BOUNDS.table) -> str:
        """Return the CREATE TABLE statement. Raise ``Invalid`` with every fault."""
        fields = [
            {
                "id": place,
                "name": form_column.name,
                "type": f"{form_column.type} NOT NULL" if form_column.in_key else form_column.type,
            }
            for place, form_column in enumerate(self.columns)
        ]
        keys = [column.name for column in self.columns if column.in_key]
        body = {"fields": fields, "primaryKeys": keys, "options": dict(self._options())}
        return table_ddl(self.name, validate_table(self.name, body, bounds), Dialect.FLINK)

    def _options(self) -> Iterator[tuple[str, str]]:
        yield "merge-engine", self.engine.value
        if self.order:
            yield "sequence.field", self.order
        for column in self.columns:
            if column.function and not column.in_key:
                yield f"fields.{column.name}.aggregate-function", column.function
