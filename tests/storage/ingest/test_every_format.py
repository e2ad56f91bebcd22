"""The same records through every format: what is staged, and what is refused, is what ``RecordDecoder`` says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.core.types.values import value_text
from app.files.arrow import arrow_type, staging_schema
from app.services.bodies.formats import FORMATS, JSON
from tests.core.strategies import SCALAR_TYPES, TYPES, values
from tests.histories import examples
from tests.pieces import joined
from tests.storage.ingest.odd_values import ODD, ODD_TYPES, edges

# Hypothesis shows the strategy that it filters, and one for every type is long.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
BOUNDS = Bounds(1000)
NDJSON, CSV = "application/x-ndjson", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
OPTIONS: Sequence[dict[str, str]] = (
    {},
    {"ignore-delete": "true"},
    {"merge-engine": "partial-update"},
    {"merge-engine": "partial-update", "fields.g.sequence-group": "c"},
    {"merge-engine": "first-row"},
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.c.aggregate-function": "max"},
    {"rowkind.field": "kind"},
    {"sequence.field": "g", "sequence.auto-padding": "row-kind-flag"},
    {"sequence.field": "t", "sequence.auto-padding": "row-kind-flag"},
    {"fields.n.default-value": "7"},
)
KINDS = ("+I", "-U", "+U", "-D", "insert", "DELETE", "Update")
JUNK = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.sampled_from([*ODD, "\ud800", 10**40]))


@pytest.fixture(scope="module", autouse=True)
def by_columns() -> Iterator[None]:
    """A few records are read as many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.storage.ingest.lists.FEW_RECORDS", 0)
        yield


def table_of(types: Sequence[DataType], options: dict[str, str]) -> TableSchema:
    fields = [
        ("k", "BIGINT NOT NULL"),
        ("n", "INT"),
        ("c", "STRING"),
        ("kind", "STRING"),
        ("g", "INT"),
        ("t", "STRING"),
    ]
    fields += [(f"x{place}", one.sql) for place, one in enumerate(types)]
    columns = [{"name": name, "type": of} for name, of in fields]
    return TableSchema.from_json({"fields": columns, "primaryKeys": ["k"], "options": options})


def outcome(read: Callable[[], DecodedRecords], schema: TableSchema) -> object:
    """What would be staged, as text (NaN is NaN there), or every fault."""
    try:
        found = read()
    except Invalid as error:
        return error.total_violations, error.violations
    whole = {**found.columns, "_kf_kind": found.kinds, "_kf_position": found.positions}
    return found.ignored, repr(pa.table(whole, schema=staging_schema(schema)).to_pylist())


def through(schema: TableSchema, media_type: str, body: bytes) -> object:
    decoder = RecordDecoder(compile_plan(schema))
    return outcome(lambda: joined(FORMATS[media_type].pieces(decoder, body, BOUNDS)), schema)


def expected(schema: TableSchema, records: Sequence[object]) -> object:
    return outcome(lambda: RecordDecoder(compile_plan(schema)).decode(records), schema)


def as_json(value: Any) -> str:
    """JSON with numbers written in full."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{as_json(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value)


@st.composite
def typed_tables(draw: st.DrawFn, types: st.SearchStrategy[DataType] = TYPES) -> TableSchema:
    return table_of(draw(st.lists(types, max_size=3)), draw(st.sampled_from(OPTIONS)))


def encoded(draw: st.DrawFn, column: Column) -> Any:
    value = draw(values(column.type.with_nullable(True)))
    return column.type.encoder(value)


@st.composite
def json_records(draw: st.DrawFn, schema: TableSchema) -> list[Any]:
    """Records of which some hold what no column takes."""
    records: list[Any] = []
    wild = draw(st.booleans())
    for place in range(draw(st.integers(0, 5))):
        record = {column.name: encoded(draw, column) for column in schema.columns if draw(st.integers(0, 5))}
        record["k"] = place
        record["kind"] = draw(st.sampled_from(KINDS[:4]))
        if draw(st.booleans()):
            record["_kind"] = draw(st.sampled_from(KINDS))
        if wild and not draw(st.integers(0, 2)):
            names = [*(column.name for column in schema.columns), "_kind", "unknown"]
            record[draw(st.sampled_from(names))] = draw(JUNK)
        records.append(draw(JUNK) if wild and not draw(st.integers(0, 20)) else record)
    return records


def odd_table(of: str, options: dict[str, str] | None = None) -> TableSchema:
    columns = [{"name": "k", "type": "BIGINT"}, {"name": "x", "type": of}]
    return TableSchema.from_json({"fields": columns, "primaryKeys": ["k"], "options": options or {}})


@pytest.mark.parametrize("of", ODD_TYPES)
def test_every_odd_value_is_taken_or_refused_by_each_format_as_by_the_decoder(of: str) -> None:
    schema = odd_table(of)
    column = schema.by_name["x"]
    for value in ODD:
        records = [{"k": 1, "x": value}, {"k": 2}, {"k": 3, "x": value}]
        assert through(schema, JSON, as_json({"records": records}).encode()) == expected(schema, records), value
        text = cell(column, value)
        read = [{"k": 1, "x": from_cell(column, text)}, {"k": 2, "x": None}, {"k": 3, "x": from_cell(column, text)}]
        body = csv_of(["k", "x"], [["1", text], ["2", None], ["3", text]])
        assert through(schema, CSV, body) == expected(schema, read), value


def test_values_are_read_alike_in_the_company_of_others() -> None:
    schema = odd_table("DECIMAL(10, 2)")
    records = [{"k": place, "x": value} for place, value in enumerate(ODD)]
    assert through(schema, JSON, as_json({"records": records}).encode()) == expected(schema, records)


@pytest.mark.parametrize("of", [one for one in ODD_TYPES if "<" not in one])
def test_every_edge_of_arrow_is_taken_or_refused_as_by_the_decoder(of: str) -> None:
    schema = odd_table(of)
    column = schema.by_name["x"].type
    for array in edges(column):
        for place in range(len(array)):
            one = array.slice(place, 1)
            sent = as_sent(column, plain(one), array.type)
            table = pa.table({"k": pa.array([1, 2]), "x": pa.concat_arrays([one, pa.nulls(1, array.type)])})
            wanted = expected(schema, [{"k": 1, "x": sent}, {"k": 2, "x": None}])
            for media_type, body in BODIES.items():
                assert through(schema, media_type, body(table)) == wanted, (array.type, one)


def plain(one: pa.Array) -> Any:
    if not pa.types.is_temporal(one.type):
        return one[0].as_py()
    return one.view(pa.int32() if one.type.bit_width == 32 else pa.int64())[0].as_py()


@settings(max_examples=examples(30))
@given(st.data())
def test_json_and_ndjson_are_read_as_the_decoder_reads_each_record(data: st.DataObject) -> None:
    schema = data.draw(typed_tables())
    records = data.draw(json_records(schema))
    wanted = expected(schema, records)
    assert through(schema, JSON, as_json({"records": records}).encode()) == wanted
    assert through(schema, JSON, as_json(records).encode()) == wanted
    assert through(schema, NDJSON, "\n".join(map(as_json, records)).encode()) == wanted


def cell(column: Column | None, value: Any) -> str | None:
    """A JSON value as a field of CSV."""
    if value is None or (column is not None and not column.type.nested):
        return None if value is None else str(value) if isinstance(value, (list, dict)) else value_text(value)
    return value_text(value) if column is None else as_json(value)


def csv_of(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bytes:
    """A CSV body in which null is an empty field and text stands in quotes where it must."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(names)
    for row in rows:
        fields = ['""' if text == "" else "" if text is None else quoted(text) for text in row]
        out.write(",".join(fields) + "\r\n")
    return out.getvalue().encode()


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in '",\r\n') else text


@settings(max_examples=examples(30))
@given(st.data())
def test_csv_is_read_as_the_decoder_reads_each_field(data: st.DataObject) -> None:
    schema = data.draw(typed_tables())
    records = [record for record in data.draw(json_records(schema)) if isinstance(record, dict)]
    for record in records:
        record.pop("unknown", None)
    names = [*(column.name for column in schema.columns), "_kind"]
    rows = [[clean(cell(schema.by_name.get(name), record.get(name))) for name in names] for record in records]
    reported = [
        {
            name: None if text is None else from_cell(schema.by_name.get(name), text)
            for name, text in zip(names, row, strict=True)
            if not (name == "_kind" and text is None)
        }
        for row in rows
    ]
    assert through(schema, CSV, csv_of(names, rows)) == expected(schema, reported)


def clean(text: str | None) -> str | None:
    return None if text is None else text.encode(errors="replace").decode()


def from_cell(column: Column | None, text: str) -> Any:
    if column is None:
        return text
    if not column.type.nested:
        return column.type.entry.from_text(text)
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text


def wider(of: DataType) -> pa.DataType:
    """A type that holds more than the column does, so that values can be at fault."""
    wide = {
        Family.INTEGER: pa.int64(),
        Family.DECIMAL: pa.decimal256(60, (of.scale or 0) + 2),
        Family.TIMESTAMP: pa.timestamp("ns", "+02:00" if of.kind is Kind.TIMESTAMP_LTZ else None),
        Family.TIME: pa.time64("us"),
        Family.DATE: pa.date32(),
        Family.TEXT: pa.dictionary(pa.int8(), pa.large_string()),
        Family.BINARY: pa.large_binary(),
    }
    return wide.get(of.family, arrow_type(of))


def wide_values(of: DataType) -> st.SearchStrategy[Any]:
    """Values of ``wider``."""
    moments = st.integers(-(2**62), 2**62).map(lambda ns: ns // 1000 * 1000)
    numbers: dict[Family, st.SearchStrategy[Any]] = {
        Family.INTEGER: st.integers(-(2**63), 2**63 - 1),
        Family.DECIMAL: st.integers(-(10**50), 10**50).map(lambda n: Decimal(n).scaleb(-(of.scale or 0) - 2)),
        Family.TIMESTAMP: st.one_of(moments, st.integers(-(2**62), 2**62)),
        Family.TIME: st.integers(0, 86_399_999_999),
        Family.DATE: st.integers(-(2**31), 2**31 - 1),
        Family.TEXT: st.text(st.characters(exclude_categories=["Cs"]), max_size=14),
        Family.BINARY: st.binary(max_size=14),
        Family.BOOLEAN: st.booleans(),
        Family.FLOATING: st.floats(width=32),
    }
    return numbers[of.family]


def as_sent(of: DataType, value: Any, source: pa.DataType | None = None) -> Any:
    """The JSON form of a value of ``wider``, or of ``source``; moments are numbers of its unit."""
    if value is None or of.family in (Family.INTEGER, Family.DECIMAL, Family.TEXT, Family.BINARY, Family.BOOLEAN):
        return value
    if of.family is Family.FLOATING:
        return value if value - value == 0 else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    source = source or wider(of)
    naive = pa.timestamp(source.unit) if pa.types.is_timestamp(source) else source
    text = pa.array([value], pa.int32() if source.bit_width == 32 else pa.int64()).view(naive).cast(pa.string())[0]
    return f"{text}Z" if of.kind is Kind.TIMESTAMP_LTZ else str(text)


def wide_array(of: DataType, column: Sequence[Any]) -> pa.Array:
    if of.family in (Family.TIMESTAMP, Family.TIME, Family.DATE):
        numbers = pa.array(column, pa.int32() if of.family is Family.DATE else pa.int64())
        return numbers.view(wider(of))
    return pa.array(column, pa.string()).cast(wider(of)) if of.family is Family.TEXT else pa.array(column, wider(of))


def arrow_body(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return out.getvalue()


def parquet_body(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2)
    return out.getvalue()


BODIES = {ARROW: arrow_body, PARQUET: parquet_body}


@settings(max_examples=examples(40))
@given(st.data())
def test_arrow_and_parquet_are_read_as_the_decoder_reads_each_value(data: st.DataObject) -> None:
    schema = data.draw(typed_tables(SCALAR_TYPES))
    rows = data.draw(st.integers(0, 5))
    arrays: dict[str, pa.Array] = {}
    sent: dict[str, list[Any]] = {}
    for column in schema.columns:
        mild = data.draw(st.booleans())
        good = values(column.type.with_nullable(True))
        of = column.type
        if mild:
            drawn = data.draw(st.lists(good, min_size=rows, max_size=rows))
            arrays[column.name] = pa.array(drawn, arrow_type(of) if of.family is not Family.TIME else pa.int32())
            if of.family is Family.TIME:
                arrays[column.name] = arrays[column.name].view(pa.time32("ms"))
            sent[column.name] = [of.encoder(value) for value in drawn]
        else:
            drawn = data.draw(st.lists(st.none() | wide_values(of), min_size=rows, max_size=rows))
            arrays[column.name] = wide_array(of, drawn)
            sent[column.name] = [as_sent(of, value) for value in drawn]
    kinds = data.draw(st.lists(st.none() | st.sampled_from((*KINDS, "x")), min_size=rows, max_size=rows))
    table = pa.table({**arrays, "_kind": pa.array(kinds, pa.string())})
    records = [
        {name: column[row] for name, column in sent.items()} | ({} if kinds[row] is None else {"_kind": kinds[row]})
        for row in range(rows)
    ]
    wanted = expected(schema, records)
    for media_type, body in BODIES.items():
        assert through(schema, media_type, body(table)) == wanted, media_type


@settings(max_examples=examples(20))
@given(st.data())
def test_nested_values_of_arrow_are_read_as_their_json(data: st.DataObject) -> None:
    schema = data.draw(typed_tables())
    rows = data.draw(st.integers(0, 4))
    drawn = {
        column.name: data.draw(st.lists(values(column.type.with_nullable(True)), min_size=rows, max_size=rows))
        for column in schema.columns
        if Kind.TIME not in {one.kind for one in inner(column.type)}
    }
    table = pa.table({name: pa.array(column, arrow_type(schema.by_name[name].type)) for name, column in drawn.items()})
    records = [
        {name: schema.by_name[name].type.encoder(column[row]) for name, column in drawn.items()} for row in range(rows)
    ]
    assume(drawn)
    views = pa.table({name: pa.array(column, viewed(table.field(name).type)) for name, column in drawn.items()})
    for layout in (table, views):
        assert through(schema, ARROW, arrow_body(layout)) == expected(schema, records)


def test_categories_of_polars_are_read_as_their_texts() -> None:
    words, kind = ["a", None, "ä"], polars.Categorical()
    series = polars.Series(words, dtype=kind), polars.Series([words, None, []], dtype=polars.List(kind))
    for of, x in zip(("STRING", "ARRAY<STRING>"), series, strict=True):
        frame = polars.DataFrame({"k": [1, 2, 3], "x": x})
        body = arrow_body(pa.RecordBatchReader.from_stream(frame).read_all())
        assert through(odd_table(of), ARROW, body) == expected(odd_table(of), frame.to_dicts())


def viewed(of: pa.DataType) -> pa.DataType:
    """The layout of polars: texts and bytes are views, wherever they are."""
    if pa.types.is_map(of):
        return pa.map_(viewed(of.key_type), viewed(of.item_type))
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(viewed(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.large_list(viewed(of.value_type))
    return {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}.get(of, of)


def inner(of: DataType) -> list[DataType]:
    return [of, *(found for nested in of.nested for found in inner(nested))]


@pytest.mark.parametrize("media_type", [ARROW, PARQUET])
@pytest.mark.parametrize(
    ("array", "column"), [(pa.array(["5"]), "n"), (pa.array([5.0]), "n"), (pa.array([5]), "c"), (pa.array([True]), "n")]
)
def test_a_column_of_another_type_is_refused_by_its_name(media_type: str, array: pa.Array, column: str) -> None:
    schema = table_of([], {})
    body = BODIES[media_type](pa.table({"k": [1], column: array, "nope": [1]}))
    decoder = RecordDecoder(compile_plan(schema))
    with pytest.raises(Invalid) as refusal:
        joined(FORMATS[media_type].pieces(decoder, body, BOUNDS))
    reported = [(fault.pointer, fault.code, fault.column) for fault in refusal.value.violations]
    assert reported == [("/columns/nope", "unknown_column", "nope"), (f"/columns/{column}", "wrong_type", column)]
