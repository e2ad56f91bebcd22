"""Types are read from Paimon's SQL text and JSON; whatever else is sent is refused with a fix, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.types.datatype import DataType, Field
from app.core.types.entry import MAX_LENGTH
from app.core.types.kinds import Kind
from app.core.types.parser import REFUSED, TypeSyntaxError, parse_type, type_to_json
from tests.core.strategies import TYPES

INT = DataType(Kind.INT)
STRING = DataType(Kind.STRING)


def _row(*fields: tuple[str, DataType]) -> DataType:
    return DataType(Kind.ROW, fields=tuple(Field(i, name, inner) for i, (name, inner) in enumerate(fields)))


SQL = {
    **{
        kind: DataType(Kind(kind))
        for kind in ("BOOLEAN", "TINYINT", "SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "BYTES", "DATE")
    },
    "bool": DataType(Kind.BOOLEAN),
    "INT": INT,
    "integer": INT,
    "  InT\n": INT,
    "INT NULL": INT,
    "INT NOT NULL": INT.with_nullable(False),
    "int not\tnull": INT.with_nullable(False),
    "DOUBLE PRECISION": DataType(Kind.DOUBLE),
    "DECIMAL": DataType(Kind.DECIMAL, precision=10, scale=0),
    "DEC(3)": DataType(Kind.DECIMAL, precision=3, scale=0),
    "NUMERIC(38,38)": DataType(Kind.DECIMAL, precision=38, scale=38),
    "DECIMAL( 10 , 2 )": DataType(Kind.DECIMAL, precision=10, scale=2),
    "CHAR": DataType(Kind.CHAR, length=1),
    "CHAR(3)": DataType(Kind.CHAR, length=3),
    "VARCHAR": DataType(Kind.VARCHAR, length=1),
    "VARCHAR(255)": DataType(Kind.VARCHAR, length=255),
    f"VARCHAR({MAX_LENGTH})": STRING,
    "STRING": STRING,
    "BINARY": DataType(Kind.BINARY, length=1),
    "BINARY(16)": DataType(Kind.BINARY, length=16),
    "VARBINARY(4)": DataType(Kind.VARBINARY, length=4),
    f"VARBINARY({MAX_LENGTH})": DataType(Kind.BYTES),
    "TIME": DataType(Kind.TIME, precision=0),
    "TIME(3)": DataType(Kind.TIME, precision=3),
    "TIMESTAMP": DataType(Kind.TIMESTAMP, precision=6),
    "TIMESTAMP(0)": DataType(Kind.TIMESTAMP, precision=0),
    "TIMESTAMP(3) WITHOUT TIME ZONE": DataType(Kind.TIMESTAMP, precision=3),
    "TIMESTAMP_LTZ": DataType(Kind.TIMESTAMP_LTZ, precision=6),
    "TIMESTAMP_LTZ(3)": DataType(Kind.TIMESTAMP_LTZ, precision=3),
    "TIMESTAMP WITH LOCAL TIME ZONE": DataType(Kind.TIMESTAMP_LTZ, precision=6),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL": DataType(Kind.TIMESTAMP_LTZ, nullable=False, precision=3),
    "ARRAY<INT>": DataType(Kind.ARRAY, element=INT),
    "ARRAY<INT NOT NULL> NOT NULL": DataType(Kind.ARRAY, nullable=False, element=INT.with_nullable(False)),
    "MULTISET<STRING>": DataType(Kind.MULTISET, element=STRING),
    "MAP<STRING, ARRAY<INT>>": DataType(Kind.MAP, key=STRING, element=DataType(Kind.ARRAY, element=INT)),
    "MAP<ARRAY<INT>, INT>": DataType(Kind.MAP, key=DataType(Kind.ARRAY, element=INT), element=INT),
    "ROW<a INT, b STRING>": _row(("a", INT), ("b", STRING)),
    "ROW(a INT)": _row(("a", INT)),
    "ROW<row INT, array STRING, null INT>": _row(("row", INT), ("array", STRING), ("null", INT)),
    'ROW<`a b` INT, "c" INT, `d``e` INT, `<,>` INT>': _row(("a b", INT), ("c", INT), ("d`e", INT), ("<,>", INT)),
    "ROW<a ROW<b INT>>": _row(("a", _row(("b", INT)))),
}


@pytest.mark.parametrize("text", SQL)
def test_sql_text_is_read_as_paimon_reads_it(text: str) -> None:
    assert parse_type(text) == SQL[text]


KEYWORDS = [
    *("array", "multiset", "map", "row", "double", "precision", "timestamp", "with", "without", "local", "time"),
    *("zone", "not", "null", "int", "decimal", "timestamp_ltz"),
]


@pytest.mark.parametrize("case", [str.lower, str.upper])
@pytest.mark.parametrize("inner", ["INT", "ROW<row INT>", "ARRAY<INT> NOT NULL", "TIMESTAMP(3) WITHOUT TIME ZONE"])
def test_a_word_of_the_grammar_is_a_name_of_a_field_too(inner: str, case: Any) -> None:
    names = [case(word) for word in KEYWORDS]
    for left, right in ("<>", "()"):
        fields = parse_type(f"ROW{left}{', '.join(f'{name} {inner}' for name in names)}{right}").fields
        assert [(field.name, field.type) for field in fields] == [(name, parse_type(inner)) for name in names]


@pytest.mark.parametrize("space", ["", " ", "\n\t "])
def test_space_between_words_and_brackets_means_nothing(space: str) -> None:
    words = ["MAP", "<", "ARRAY", "<", "INT", ">", ",", "ROW", "(", "`a`", "DECIMAL", "(", "3", ",", "1", ")", ")", ">"]
    assert parse_type(space.join(words)) == parse_type("MAP<ARRAY<INT>, ROW<a DECIMAL(3, 1)>>")


@pytest.mark.parametrize("name", ["a>b", "<<", "((", "it's", 'a "b"', "a`b", "NOT NULL", " ", "ROW<a INT>", "é🙂"])
@pytest.mark.parametrize("quote", ["`", '"'])
def test_a_quoted_name_and_a_comment_hold_anything(name: str, quote: str) -> None:
    quoted, comment = quote + name.replace(quote, quote * 2) + quote, name.replace("'", "''")
    fields = parse_type(f"ROW<{quoted} INT NOT NULL '{comment}', b INT>").fields
    assert [(field.name, field.description) for field in fields] == [(name, name), ("b", None)]
    assert [field.type for field in fields] == [INT.with_nullable(False), INT]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ARRAY<INT", "too early"),
        ("ROW<a>", "from character 6 on: '>'"),
        ("BIGINT UNSIGNED", "from character 8 on: 'UNSIGNED'"),
        ("ROW<a INT, b DECIMAL(1.5)>", "from character 23 on: '.5)>'"),
    ],
)
def test_a_refusal_says_where_reading_stopped(text: str, place: str) -> None:
    with pytest.raises(TypeSyntaxError) as caught:
        parse_type(text)
    assert place in str(caught.value)


def test_the_list_above_holds_every_kind_of_type() -> None:
    assert {data_type.kind for data_type in SQL.values()} == set(Kind)


JSON = [
    ({"type": "ARRAY", "element": "INT"}, "ARRAY<INT>"),
    ({"type": "ARRAY NOT NULL", "element": "INT NOT NULL"}, "ARRAY<INT NOT NULL> NOT NULL"),
    ({"type": "array not null", "element": {"type": "MULTISET", "element": "INT"}}, "ARRAY<MULTISET<INT>> NOT NULL"),
    ({"type": "MAP", "key": "STRING NOT NULL", "value": "TIMESTAMP_LTZ(3)"}, "MAP<STRING NOT NULL, TIMESTAMP_LTZ(3)>"),
    ({"type": "ROW NOT NULL", "fields": [{"id": 0, "name": "a", "type": "INT"}]}, "ROW<a INT> NOT NULL"),
    ({"type": "ARRAY", "element": "INT", "comment": "unknown members are ignored"}, "ARRAY<INT>"),
    ({"type": "DECIMAL(10, 2) NOT NULL"}, "DECIMAL(10, 2) NOT NULL"),
    ({"type": "MAP<INT, INT>"}, "MAP<INT, INT>"),
]


@pytest.mark.parametrize(("body", "sql"), JSON)
def test_paimons_json_means_the_same_as_the_sql_text(body: dict[str, Any], sql: str) -> None:
    assert parse_type(body) == parse_type(sql)


def test_ids_and_descriptions_of_json_fields_are_kept_and_a_bad_id_is_left_to_be_given() -> None:
    ids = [7, None, -3, True, 2**31, "4"]
    fields = [{"id": raw, "name": f"f{at}", "type": "INT", "description": f"d{at}"} for at, raw in enumerate(ids)]
    read = parse_type({"type": "ROW", "fields": fields}).fields
    assert [field.id for field in read] == [7, -1, -1, -1, -1, -1]
    assert [field.description for field in read] == [f"d{at}" for at in range(6)]


@given(TYPES)
def test_json_of_any_type_is_read_back_as_that_type(data_type: DataType) -> None:
    written = json.loads(json.dumps(type_to_json(data_type)))
    assert parse_type(written) == data_type


def _without_descriptions(data_type: DataType) -> DataType:
    return replace(
        data_type,
        key=None if data_type.key is None else _without_descriptions(data_type.key),
        element=None if data_type.element is None else _without_descriptions(data_type.element),
        fields=tuple(replace(f, type=_without_descriptions(f.type), description=None) for f in data_type.fields),
    )


@given(TYPES)
def test_sql_of_any_type_is_read_back_as_that_type(data_type: DataType) -> None:
    assert parse_type(data_type.sql) == _without_descriptions(data_type)


@pytest.mark.parametrize("kind", REFUSED)
def test_types_that_spark_cannot_hold_are_refused_by_name_with_what_to_use_instead(kind: str) -> None:
    with pytest.raises(TypeSyntaxError, match=kind) as caught:
        parse_type(f"{kind} NOT NULL")
    assert (caught.value.code, caught.value.fix) == ("unsupported_type", REFUSED[kind])


@pytest.mark.parametrize(
    ("text", "name", "fix"),
    [
        ("VECTOR<FLOAT, 3>", "VECTOR", "ARRAY<FLOAT>"),  # Paimon's own spelling
        ("INTERVAL DAY TO SECOND", "INTERVAL", "BIGINT"),
        ("INTERVAL YEAR(4) TO MONTH", "INTERVAL", "BIGINT"),
        ("TIMESTAMP(3) WITH TIME ZONE", "WITH TIME ZONE", "WITH LOCAL TIME ZONE"),
        ("TIMESTAMP(9)", "nanoseconds", "TIMESTAMP(6)"),
        ("MAP<MAP<INT, INT>, INT>", "MAP<INT, INT>", "scalar, ARRAY or ROW key"),
        ("MULTISET<ROW<a MULTISET<INT>>>", "MULTISET<INT>", "scalar, ARRAY or ROW key"),
    ],
)
def test_unsupported_spellings_are_refused_by_name_with_what_to_use_instead(text: str, name: str, fix: str) -> None:
    with pytest.raises(TypeSyntaxError) as caught:
        parse_type(text)
    assert caught.value.code == "unsupported_type"
    assert name in str(caught.value)
    assert fix in caught.value.fix


REFUSALS = [
    ("STRIN", "unknown_type", "did you mean STRING?"),
    ("BIGNT", "unknown_type", "did you mean BIGINT?"),
    ("XML", "unknown_type", "known types: BOOLEAN"),
    ("NOT NULL", "unknown_type", "did you mean INT?"),
    ("INT(5)", "unknown_type", "write INT"),
    ("CHAR(1, 2)", "unknown_type", "remove the extra"),
    ("DECIMAL(1, 1, 1)", "unknown_type", "remove the extra"),
    ("DECIMAL(0)", "out_of_range", "DECIMAL(1) to DECIMAL(38)"),
    ("DECIMAL(39)", "out_of_range", "DECIMAL(1) to DECIMAL(38)"),
    ("DECIMAL(5, 6)", "unknown_type", "from 0 to the precision"),
    ("CHAR(0)", "out_of_range", "write CHAR(1)"),
    ("VARCHAR(2147483648)", "out_of_range", "write VARCHAR(1)"),
    ("BINARY(0)", "out_of_range", "write BINARY(1)"),
    ("TIME(10)", "out_of_range", "TIME(0) to TIME(9)"),
    ("TIMESTAMP(10)", "out_of_range", "TIMESTAMP(0) to TIMESTAMP(9)"),
    ("ROW<>", "unknown_type", "add a field"),
    ("ROW()", "unknown_type", "add a field"),
    ("ROW<a INT, a INT>", "duplicate_column", "rename"),
    ("ARRAY<ROW<a INT, a INT>>", "duplicate_column", "rename"),
    ("ARRAY", "unknown_type", "ARRAY<"),
    ("MAP", "unknown_type", "MAP<"),
    *[
        (text, "unknown_type", "e.g. DECIMAL(10, 2)")
        for text in (
            *("", " ", "\0", "INT NOT NULL NOT NULL", "INT;", "BIGINT UNSIGNED", "ARRAY<INT", "MAP<INT>"),
            *("ROW<a>", "ROW<`` INT>", "CHAR()", "DECIMAL(-1)", "ıNT", "İNT", "DECIMAL(١)", f"CHAR({'9' * 5000})"),
        )
    ],
]


@pytest.mark.parametrize(("text", "code", "fix"), REFUSALS)
def test_text_that_is_no_type_is_refused_with_a_fix(text: str, code: str, fix: str) -> None:
    with pytest.raises(TypeSyntaxError) as caught:
        parse_type(text)
    assert caught.value.code == code
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("body", "code"),
    [
        *[(body, "missing") for body in (None, 5, True, [], ["INT"], {}, {"type": None}, {"type": ["INT"]})],
        ({"type": "ARRAY"}, "missing"),
        ({"type": "MAP", "key": "INT"}, "missing"),
        ({"type": "MAP", "value": "INT"}, "missing"),
        ({"type": "ROW"}, "unknown_type"),
        ({"type": "ROW", "fields": []}, "unknown_type"),
        ({"type": "ROW", "fields": {"a": "INT"}}, "unknown_type"),
        ({"type": "ROW", "fields": ["a"]}, "unknown_type"),
        ({"type": "ROW", "fields": [{"type": "INT"}]}, "unknown_type"),
        ({"type": "ROW", "fields": [{"name": "", "type": "INT"}]}, "unknown_type"),
        ({"type": "ROW", "fields": [{"name": "a"}]}, "missing"),
        ({"type": "ROW", "fields": [{"name": "a", "type": "INT"}, {"name": "a", "type": "INT"}]}, "duplicate_column"),
        ({"type": "VECTOR", "element": "FLOAT", "length": 3}, "unsupported_type"),
        ({"type": "ARRAY", "element": "STRIN"}, "unknown_type"),
        ({"type": "ARRAY NULLABLE", "element": "INT"}, "unknown_type"),
        ({"type": "ARRAY NOT NULL NOT NULL", "element": "INT"}, "unknown_type"),
    ],
)
def test_json_that_is_no_type_is_refused(body: object, code: str) -> None:
    with pytest.raises(TypeSyntaxError) as caught:
        parse_type(body)
    assert caught.value.code == code
    assert caught.value.fix


_WORDS = st.sampled_from(
    [*Kind, *REFUSED, "<", ">", "(", ")", ",", "NOT", "NULL", "`", "a", "'", "0", "9" * 12, "WITH", "TIME", "ZONE", "é"]
)


def _is_type_or_has_fix(raw: object) -> bool:
    try:
        return isinstance(parse_type(raw), DataType)
    except TypeSyntaxError as error:
        return bool(error.fix)


@given(st.one_of(st.text(max_size=20), st.lists(_WORDS, max_size=12).map(" ".join)))
def test_any_text_is_a_type_or_is_refused(text: str) -> None:
    assert _is_type_or_has_fix(text)


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), _WORDS)
_MEMBERS = st.sampled_from(["type", "element", "key", "value", "fields", "name", "id", "description"])
_BODIES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_MEMBERS, inner))


@given(_BODIES)
def test_any_json_is_a_type_or_is_refused(body: object) -> None:
    assert _is_type_or_has_fix(body)


def _nested_text(depth: int) -> object:
    return "ARRAY<" * depth + "INT" + ">" * depth


def _nested_rows_with_brackets_in_names(depth: int) -> str:
    return "ARRAY<ROW<`>>>>` " * (depth // 2) + "INT" + ">>" * (depth // 2)


def _nested_object(depth: int) -> object:
    body: object = "INT"
    for _ in range(depth):
        body = {"type": "ARRAY", "element": body}
    return body


def _nested_type_members(depth: int) -> object:
    body: object = "INT"
    for _ in range(depth):
        body = {"type": body}
    return body


def test_brackets_inside_quotes_nest_nothing() -> None:
    described = parse_type(f"ROW<`{'<' * 100}` INT '{'(' * 100}'>").fields[0]
    assert (described.name, described.description) == ("<" * 100, "(" * 100)


@pytest.mark.parametrize("depth", [100, 400, 2000])
def test_brackets_inside_quotes_do_not_hide_how_deep_a_type_is(depth: int) -> None:
    with pytest.raises(TypeSyntaxError, match="deep"):
        parse_type(_nested_rows_with_brackets_in_names(depth))


@pytest.mark.parametrize("nested", [_nested_text, _nested_object, _nested_type_members])
@pytest.mark.parametrize("depth", [1, 10, 60, 150, 400, 900, 2000])
def test_however_deep_a_type_is_nested_it_is_refused_or_can_be_used(nested: Any, depth: int) -> None:
    try:
        data_type = parse_type(nested(depth))
    except TypeSyntaxError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "deep" in refusal
        assert depth > 10
        return
    value: Any = 1
    for _ in range(data_type.sql.count("ARRAY")):
        value = [value]
    assert data_type.spark.count("ARRAY") == data_type.sql.count("ARRAY")
    assert parse_type(type_to_json(data_type)) == data_type
    assert data_type.encoder(data_type.decoder(value)) == value
