"""Bodies that are no bodies, or far larger than they look: refused, and never unfolded."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from app.core.errors import Invalid, TooLarge, UnsupportedMediaType
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.table.schema import TableSchema
from app.services.batches.batches import Upload
from app.services.bodies.formats import FORMATS, JSON
from app.storage.ingest.parquet_footer import MOST_MEMBERS
from tests.pieces import joined
from tests.storage.ingest.test_every_format import ARROW, CSV, PARQUET, arrow_body, parquet_body

MIB = 1 << 20
SMALL = Bounds(1000, MIB)
FIELDS = [{"name": "id", "type": "BIGINT"}, {"name": "note", "type": "STRING"}, {"name": "tags", "type": "ARRAY<INT>"}]
FIELDS += [{"name": "raw", "type": "BYTES"}, {"name": "words", "type": "ARRAY<STRING>"}]
SCHEMA = TableSchema.from_json({"fields": FIELDS, "primaryKeys": ["id"], "options": {}})
DECODER = RecordDecoder(compile_plan(SCHEMA))
GOOD = b'{"records":[{"id":1,"note":"a"}]}'


def read(body: bytes, media_type: str = JSON, encoding: str = "", bounds: Bounds = SMALL) -> DecodedRecords:
    return joined(Upload(body, media_type, encoding=encoding).pieces(RecordDecoder(compile_plan(SCHEMA)), bounds))


ENCODED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZIP": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip, zstd": lambda body: zstandard.compress(gzip.compress(body)),
    "identity": bytes,
    "": bytes,
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_compressed_body_is_read_whatever_compressed_it(encoding: str) -> None:
    assert len(read(ENCODED[encoding](GOOD), encoding=encoding)) == 1


def test_streams_of_several_members_are_one_body() -> None:
    for encode, name in ((gzip.compress, "gzip"), (zstandard.compress, "zstd")):
        assert len(read(encode(GOOD[:9]) + encode(GOOD[9:]), encoding=name)) == 1


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, br", "zstd, zstd, zstd, zstd, zstd"])
def test_another_coding_is_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        read(GOOD, encoding=encoding)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_half_a_stream_is_refused(encoding: str, cut: int) -> None:
    with pytest.raises(Invalid) as refusal:
        read(ENCODED[encoding](GOOD)[:cut], encoding=encoding)
    assert [fault.code for fault in refusal.value.violations] == ["unreadable_body"]
    assert str(refusal.value) == f"the body is not {encoding}: it ends too soon"


def test_a_zstd_window_that_is_too_large_is_refused_with_what_to_do_instead() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    body = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(Invalid) as refusal:
        read(body.compress(GOOD) + body.flush(), encoding="zstd")
    assert "8 MiB" in refusal.value.violations[0].fix


@pytest.mark.slow(reason="sends what becomes large")
@pytest.mark.parametrize("encoding", ["gzip", "zstd", "gzip, zstd"])
def test_a_bomb_is_refused_with_flat_memory(encoding: str) -> None:
    bomb = ENCODED[encoding](bytes(200 * MIB))
    tracemalloc.start()
    with pytest.raises(TooLarge):
        read(bomb, encoding=encoding)
    assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    tracemalloc.stop()


def many(rows: int) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64())})


LONG = "x" * 100_000


def in_lists(values: pa.Array) -> pa.Table:
    """All values in one list, in one row."""
    return pa.table({"id": [1], "tags": pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)})


def of_dictionary(kind: pa.DataType, rows: int = 900) -> pa.Table:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([LONG.encode()], kind))
    return pa.table({"id": range(rows), "raw": long})


BOMBS: dict[str, tuple[str, bytes]] = {
    "rows of Arrow": (ARROW, arrow_body(many(1001))),
    "rows of Parquet": (PARQUET, parquet_body(many(1001))),
    "rows of CSV": (CSV, b"id\n" + b"1\n" * 1001),
    "an Arrow dictionary": (
        ARROW,
        arrow_body(pa.table({"id": range(900), "note": pa.DictionaryArray.from_arrays([0] * 900, [LONG])})),
    ),
    "a Parquet dictionary": (PARQUET, parquet_body(pa.table({"id": range(900), "note": [LONG] * 900}))),
    "zeros in Parquet": (PARQUET, parquet_body(pa.table({"id": [1], "note": ["0" * 20 * MIB]}))),
    "a dictionary of long binary": (ARROW, arrow_body(of_dictionary(pa.large_binary()))),
    "a dictionary of views": (ARROW, arrow_body(of_dictionary(pa.binary_view()))),
    "a dictionary of fixed binary": (ARROW, arrow_body(of_dictionary(pa.binary(100_000)))),
    "a dictionary inside a list": (
        PARQUET,
        parquet_body(in_lists(pa.array([LONG] * 900)).rename_columns(["id", "words"])),
    ),
    "numbers inside a list that are all the same": (
        PARQUET,
        parquet_body(in_lists(pa.array([7] * 300_000, pa.int64()))),
    ),
    "elements without bytes": (
        ARROW,
        arrow_body(pa.table({"id": [1], "tags": pa.array([[None] * 2_000_000], pa.list_(pa.null()))})),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_unfold_is_refused_before_it_does(name: str) -> None:
    media_type, body = BOMBS[name]
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLarge):
        read(body, media_type)
    assert pa.total_allocated_bytes() - before < 40 * MIB


def test_large_pages_of_parquet_are_refused_before_they_are_decompressed() -> None:
    zeros = parquet_body(pa.table({"id": [1], "note": ["0" * (2 * MIB)]}))
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLarge, match=r"a page of .* bytes once it is decoded, at most 1048576 are allowed"):
        read(zeros, PARQUET, bounds=Bounds(1000, 2**30, page_bytes=MIB))
    assert pa.total_allocated_bytes() - before < MIB


@pytest.mark.slow(reason="sends bodies as large as they may be")
@pytest.mark.parametrize("member", [b"\x00", b"\x15\x02\x00"])
def test_a_footer_of_members_without_number_is_refused(member: bytes) -> None:
    # A struct whose second field is a list of structs, each of which is a Python value.
    count = MOST_MEMBERS + 2
    size = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14 & 127 | 128, count >> 21])
    footer = b"\x15\x02\x19\xfc" + size + member * count + b"\x00"
    with pytest.raises(Invalid, match=f"more than {MOST_MEMBERS} members"):
        read(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1", PARQUET, bounds=Bounds(1000, 2**28))


def test_batches_without_rows_are_not_gathered() -> None:
    empty = many(0).combine_chunks()
    batch = pa.RecordBatch.from_arrays([pa.array([], pa.int64())], schema=empty.schema)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, empty.schema) as writer:
        for _ in range(20_000):
            writer.write_batch(batch)
        writer.write_table(many(1))
    assert len(read(out.getvalue(), ARROW, bounds=Bounds(10, 2**28, piece_bytes=4096))) == 1


OBJECTS: dict[str, tuple[bytes, str]] = {
    "records": (b'{"records": [%b{}]}' % (b"{}," * 100_000), ""),
    "records, the list alone": (b"[%b{}]" % (b"{}," * 100_000), ""),
    "events": (b"[%b{}]" % (b"{}," * 100_000), "debezium-json"),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_without_number_are_refused_before_there_is_a_value_for_each(name: str) -> None:
    body, events = OBJECTS[name]
    tracemalloc.start()
    with pytest.raises(TooLarge):
        joined(Upload(body, JSON, events=events or None).pieces(DECODER, Bounds(100, piece_bytes=64)))
    assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    tracemalloc.stop()


@pytest.mark.parametrize("name", OBJECTS)
def test_so_are_other_things_than_objects(name: str) -> None:
    body, events = OBJECTS[name]
    with pytest.raises(Invalid):
        joined(
            Upload(body.replace(b"{}", b"0"), JSON, events=events or None).pieces(DECODER, Bounds(100, piece_bytes=64))
        )


def test_members_without_number_are_refused_without_naming_them() -> None:
    body = b"{%b}" % b",".join(b'"m%d":1' % number for number in range(200_000))
    with pytest.raises(Invalid) as refusal:
        read(body, bounds=Bounds(100, 2**24, piece_bytes=64))
    assert [fault.pointer for fault in refusal.value.violations] == ["/records"]


def test_a_header_of_csv_that_is_no_header_is_refused() -> None:
    for header in (b"n" * 200_000, b'"' + b"\n" * 100_000 + b'"', b"\x00"):
        with pytest.raises(Invalid):
            read(header + b"\n1\n", CSV)


def test_lines_of_csv_at_fault_are_counted_and_not_kept() -> None:
    with pytest.raises(Invalid) as refusal:
        read(b"id,note\n" + b"1\n" * 900, CSV)
    assert (len(refusal.value.violations), refusal.value.total_violations) == (100, 900)


def test_compressed_arrow_is_refused_with_what_to_do_instead() -> None:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, many(3).schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(many(3))
    with pytest.raises(Invalid) as refusal:
        read(out.getvalue(), ARROW)
    assert "Content-Encoding" in refusal.value.violations[0].fix


def test_what_follows_an_arrow_stream_is_not_lost_in_silence() -> None:
    with pytest.raises(Invalid):
        read(arrow_body(many(1)) + arrow_body(many(1)), ARROW)


WHOLE: dict[str, bytes] = {
    ARROW: arrow_body(
        pa.table({"id": [1, 2], "note": ["a", None], "tags": pa.array([[1], None], pa.list_(pa.int32()))})
    ),
    PARQUET: parquet_body(pa.table({"id": [1, 2], "note": ["a", None], "tags": [[1], None]})),
    CSV: b'id,note,tags\r\n1,"a, b",[1]\r\n2,,\r\n',
    JSON: GOOD,
    "application/x-ndjson": b'{"id":1}\n{"id":2,"note":"a"}\n',
}


@pytest.mark.parametrize("media_type", WHOLE)
def test_damaged_bodies_are_read_or_refused(media_type: str) -> None:
    """Nothing else: no other error, and no end of the process."""
    rng = random.Random(media_type)
    for _ in range(1500):
        body = bytearray(WHOLE[media_type])
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        if rng.random() < 0.2:
            del body[rng.randrange(len(body)) :]
        with contextlib.suppress(Invalid, TooLarge):
            read(bytes(body), media_type)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b'id\n"1\n',
        b'id,note\n1,a"b\n',
        b'id,note\n1,"a"b\n',
        b"\xff\n1\n",
        b"id\n\xff\n",
        b"id,note\n1,\xff\n",
    ],
)
def test_what_is_no_csv_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        read(body, CSV)
    assert refusal.value.violations


def test_fields_of_csv_are_read_as_rfc_4180_says() -> None:
    body = b'\xef\xbb\xbfid,note\r\n1,"a ""b"", c\r\nd"\r\n2,""\r\n3,\r\n'
    assert read(body, CSV).columns["note"].to_pylist() == ['a "b", c\r\nd', "", None]


def test_a_file_that_says_less_than_it_holds_is_refused() -> None:
    out = io.BytesIO()
    pq.write_table(many(3), out)
    with pytest.raises(Invalid):
        joined(FORMATS[PARQUET].pieces(RecordDecoder(compile_plan(SCHEMA)), out.getvalue()[:-1], SMALL))


def test_what_python_cannot_hold_inside_a_nested_value_is_refused_by_its_place() -> None:
    """A time after the year 9999, which Arrow holds, in one of three rows."""
    fields = [{"name": "id", "type": "INT"}, {"name": "r", "type": "ROW<at TIMESTAMP(6), of ARRAY<DATE>>"}]
    decoder = RecordDecoder(compile_plan(TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})))
    lists = pa.ListArray.from_arrays([0, 1, 2, 2], pa.array([5, 2**30], pa.date32()))
    late = pa.array([5, 2**62, None], pa.timestamp("us"))
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), late[:2])
    for inner, place in ((late, "at"), (coded, "at"), (lists, "of/0")):
        rows = pa.StructArray.from_arrays([inner], [place[:2]])
        body = arrow_body(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "r": rows}))
        with pytest.raises(Invalid) as refusal:
            joined(Upload(body, ARROW).pieces(decoder, SMALL))
        assert [fault.pointer for fault in refusal.value.violations] == [f"/records/1/r/{place}"]


def test_a_time_zone_that_nobody_knows_inside_a_nested_value_is_as_outside() -> None:
    fields = [{"name": "id", "type": "INT"}, {"name": "r", "type": "ROW<at TIMESTAMP(6) WITH LOCAL TIME ZONE>"}]
    decoder = RecordDecoder(compile_plan(TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})))
    rows = pa.StructArray.from_arrays([pa.array([5], pa.timestamp("us", "Nowhere/X"))], ["at"])
    body = arrow_body(pa.table({"id": pa.array([1], pa.int32()), "r": rows}))
    found = joined(Upload(body, ARROW).pieces(decoder, SMALL))
    assert found.columns["r"].to_pylist() == [{"at": datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)}]
