"""The tables that fuzzed inputs are read for: every type, every function, keys of every type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.core.table.schema import TableSchema
from tests.histories import FUNCTION_TYPES
from tests.services.bodies.test_change_events import COLUMNS

_NESTED = (
    "ARRAY<STRING>",
    "MAP<STRING, ARRAY<INT>>",
    "MULTISET<STRING>",
    "ROW<a INT, b ROW<c TIMESTAMP(3), d DECIMAL(38, 4)>, e ARRAY<BYTES>>",
    "ARRAY<MAP<INT, DOUBLE>>",
)
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 10)")
_TEXTS = ("STRING", "CHAR(3)", "VARCHAR(5)", "BYTES", "BINARY(2)", "VARBINARY(4)")
_TIMES = ("DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE")
SCALARS = ("BOOLEAN", *_NUMBERS, *_TEXTS, *_TIMES)


def table(fields: Mapping[str, str], key: Sequence[str], options: Mapping[str, str]) -> TableSchema:
    """A table of columns (name to type)."""
    declared = [{"name": name, "type": of} for name, of in fields.items()]
    return TableSchema.from_json({"fields": declared, "primaryKeys": list(key), "options": dict(options)})


def _of_functions() -> TableSchema:
    fields = {"id": "BIGINT NOT NULL"}
    options = {"merge-engine": "aggregation"}
    for function, types in FUNCTION_TYPES.items():
        name = f"f_{function}"
        fields[name] = types[-1]
        options[f"fields.{name}.aggregate-function"] = function
        if function.startswith("nested_"):
            options[f"fields.{name}.nested-key"] = "id"
    return table(fields, ("id",), options)


EVERY_TYPE = table({"id": "BIGINT NOT NULL", **{f"c{n}": of for n, of in enumerate((*SCALARS, *_NESTED))}}, ["id"], {})
NAMED = table(
    {"id": "STRING NOT NULL", "at": "TIMESTAMP(3)", "text": "STRING", "paid": "DECIMAL(10, 2)", "n": "BIGINT"},
    ["id"],
    {
        "merge-engine": "partial-update",
        "record.absent-columns": "unchanged",
        "fields.at.sequence-group": "text,paid,n",
        "fields.n.aggregate-function": "sum",
    },
)
FUNCTIONS = _of_functions()
_KEYS = {f"k{n}": f"{of} NOT NULL" for n, of in enumerate(SCALARS)}
KEYED = table({**_KEYS, "note": "STRING"}, [*_KEYS], {})
EVENTS = table(COLUMNS, ["id"], {"merge-engine": "aggregation", "fields.paid.aggregate-function": "sum"})
TABLES = {"a": EVERY_TYPE, "b": NAMED, "c": FUNCTIONS, "d": EVENTS}
