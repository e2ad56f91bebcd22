"""Answers made a column at a time are, byte for byte, those that are made row by row."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.plan.merging.fold import finish, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.answers import key_json, row_json, to_json
from app.core.table.records import Record, RowKind
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.core.types.parser import parse_type
from app.files.arrow import arrow_type
from app.files.run_files import run_schema
from app.storage.images.answers import entries
from app.storage.images.json_texts import JSON_TEXTS, json_texts
from tests.core.strategies import TYPES, values
from tests.services.builders import schema


def row_by_row(data_type: DataType, column: pa.Array) -> list[str]:
    return [to_json(data_type.encoder(value)).decode() for value in column.to_pylist()]


def test_every_kind_has_its_texts() -> None:
    assert set(JSON_TEXTS) == set(Kind)


@given(st.data())
def test_a_column_s_texts_are_those_of_its_values(data: st.DataObject) -> None:
    data_type = data.draw(TYPES)
    drawn = data.draw(st.lists(st.none() | values(data_type.with_nullable(False)), max_size=8))
    column = pa.array(drawn, arrow_type(data_type))
    assert json_texts(column, data_type).to_pylist() == row_by_row(data_type, column)
    later = column[len(drawn) // 2 :]  # a slice begins in the middle of its buffers
    assert json_texts(later, data_type).to_pylist() == row_by_row(data_type, later)


FLOATS = [0.0, -0.0, 1.0, -1.0, 1e16, 9999999999999998.0, 1e15, 1e10, 9999999999.0, 1e-4, 9.9e-5, 1e-5, 5e-324, 1.5e300]
FLOATS += [math.nan, math.inf, -math.inf, 0.1, 1 / 3, 123456789.125, 2**53 + 2.0, 1e22, 1e21, 123456.7]


@pytest.mark.parametrize("kind", [Kind.FLOAT, Kind.DOUBLE])
def test_floats_are_spelled_as_python_spells_them(kind: Kind) -> None:
    data_type = DataType(kind)
    draw = np.random.default_rng(7)
    bits = draw.integers(0, 2**64, 3000, dtype=np.uint64).view(np.float64)
    decimals = np.round(draw.random(3000) * 10.0 ** draw.integers(-6, 12, 3000), 3)
    powers = 2.0 ** np.arange(-149, 128)
    column = pa.array(np.concatenate([FLOATS, bits, decimals, powers]), pa.float64())
    shown = column.cast(arrow_type(data_type), safe=False)
    assert json_texts(shown, data_type).to_pylist() == row_by_row(data_type, shown)


def test_every_float32_power_of_two_is_the_shortest_number() -> None:
    """Their neighbours are not equally far, and only there two ways to round could differ."""
    column = pa.array([struct.unpack("<f", struct.pack("<I", exponent << 23))[0] for exponent in range(255)])
    column = column.cast(pa.float32())
    assert json_texts(column, DataType(Kind.FLOAT)).to_pylist() == row_by_row(DataType(Kind.FLOAT), column)


@pytest.mark.parametrize(
    ("text", "given_values"),
    [
        ("STRING", ['"', "\\", "\x00", "\x1f", "\x7f", "\u2028", "😀", "", None, "plain", "a\tb"]),
        ("DECIMAL(38, 12)", [Decimal(0), Decimal("1e-12"), Decimal("-1e-12"), Decimal("12345678901234567890.5")]),
        ("DECIMAL(10, 0)", [Decimal(0), Decimal(-1), Decimal(9999999999)]),
    ],
)
def test_texts_that_need_care(text: str, given_values: list[Any]) -> None:
    data_type = parse_type(text)
    column = pa.array(given_values, arrow_type(data_type))
    assert json_texts(column, data_type).to_pylist() == row_by_row(data_type, column)


def entries_of(plan: MergePlan, states: list[Any], shown: MergePlan | None = None) -> list[bytes]:
    table = pa.Table.from_pylist(list(states), schema=run_schema(plan))
    [batch] = table.to_batches()
    return [one.encode() for one in entries(batch, plan, shown or plan).to_pylist()]


def expected(plan: MergePlan, key: Any, state: Any) -> bytes:
    row = finish(plan, state)
    text = key_json(plan.schema, key)
    if row is None:
        return text + b"D"
    return text + b"R" + row_json(plan.schema, row)


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "with a log": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
        "sequence.field": "n",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.v.aggregate-function": "last_value",
        "aggregation.remove-record-on-delete": "true",
    },
    "with defaults": {
        "merge-engine": "partial-update",
        "fields.v.default-value": "none",
        "partial-update.remove-record-on-delete": "true",
    },
    "listagg in order": {
        "merge-engine": "aggregation",
        "sequence.field": "n",
        "fields.v.aggregate-function": "listagg",
        "aggregation.remove-record-on-delete": "true",
    },
}


@pytest.mark.parametrize("engine", ENGINES)
@given(st.data())
def test_an_entry_is_what_the_state_row_answers(engine: str, data: st.DataObject) -> None:
    plan = compile_plan(schema(("id", "DOUBLE"), ("n", "INT"), ("v", "STRING"), options=ENGINES[engine]))
    kinds = [RowKind.INSERT, RowKind.UPDATE_AFTER, *([] if engine == "first-row" else [RowKind.DELETE])]
    drawn = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(kinds), st.floats(), st.none() | st.integers(-9, 9), st.none() | st.text(max_size=3)
            ),
            min_size=1,
            max_size=6,
        )
    )
    records = [
        Record(kind, {"id": key + 0.0, "n": n, "v": v if _encodes(v) else ""}, place)
        for place, (kind, key, n, v) in enumerate(drawn)
    ]
    states = [lift(plan, record) for record in records]
    wanted = [expected(plan, (one.values["id"],), state) for one, state in zip(records, states, strict=True)]
    assert entries_of(plan, states) == wanted


def _encodes(text: str | None) -> bool:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def test_an_older_schema_is_shown_as_the_newer_one() -> None:
    old = schema(("id", "INT"), ("a", "INT"), ("b", "FLOAT"), ("gone", "STRING"))
    columns = {column.name: column for column in old.columns}
    new = replace(
        old,
        columns=(
            replace(columns["b"], name="B", type=DataType(Kind.DOUBLE)),
            columns["id"],
            Column(9, "new", DataType(Kind.STRING)),
            replace(columns["a"], type=DataType(Kind.BIGINT)),
        ),
    )
    plan, shown = compile_plan(old), compile_plan(new)
    state = lift(plan, Record(RowKind.INSERT, {"id": 1, "a": 2, "b": 0.1, "gone": "x"}))
    [entry] = entries_of(plan, [state], shown)
    assert entry[len(b"[1]R") :] == b'{"B":0.10000000149011612,"id":1,"new":null,"a":2}'


def _form(declared: TableSchema) -> str:
    return compile_plan(declared).answer_form


BASE = schema(("id", "INT"), ("n", "INT"), options={"merge-engine": "partial-update"})


def test_a_form_is_that_of_what_is_shown_and_of_nothing_else() -> None:
    n = BASE.by_name["n"]

    def altered(column: Column) -> TableSchema:
        return replace(BASE, columns=(BASE.columns[0], column))

    same = [
        replace(BASE, comment="a comment"),
        replace(BASE, options={**BASE.options, "merge.max-staleness": "5 s"}),
        altered(replace(n, description="about")),
    ]
    other = [
        altered(replace(n, name="m")),
        altered(replace(n, id=7)),
        altered(replace(n, type=DataType(Kind.BIGINT))),
        replace(BASE, columns=BASE.columns[::-1]),
        replace(BASE, columns=(*BASE.columns, Column(3, "x", DataType(Kind.INT)))),
        replace(BASE, options={**BASE.options, "fields.n.default-value": "5"}),
        replace(BASE, options={**BASE.options, "partial-update.remove-record-on-delete": "true"}),
        schema(("id", "INT"), ("n", "INT"), key=("n",), options=dict(BASE.options)),
    ]
    assert {_form(one) for one in same} == {_form(BASE)}
    forms = [_form(one) for one in other]
    assert _form(BASE) not in forms
    assert len(set(forms)) == len(forms)
