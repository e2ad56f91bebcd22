"""CREATE TABLE written: it reads as the schema that it was written of, in both dialects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.ddl.reader import read_tables
from app.core.ddl.writer import table_ddl
from app.core.errors import FaultCode, Invalid
from app.core.table.schema import TableSchema
from app.core.types.dialects import Dialect
from app.core.types.parser import parse_type

TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8)
NAMES = st.one_of(
    st.sampled_from(["id", "from", "select", "a b", "`", "x''y", '"', "--", ";", "ä", "\\"]), TEXTS.filter(bool)
)


def spelt(kind: str) -> str:
    """The type as Keyfold's JSON spells it."""
    return parse_type(kind).sql


SCALARS = "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL(5,2) CHAR(3) VARCHAR(7) STRING BYTES DATE"
BOTH = st.sampled_from([*SCALARS.split(), "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"]).map(spelt)
MORE = "TIME(3) TIMESTAMP(0) TIMESTAMP_LTZ(3) BINARY(4) VARBINARY(9) CHAR(1) VARCHAR(1)"
FLINKS = st.sampled_from(MORE.split()).map(spelt)


def nested(inner: st.SearchStrategy[Any], *, not_null: bool) -> st.SearchStrategy[Any]:
    """Types of which ``inner`` are inside."""
    may_be_null = inner if not not_null else st.one_of(inner, inner.map(without_null))
    fields = st.lists(
        st.tuples(NAMES, st.one_of(inner, inner.map(without_null)), st.none() | TEXTS), min_size=1, max_size=3
    )
    rows = fields.map(lambda listed: {"type": "ROW", "fields": [field(n, *one) for n, one in enumerate(listed)]})
    arrays = may_be_null.map(lambda element: {"type": "ARRAY", "element": element})
    keys = st.sampled_from(["INT", "STRING"])
    maps = st.tuples(keys, may_be_null).map(lambda pair: {"type": "MAP", "key": pair[0], "value": pair[1]})
    multisets = inner.filter(lambda one: isinstance(one, str)).map(
        lambda element: {"type": "MULTISET", "element": element}
    )
    return st.one_of(rows, arrays, maps, *([multisets] if not_null else []))


def field(number: int, name: str, kind: Any, description: str | None) -> dict[str, Any]:
    reported = {} if description is None else {"description": description}
    return {"id": number, "name": f"{name}{number}", "type": kind, **reported}


def without_null(kind: Any) -> Any:
    return f"{kind} NOT NULL" if isinstance(kind, str) else {**kind, "type": f"{kind['type']} NOT NULL"}


def types(dialect: Dialect) -> st.SearchStrategy[Any]:
    flink = dialect is Dialect.FLINK
    scalars = st.one_of(BOTH, FLINKS) if flink else BOTH
    return st.recursive(scalars, lambda inner: nested(inner, not_null=flink), max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn, dialect: Dialect) -> TableSchema:
    """Tables without a meaning of their options: any key and text is written and read."""
    kinds = draw(st.lists(types(dialect), max_size=4))
    columns = [{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}]
    for number, kind in enumerate(kinds, start=1):
        column = field(number, draw(NAMES), draw(st.sampled_from([kind, without_null(kind)])), draw(st.none() | TEXTS))
        if kind == "STRING":
            column |= draw(st.just({}) | TEXTS.filter(unquoted).map(lambda text: {"defaultValue": text}))
        columns.append(column)
    return TableSchema.from_json(
        {
            "fields": columns,
            "primaryKeys": ["id"],
            "partitionKeys": draw(st.sampled_from([[], ["id"]])),
            "options": draw(
                st.dictionaries(NAMES.filter(lambda key: key not in ("connector", "primary-key")), TEXTS, max_size=3)
            ),
            "comment": draw(st.none() | TEXTS),
        }
    )


def unquoted(text: str) -> bool:
    """Whether no quotes are part of a default's text, which would be none of its value."""
    return not (len(text) > 1 and text[0] == text[-1] == "'")


@pytest.mark.parametrize("dialect", Dialect)
@given(drawn=st.data())
def test_what_is_written_reads_as_the_same_schema(dialect: Dialect, drawn: st.DataObject) -> None:
    schema = drawn.draw(schemas(dialect))
    name = drawn.draw(NAMES)
    [statement] = read_tables(table_ddl(name, schema, dialect), dialect)
    assert statement.path == (name,)
    assert TableSchema.from_json(statement.body).to_json() == schema.to_json()


def declared(*columns: tuple[str, Any], key: str = "id", **options: str) -> TableSchema:
    fields = [{"name": key, "type": "BIGINT"}, *({"name": name, "type": kind} for name, kind in columns)]
    return TableSchema.from_json({"fields": fields, "primaryKeys": [key], "options": options})


def test_flink_reads_what_is_written_for_it() -> None:
    schema = declared(("at", "TIMESTAMP(3)"), ("r", "ROW<a INT NOT NULL>"), bucket="4")
    assert table_ddl("orders", schema, Dialect.FLINK) == (
        "CREATE TABLE `orders` (\n  `id` BIGINT NOT NULL,\n  `at` TIMESTAMP(3),\n  `r` ROW<`a` INT NOT NULL>,\n"
        "  PRIMARY KEY (`id`) NOT ENFORCED\n)\nWITH (\n  'bucket' = '4'\n);\n"
    )


def test_spark_reads_what_is_written_for_it() -> None:
    schema = declared(("at", "TIMESTAMP(6)"), ("l", "TIMESTAMP_LTZ(6)"), ("r", "ROW<a INT NOT NULL>"), ("b", "BYTES"))
    assert table_ddl("orders", schema, Dialect.SPARK) == (
        "CREATE TABLE `orders` (\n  `id` BIGINT NOT NULL,\n  `at` TIMESTAMP_NTZ,\n  `l` TIMESTAMP,\n"
        "  `r` STRUCT<`a`: INT NOT NULL>,\n  `b` BINARY\n)\nUSING paimon\nTBLPROPERTIES (\n  'primary-key' = 'id'\n);\n"
    )


@pytest.mark.parametrize(
    "kind",
    ["TIME(0)", "TIMESTAMP(3)", "BINARY(3)", "VARBINARY(3)", "MULTISET<INT>", "ARRAY<INT NOT NULL>", "MAP<INT, TIME>"],
)
def test_what_spark_has_no_words_for_is_refused_with_every_column(kind: str) -> None:
    schema = declared(("a", kind), ("b", f"ROW<x {kind}>"), ("c", "INT"))
    with pytest.raises(Invalid) as refused:
        table_ddl("orders", schema, Dialect.SPARK)
    assert [(fault.code, fault.column) for fault in refused.value.violations] == [
        (FaultCode.UNSUPPORTED_TYPE, "a"),
        (FaultCode.UNSUPPORTED_TYPE, "b"),
    ]
    assert "dialect=flink" in refused.value.message


def test_a_key_that_sparks_option_cannot_hold_is_refused() -> None:
    with pytest.raises(Invalid) as refused:
        table_ddl("orders", declared(key="a,b"), Dialect.SPARK)
    assert [fault.code for fault in refused.value.violations] == [FaultCode.ILLEGAL_NAME]
