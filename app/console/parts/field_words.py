"""Words for the effect of a written value on the stored one, by the function of its column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.console.parts.words import cut, shown
from app.core.plan.columns.column_functions import function_of
from app.core.table.schema import TableSchema

LONGEST_VALUE: Final = 60


@dataclass(frozen=True)
class FieldWords:
    """``words`` of a function, with the value that there is for ``{}``; ``of_null``: also where that is null."""

    words: str
    of_null: bool = False


FIELD_WORDS: Final[Mapping[str, FieldWords]] = {
    "sum": FieldWords("adds to {}"),
    "product": FieldWords("multiplies {}"),
    "max": FieldWords("kept if larger than {}"),
    "min": FieldWords("kept if smaller than {}"),
    "first_value": FieldWords("kept only if it comes before {}", of_null=True),
    "first_non_null_value": FieldWords("kept only if it comes before {}"),
    "listagg": FieldWords("is joined to {}"),
    "collect": FieldWords("its elements are added to {}"),
}
"""By the name of the function. A column of another function, or of none, says nothing."""


def field_words(schema: TableSchema, column: str, now: Any) -> str:
    """Return the words for the effect of a new value of ``column`` on ``now``; empty if the new value replaces it or
    the effect has no words.
    """
    function = function_of(schema, schema.parsed, column)
    entry = function.entry if function else None
    field = FIELD_WORDS.get(entry.name) if entry else None
    if field is None or (now is None and not field.of_null):
        return ""
    return field.words.format(cut(shown(now), LONGEST_VALUE))
