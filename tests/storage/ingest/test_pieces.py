"""Large bodies in pieces: the same records and the same faults as when the body is read at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.core.errors import Invalid, TooLarge
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.records import POSITION_COLUMN
from app.core.table.schema import TableSchema
from app.files.arrow import staging_schema
from app.files.layout import Warehouse
from app.services.batches.batches import Upload
from app.services.bodies.formats import JSON
from app.storage.ingest.pieces import decoded_pieces
from app.storage.staging.spool import Content, Room, Spool
from app.storage.staging.staging import read_batch, write_pieces
from tests.pieces import joined, listed
from tests.storage.ingest.test_every_format import ARROW, CSV, NDJSON, PARQUET, arrow_body, parquet_body
from tests.storage.staged import batch_in

FIELDS = [{"name": "id", "type": "BIGINT"}, {"name": "note", "type": "STRING"}, {"name": "n", "type": "INT"}]
SCHEMA = TableSchema.from_json({"fields": FIELDS, "primaryKeys": ["id"], "options": {"ignore-delete": "true"}})
WHOLE, CUT = Bounds(1000), Bounds(1000, piece_bytes=64)
ROWS: list[dict[str, Any]] = [
    {"id": row, "note": 'a, "b"\n' * (row % 5), "n": row * 7, "_kind": "-D" if row % 3 == 2 else "+I"}
    for row in range(40)
]
# A fault in the middle and one at the end; a text that is no number needs its own media types.
BAD: list[dict[str, Any]] = [{**row, "id": None} if row["id"] in (9, 39) else row for row in ROWS]


def ndjson(rows: list[dict[str, Any]]) -> bytes:
    return b"\n\n".join(json.dumps(row).encode() for row in rows)


def csv(rows: list[dict[str, Any]]) -> bytes:
    lines = [
        ",".join("" if value is None else '"' + str(value).replace('"', '""') + '"' for value in row.values())
        for row in rows
    ]
    return "\r\n".join(["id,note,n,_kind", *lines]).encode()


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def dictionaries(rows: list[dict[str, Any]]) -> pa.Table:
    made = table(rows)
    return made.set_column(1, "note", made["note"].dictionary_encode())


def in_batches(rows: list[dict[str, Any]]) -> bytes:
    return arrow_body(pa.Table.from_batches(dictionaries(rows).to_batches(max_chunksize=3)))


BODIES = {
    "JSON": (JSON, lambda rows: json.dumps({"records": rows}).encode()),
    "JSON, the list alone": (JSON, lambda rows: f" \n{json.dumps(rows)}".encode()),
    "NDJSON": (NDJSON, ndjson),
    "CSV": (CSV, csv),
    "Arrow, one batch": (ARROW, lambda rows: arrow_body(table(rows))),
    "Arrow, many batches": (ARROW, in_batches),
    "Parquet": (PARQUET, lambda rows: parquet_body(dictionaries(rows))),
}


def spooled(body: bytes, folder: Path) -> Content:
    spool = Spool(Room(folder), memory_bytes=10)
    for start in range(0, len(body), 100):
        spool.add(body[start : start + 100])
        if spool.due:
            spool.spill()
    return spool.content()


def pieces(media_type: str, body: Content, bounds: Bounds) -> list[Any]:
    return list(Upload(body, media_type).pieces(RecordDecoder(compile_plan(SCHEMA)), bounds))


@pytest.mark.parametrize("name", BODIES)
def test_a_body_in_pieces_is_the_body_read_at_once(name: str, tmp_path: Path) -> None:
    media_type, of = BODIES[name]
    body = of(ROWS)
    assert len(pieces(media_type, body, WHOLE)) == 1
    cut = pieces(media_type, spooled(body, tmp_path), CUT)
    assert len(cut) > 5
    found, whole = joined(cut), joined(pieces(media_type, body, WHOLE))
    assert {name: listed(column) for name, column in found.columns.items()} == {
        name: listed(column) for name, column in whole.columns.items()
    }
    assert listed(found.positions) == [row for row in range(40) if row % 3 < 2]
    assert listed(found.kinds) == listed(whole.kinds)
    assert found.ignored == whole.ignored == 13


def refusal(media_type: str, body: Any, cut: Bounds = CUT) -> Invalid:
    with pytest.raises(Invalid) as refused:
        joined(pieces(media_type, body, cut))
    return refused.value


@pytest.mark.parametrize("name", BODIES)
def test_faults_of_all_pieces_are_reported_by_their_place_in_the_body(name: str, tmp_path: Path) -> None:
    media_type, of = BODIES[name]
    body = of(BAD)
    whole, cut = refusal(media_type, body, WHOLE), refusal(media_type, spooled(body, tmp_path))
    assert [fault.pointer for fault in cut.violations] == ["/records/9/id", "/records/39/id"]
    assert (cut.violations, cut.code, cut.message) == (whole.violations, whole.code, whole.message)


def test_lines_at_fault_are_named_by_their_number_in_the_body() -> None:
    body = ndjson(ROWS) + b"\nnope\n" + ndjson(ROWS) + b"\n[\n"
    reported = [(fault.message.partition(":")[0], fault.row) for fault in refusal(NDJSON, body).violations]
    assert reported == [("line 80 is not JSON", 40), ("line 160 is not JSON", 81)]


def test_csv_lines_with_other_numbers_of_fields_are_named_by_their_place_in_the_body() -> None:
    body = b"id,n\n" + b"1,2\n" * 50 + b"1\n" + b"1,2\n" * 50 + b"1,2,3\n"
    reported = [(fault.row, fault.code) for fault in refusal(CSV, body).violations]
    assert reported == [(50, "wrong_field_count"), (101, "wrong_field_count")]


@pytest.mark.parametrize(
    ("tail", "reported"), [(b'1,a"b"\n', "line 52 has a quote inside a field"), (b"1,\xff\n", "byte 210 is no UTF-8")]
)
def test_what_is_no_csv_is_named_by_its_place_in_the_body(tail: bytes, reported: str) -> None:
    assert reported in refusal(CSV, b"id,note\n" + b"1,a\n" * 50 + tail).message


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (b'{"records": {}}' + b" " * 80, ["/records"]),
        (b"1" + b" " * 80, ["/records"]),
        (b"[1]" + b" " * 80, ["/records/0"]),
        (b"[01]" + b" " * 80, [""]),
        (b'[{"id": 1}] {}' + b" " * 80, [""]),
        (b'{"other": 1}' + b" " * 80, ["/records"]),
        (b'{"records": [], "a/b": 1, "c": 2}' + b" " * 80, ["/a~1b", "/c"]),
        (b'{"records": [01]}' + b" " * 80, [""]),
        (b'{"records": [{"id": 1}, {"id": "\xff"}]}' + b" " * 80, ["/records/1"]),
        (b'{"records": ' + b"[" * 100_000, [""]),
    ],
)
def test_a_large_body_that_is_no_json_of_records_is_refused_as_a_small_one(body: bytes, pointers: list[str]) -> None:
    for bounds in (CUT, *([WHOLE] if b"\xff" not in body else [])):  # of a small body its bytes are read first
        assert [fault.pointer for fault in refusal(JSON, body, bounds).violations] == pointers


def test_a_record_that_must_not_be_held_whole_is_refused() -> None:
    bounds = Bounds(1000, 200, 64)
    assert len(joined(pieces(NDJSON, b'{"id": 1, "note": "%s"}\n' % (b"x" * 150), bounds))) == 1
    with pytest.raises(TooLarge):
        pieces(NDJSON, b'{"id": 1, "note": "%s"}\n' % (b"x" * 250), bounds)
    with pytest.raises(TooLarge):
        pieces(JSON, b'{"records": []}' + b" " * 250, bounds)


@pytest.mark.parametrize("name", [name for name in BODIES if name != "JSON"])
def test_too_many_records_are_refused_in_whichever_piece_they_come(name: str) -> None:
    media_type, of = BODIES[name]
    with pytest.raises(TooLarge):
        pieces(media_type, of(ROWS), Bounds(39, piece_bytes=64))


def test_dictionaries_of_all_pieces_together_unfold_to_no_more_than_a_body() -> None:
    texts = pa.DictionaryArray.from_arrays([0] * 40, ["x" * 100])
    body = arrow_body(pa.Table.from_batches(pa.table({"id": range(40), "note": texts}).to_batches(max_chunksize=4)))
    with pytest.raises(TooLarge):
        pieces(ARROW, body, Bounds(1000, 3000, 64))


def test_pieces_are_staged_together_by_token_and_a_fault_leaves_no_file(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    good = decoded_pieces(pieces(NDJSON, ndjson(ROWS), CUT))
    staged = write_pieces(warehouse, "t1", "b1", SCHEMA, good)
    assert (staged.records, staged.ignored) == (27, 13)
    read = read_batch(warehouse, batch_in(warehouse, staged.file), SCHEMA)
    assert read.rows.schema.equals(staging_schema(SCHEMA))
    assert read.tokens.tolist() == sorted(read.tokens.tolist())
    in_order = read.rows.sort_by(POSITION_COLUMN)
    assert in_order["id"].to_pylist() == in_order[POSITION_COLUMN].to_pylist() == [n for n in range(40) if n % 3 < 2]
    with pytest.raises(Invalid):
        write_pieces(warehouse, "t1", "b2", SCHEMA, decoded_pieces(pieces(NDJSON, ndjson(BAD), CUT)))
    assert [entry.name for entry in (tmp_path / "t1" / "staging").iterdir()] == [staged.file]


def test_a_spooled_body_has_the_fingerprint_of_the_same_bytes(tmp_path: Path) -> None:
    body = ndjson(ROWS)
    assert Upload(spooled(body, tmp_path), NDJSON).fingerprint == Upload(body, NDJSON).fingerprint
    assert [*tmp_path.iterdir()] == []
