"""The form of a table's columns, for those who do not write SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from app.core.functions.entries import FUNCTIONS
from app.core.table.options.entries import MergeEngine
from app.core.types.kinds import Kind
from app.services.tables.column_forms import ColumnForm, FormColumn

MOST_COLUMNS: Final = 200  # of the form; SQL has no such bound
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


def columns_told(form: ColumnForm) -> dict[str, object]:
    """Return what the template shows of ``form``, with empty lines below its columns."""
    spare = min(_SPARE, MOST_COLUMNS - len(form.columns))
    return {
        "columns_form": form,
        "lines": [*form.columns, *[FormColumn("", "", False, "")] * spare],
        "engines": [(engine.value, words) for engine, words in _ENGINES.items()],
        "functions": [(name, entry.meaning) for name, entry in FUNCTIONS.items()],
        "types": _TYPES,
        "orders": [one.name for one in form.columns if not one.in_key],
    }


def columns_sent(name: str, sent: Mapping[str, str]) -> ColumnForm:
    """Return what a form says; lines without a name are left out."""
    engine = sent.get("engine", "")
    known = engine in {one.value for one in MergeEngine}
    return ColumnForm(
        name,
        MergeEngine(engine) if known else BEGINNING.engine,
        sent.get("order", "").strip(),
        list(_columns(sent)),
    )


def _columns(sent: Mapping[str, str]) -> Iterator[FormColumn]:
    for place in range(MOST_COLUMNS):
        name, written = sent.get(f"name.{place}", "").strip(), sent.get(f"type.{place}", "").strip()
        if name:
            function = sent.get(f"function.{place}", "")
            yield FormColumn(name, written, f"key.{place}" in sent, function if function in FUNCTIONS else "")
