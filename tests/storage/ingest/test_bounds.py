"""How much a body may hold: more is refused by name, in whichever format, and nothing takes memory for it before."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from app.core.errors import Invalid, TooLarge
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import FREE_BYTES, Bounds
from app.core.plan.records.record_decoder import LONGEST_KEY, DecodedRecords, RecordDecoder
from app.core.table.schema import TableSchema
from app.services.batches.batches import Upload
from app.services.bodies.formats import JSON
from app.storage.ingest.pieces import DECODED_AT_ONCE, MOST_COUNTED, Piece, decoded_pieces
from tests.pieces import joined, listed
from tests.storage.ingest.test_every_format import ARROW, CSV, NDJSON, PARQUET, arrow_body, parquet_body

MIB = 2**20
FIELDS = [{"name": "id", "type": "STRING"}, {"name": "note", "type": "STRING"}, {"name": "tags", "type": "ARRAY<INT>"}]
SCHEMA = TableSchema.from_json({"fields": FIELDS, "primaryKeys": ["id"], "options": {}})
Row = dict[str, Any]


def wide(columns: int, **members: Any) -> TableSchema:
    fields = [{"name": "id", "type": "BIGINT"}, *({"name": f"c{n}", "type": "BIGINT"} for n in range(columns - 1))]
    return TableSchema.from_json({"fields": fields, "primaryKeys": ["id"], "options": {}} | members)


def read(
    body: bytes,
    media_type: str,
    bounds: Bounds,
    schema: TableSchema = SCHEMA,
    *,
    encoding: str = "",
    events: str | None = None,
) -> DecodedRecords:
    upload = Upload(body, media_type, encoding=encoding, events=events)
    return joined(upload.pieces(RecordDecoder(compile_plan(schema)), bounds))


def ndjson(rows: list[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def csv(rows: list[Row]) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join(str(row.get(name, "")) for name in names) for row in rows]
    return "\n".join([",".join(names), *lines]).encode()


BODIES: dict[str, tuple[str, Callable[[list[Row]], bytes]]] = {
    "JSON": (JSON, lambda rows: json.dumps({"records": rows}).encode()),
    "JSON, the list alone": (JSON, lambda rows: f" \n{json.dumps(rows)}".encode()),
    "NDJSON": (NDJSON, ndjson),
    "CSV": (CSV, csv),
    "Arrow": (ARROW, lambda rows: arrow_body(pa.Table.from_pylist(rows))),
    "Parquet": (PARQUET, lambda rows: parquet_body(pa.Table.from_pylist(rows))),
}


@pytest.mark.parametrize("name", BODIES)
def test_values_are_records_times_columns_whether_they_are_sent_or_not(name: str) -> None:
    media_type, of = BODIES[name]
    body, schema = of([{"id": number} for number in range(50)]), wide(20)
    assert len(read(body, media_type, Bounds(1000, values=1000), schema)) == 50
    with pytest.raises(TooLarge, match="at most 999 values, so of a table of 20 columns 49 records; this one has 50"):
        read(body, media_type, Bounds(1000, values=999), schema)


def test_fields_inside_columns_count_as_columns() -> None:
    fields = [{"name": "id", "type": "INT"}, {"name": "r", "type": "ROW<a INT, b ROW<c INT>>"}]
    schema = TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})
    with pytest.raises(TooLarge, match="a table of 5 columns"):
        read(b'{"id": 1}\n{"id": 2}\n', NDJSON, Bounds(1000, values=9), schema)


@pytest.mark.parametrize("name", BODIES)
def test_columns_that_nobody_sends_take_no_memory_each(name: str) -> None:
    media_type, of = BODIES[name]
    body, schema = of([{"id": number} for number in range(5000)]), wide(1500)
    before = pa.total_allocated_bytes()
    pieces = Upload(body, media_type).pieces(RecordDecoder(compile_plan(schema)), Bounds(10_000))
    decoded = list(decoded_pieces(pieces))
    assert sum(map(len, decoded)) == 5000
    assert pa.total_allocated_bytes() - before < 8 * MIB  # of 60 MiB if each had its nulls


@pytest.mark.parametrize("name", BODIES)
def test_few_records_of_a_wide_table_are_decoded_at_a_time(name: str) -> None:
    media_type, of = BODIES[name]
    body = of([{"id": number} for number in range(35)])
    pieces = Upload(body, media_type).pieces(RecordDecoder(compile_plan(wide(20))), Bounds(1000, piece_values=200))
    decoded = list(decoded_pieces(pieces))
    assert max(len(one) for one in decoded) <= 10
    assert [place for one in decoded for place in listed(one.positions)] == list(range(35))


@pytest.mark.parametrize("name", BODIES)
def test_a_record_is_bounded(name: str) -> None:
    media_type, of = BODIES[name]
    bounds = Bounds(1000, piece_bytes=MIB, record_bytes=2 * MIB)
    assert len(read(of([{"id": "a", "note": "x" * MIB}]), media_type, bounds)) == 1
    with pytest.raises(
        TooLarge, match=f"a record of .* bytes or more, at most {2 * MIB} are allowed; store large values"
    ):
        read(of([{"id": "a", "note": "x" * (3 * MIB)}]), media_type, bounds)


@pytest.mark.parametrize("media_type", [JSON, NDJSON])
def test_a_change_event_is_bounded(media_type: str) -> None:
    bounds = Bounds(1000, piece_bytes=MIB, record_bytes=2 * MIB)
    event = {"op": "c", "after": {"id": "a", "note": "x" * (3 * MIB)}}
    for body in (json.dumps(event).encode(), json.dumps([event] * 2).encode()):
        with pytest.raises(TooLarge, match="a record of"):
            read(body, media_type, bounds, events="debezium-json")


@pytest.mark.parametrize("name", BODIES)
def test_a_key_is_bounded(name: str) -> None:
    media_type, of = BODIES[name]
    longest = "é" * (LONGEST_KEY // 2)
    assert len(read(of([{"id": longest}]), media_type, Bounds(10))) == 1
    with pytest.raises(Invalid) as refused:
        read(of([{"id": "a"}, {"id": f"{longest}b"}]), media_type, Bounds(10))
    (fault,) = refused.value.violations
    assert (fault.pointer, fault.code, fault.row) == ("/records/1/id", "too_long", 1)
    assert f"a key of {LONGEST_KEY + 1} bytes, at most {LONGEST_KEY} are allowed" in fault.message


@pytest.mark.slow(reason="sends what becomes large")
def test_what_is_decompressed_is_bounded_by_what_was_sent() -> None:
    bounds = Bounds(10, 2**30, ratio=20)
    zeros = gzip.compress(b"\n" * (FREE_BYTES + 1))
    with pytest.raises(TooLarge, match=f"{len(zeros)} bytes become .* more than 20 times as many"):
        read(zeros, NDJSON, bounds, encoding="gzip")
    assert len(read(gzip.compress(b"\n" * (FREE_BYTES - 10) + b'{"id":"a"}'), NDJSON, bounds, encoding="gzip")) == 1
    with pytest.raises(TooLarge):  # of what was sent, not of what the coding before it became
        read(gzip.compress(gzip.compress(b"\n" * (FREE_BYTES + 1))), NDJSON, bounds, encoding="gzip, gzip")


def test_answers_to_long_and_many_unknown_names_stay_short() -> None:
    rows = [{"id": "a", "n" * MIB + str(number): 1} for number in range(3)]
    rows += [{"id": "a", **{f"unknown{number}": 1 for number in range(1000)}}]
    with pytest.raises(Invalid) as refused:
        read(ndjson(rows), NDJSON, Bounds(10))
    assert refused.value.total_violations == 1003
    assert len(refused.value.violations) == 100
    assert sum(len(fault.pointer + fault.message + fault.fix) for fault in refused.value.violations) < 100_000


def test_reading_ends_when_faults_are_without_number() -> None:
    pieces = 0

    def bad(count: int) -> Iterator[Piece]:
        nonlocal pieces
        for pieces in range(1, 101):  # noqa: B007  # counted
            yield lambda: RecordDecoder(compile_plan(SCHEMA)).decode([{"id": None}] * count)

    with pytest.raises(Invalid, match=f"at least {MOST_COUNTED} fault"):
        list(decoded_pieces(bad(MOST_COUNTED // 10)))
    assert pieces == 10
    with pytest.raises(Invalid, match=r"^1000 fault"):
        list(decoded_pieces(bad(10)))


def test_of_many_records_at_fault_in_a_wide_table_few_are_read_again() -> None:
    body = b'{"id": "x", "c0": "y"}\n' * 3000
    with pytest.raises(Invalid, match=r"at least [0-9]+ fault") as refused:
        read(body, NDJSON, Bounds(3000), wide(1000))
    assert len(refused.value.violations) == 100
    assert 3000 < refused.value.total_violations < 6000


def test_few_pieces_of_a_process_are_decoded_at_once() -> None:
    lock, together, most = threading.Lock(), 0, 0

    def decode() -> DecodedRecords:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.005)  # so that others would come in between
        with lock:
            together -= 1
        return DecodedRecords({})

    threads = [threading.Thread(target=lambda: list(decoded_pieces([decode] * 3))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == DECODED_AT_ONCE


@pytest.mark.parametrize("number", ["1e-999999999", "0e-999999999", "1e999999999", "0e999999999", "-1.5e-2000000000"])
@pytest.mark.parametrize("kind", ["DECIMAL(38, 10)", "BIGINT", "DOUBLE", "FLOAT", "STRING", "BYTES", "DATE", "BOOLEAN"])
def test_far_exponents_are_numbers_or_faults_and_never_the_end_of_the_process(number: str, kind: str) -> None:
    fields = [{"name": "id", "type": "INT"}, {"name": "v", "type": kind}]
    schema = TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})
    body = f'{{"id": 1, "v": {number}}}\n'.encode()
    is_zero = number.startswith("0") or kind in ("DOUBLE", "FLOAT")
    fits = is_zero and kind in ("DECIMAL(38, 10)", "BIGINT", "DOUBLE", "FLOAT") and number != "1e999999999"
    if fits:
        assert listed(read(body, NDJSON, Bounds(10), schema).columns["v"]) == [0]
        return
    with pytest.raises(Invalid) as refused:
        read(body, NDJSON, Bounds(10), schema)
    assert [fault.pointer for fault in refused.value.violations] == ["/records/0/v"]


@pytest.mark.parametrize(
    ("value", "code", "reported"),
    [
        (b"[" * 100_000, "nested_too_deeply", "types have at most 50"),
        (b"1" * 5000, "int_parsing_size", "a whole number of 5000 digits, at most 4000 are read"),
        (b"1e" + b"9" * 40, "not_json", "an exponent with too many digits"),
    ],
)
def test_levels_and_digits_are_bounded_by_name(value: bytes, code: str, reported: str) -> None:
    for media_type, body in ((JSON, b'{"records": [{"id": %b}]}'), (NDJSON, b'{"id": %b}')):
        with pytest.raises(Invalid) as refused:
            read(body % value, media_type, Bounds(10))
        (fault,) = refused.value.violations
        assert fault.code == code
        assert reported in fault.message
