"""The form of a table's columns, for those who do not write SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.errors import FaultCode, KeyfoldError
from app.core.functions.entries import FUNCTIONS
from app.core.table.options.entries import MergeEngine
from app.core.table.schema_bounds import SchemaBounds
from app.core.types.kinds import Kind
from app.services.explaining.fold_examples import FoldExample, fold_example
from app.services.tables.column_forms import ColumnForm, FormColumn

# Most columns of the form; SQL has no such bound.
MOST_COLUMNS: Final = 200
_SPARE: Final = 3  # empty lines below those that are filled in
_TYPES: Final = (
    Kind.BIGINT.value,
    Kind.INT.value,
    Kind.STRING.value,
    f"{Kind.DECIMAL}(10, 2)",
    Kind.DOUBLE.value,
    Kind.BOOLEAN.value,
    Kind.DATE.value,
    f"{Kind.TIMESTAMP}(3)",
    f"{Kind.ARRAY}<{Kind.STRING}>",
    f"{Kind.MAP}<{Kind.STRING}, {Kind.STRING}>",
)
_ENGINES: Final[Mapping[MergeEngine, str]] = {
    MergeEngine.DEDUPLICATE: "the latest record is the row",
    MergeEngine.PARTIAL_UPDATE: "each column has its latest value that is not null",
    MergeEngine.AGGREGATION: "each column has a function of all its values",
    MergeEngine.FIRST_ROW: "the first record is the row",
}
BEGINNING: Final = ColumnForm(
    "orders",
    MergeEngine.AGGREGATION,
    "updated",
    [
        FormColumn("id", Kind.BIGINT.value, True, ""),
        FormColumn("updated", f"{Kind.TIMESTAMP}(3)", False, ""),
        FormColumn("status", Kind.STRING.value, False, ""),
        FormColumn("paid", f"{Kind.DECIMAL}(10, 2)", False, "sum"),
    ],
)


@dataclass(frozen=True)
class FormLine:
    """A line of the form: its number, its column, and an example of its function.

    ``reason`` says why there is no example, where it helps.
    """

    place: int
    column: FormColumn
    example: FoldExample | None = None
    reason: str = ""


def columns_context(form: ColumnForm, bounds: SchemaBounds) -> dict[str, object]:
    """Return the template's values for ``form``, with empty lines below its columns."""
    spare = min(_SPARE, MOST_COLUMNS - len(form.columns))
    columns = [*form.columns, *[FormColumn("", "", False, "")] * spare]
    return {
        "columns_form": form,
        "lines": [_line(place, column, form, bounds) for place, column in enumerate(columns)],
        "engines": [(engine.value, words) for engine, words in _ENGINES.items()],
        "functions": [(name, entry.meaning) for name, entry in FUNCTIONS.items()],
        "types": _TYPES,
        "orders": [form_column.name for form_column in form.columns if not form_column.in_key],
    }


def lines_sent(sent: Mapping[str, str], bounds: SchemaBounds) -> list[FormLine]:
    """Return the lines of the form in their order, also those without a name."""
    form = columns_sent("", sent)
    places = (place for place in range(MOST_COLUMNS) if f"type.{place}" in sent)
    return [_line(place, _column(sent, place), form, bounds) for place in places]


def _line(place: int, column: FormColumn, form: ColumnForm, bounds: SchemaBounds) -> FormLine:
    """Return the line with its example. A function folds as in a table of aggregation, where it needs no group."""
    if column.in_key or not column.type:
        return FormLine(place, column)
    engine = MergeEngine.AGGREGATION if column.function else form.engine
    orders = bool(form.order) and column.name == form.order
    try:
        example = fold_example(engine, column.type, column.function, bounds, orders=orders)
    except KeyfoldError as error:
        types = [violation for violation in error.violations if violation.code is FaultCode.ILLEGAL_FUNCTION_TYPE]
        takes = f"{column.function} takes {FUNCTIONS[column.function].takes}" if types else ""
        return FormLine(place, column, reason=takes)
    return FormLine(place, column, example)


def columns_sent(name: str, sent: Mapping[str, str]) -> ColumnForm:
    """Return the columns of a submitted form; lines without a name are left out."""
    return ColumnForm(name, _engine(sent), sent.get("order", "").strip(), list(_columns(sent)))


def _engine(sent: Mapping[str, str]) -> MergeEngine:
    engine = sent.get("engine", "")
    return MergeEngine(engine) if engine in {merge_engine.value for merge_engine in MergeEngine} else BEGINNING.engine


def _columns(sent: Mapping[str, str]) -> Iterator[FormColumn]:
    columns = (_column(sent, place) for place in range(MOST_COLUMNS))
    return (column for column in columns if column.name)


def _column(sent: Mapping[str, str], place: int) -> FormColumn:
    name, written = sent.get(f"name.{place}", "").strip(), sent.get(f"type.{place}", "").strip()
    function = sent.get(f"function.{place}", "")
    return FormColumn(name, written, f"key.{place}" in sent, function if function in FUNCTIONS else "")
