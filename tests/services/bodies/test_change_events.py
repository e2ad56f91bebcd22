"""Change events as databases' tools send them: each case is an event, and the records or faults that it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import Invalid, TooLarge
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.records import RowKind
from app.core.table.schema import TableSchema
from app.services.batches.batches import Upload
from app.services.bodies.change_events import EVENT_FORMATS
from app.services.bodies.debezium_values import CONVERTERS, Unreadable, convert
from app.storage.ingest.pieces import decoded_pieces
from tests.pieces import joined, listed

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "change_events.json").read_text())
COLUMNS = {
    "id": "BIGINT",
    "paid": "DECIMAL(10, 2)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "clock": "TIME(3)",
    "zoned": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "ok": "BOOLEAN",
    "note": "STRING",
}


def schema(options: dict[str, str]) -> TableSchema:
    fields = [{"name": name, "type": of} for name, of in COLUMNS.items()]
    return TableSchema.from_json({"fields": fields, "primaryKeys": ["id"], "options": options})


def records_of(table: TableSchema, upload: Upload) -> list[list[Any]]:
    """What would be staged: row kinds, and what is not null as JSON."""
    decoded = joined(upload.pieces(RecordDecoder(compile_plan(table)), Bounds(100)))
    kinds = [RowKind(int(kind)).text for kind in decoded.kinds]
    columns = {name: listed(decoded.columns[name]) for name in COLUMNS}
    shown = [
        {name: table.by_name[name].type.encoder(column[row]) for name, column in columns.items()}
        for row in range(len(kinds))
    ]
    rows = [{name: value for name, value in row.items() if value is not None} for row in shown]
    return [[kind, row] for kind, row in zip(kinds, rows, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_an_event_is_the_records_of_its_case(case: dict[str, Any]) -> None:
    table = schema(case.get("options", {}))
    body = json.dumps(case["event"]).encode()
    upload = Upload(body, case.get("mediaType", "application/json"), events=case.get("format"))
    if "faults" not in case:
        assert records_of(table, upload) == case["records"]
        return
    with pytest.raises(Invalid) as refusal:
        records_of(table, upload)
    assert [[fault.pointer, fault.code] for fault in refusal.value.violations] == case["faults"]
    assert all(fault.fix for fault in refusal.value.violations)


def test_every_format_has_cases() -> None:
    assert {case["format"] for case in CASES if "format" in case} == set(EVENT_FORMATS)


def test_events_come_one_a_line_too_and_nothing_is_a_tombstone() -> None:
    lines = b'{"op":"c","after":{"id":1}}\n\nnull\n{"op":"d","before":{"id":1}}\n'
    upload = Upload(lines, "application/x-ndjson", events="debezium-json")
    assert records_of(schema({}), upload) == [["+I", {"id": 1}], ["-D", {"id": 1}]]
    assert records_of(schema({}), Upload(b"", "application/json", events="debezium-json")) == []


@pytest.mark.parametrize(("media_type", "events"), [("text/csv", "canal-json"), ("application/json", "avro")])
def test_a_format_that_cannot_be_is_refused(media_type: str, events: str) -> None:
    with pytest.raises(Invalid) as refusal:
        records_of(schema({}), Upload(b"{}", media_type, events=events))
    assert [fault.pointer for fault in refusal.value.violations] == ["/format"]


@pytest.mark.parametrize("name", CONVERTERS)
@pytest.mark.parametrize("value", ["x", True, 10**30, -(10**30), 1.5, [], {}, {"scale": "a", "value": 5}, ""])
def test_what_is_not_of_its_encoding_is_left_to_the_column(name: str, value: Any) -> None:
    calendar = name.rsplit(".", 1)[-1] in {"Date", "Timestamp", "MicroTimestamp", "NanoTimestamp"}
    if calendar and value in (10**30, -(10**30)):
        with pytest.raises(Unreadable, match="infinity"):
            convert((CONVERTERS[name], {}), value, None)
        return
    assert convert((CONVERTERS[name], {"scale": "x"}), value, None) == value or name.endswith("Decimal")


def insert(number: object) -> dict[str, Any]:
    return {"op": "c", "after": {"id": number, "note": "x" * 20}}


def update(number: int) -> dict[str, Any]:
    return {"op": "u", "before": {"id": number, "note": "x"}, "after": {"id": number, "note": "y"}}


SUMS = {"merge-engine": "aggregation", "fields.paid.aggregate-function": "sum"}
BODIES: dict[str, Any] = {
    "application/json": lambda events: json.dumps(events).encode(),
    "application/x-ndjson": lambda events: b"\n\n".join(json.dumps(event).encode() for event in events),
}


@pytest.mark.parametrize("media_type", BODIES)
def test_a_large_body_of_events_is_read_in_pieces_that_are_one_batch(media_type: str) -> None:
    events = [update(number) if number % 3 else insert(number) for number in range(40)]
    pieces = Upload(BODIES[media_type](events), media_type, events="debezium-json").pieces(
        RecordDecoder(compile_plan(schema(SUMS))), Bounds(1000, piece_bytes=200)
    )
    decoded = list(decoded_pieces(pieces))
    assert len(decoded) > 5
    places = [place for one in decoded for place in listed(one.positions)]
    keys = [key for one in decoded for key in listed(one.columns["id"])]
    assert places == list(range(len(keys)))
    assert list(dict.fromkeys(keys)) == list(range(40))


@pytest.mark.parametrize("media_type", BODIES)
def test_faults_in_later_pieces_name_the_event_of_the_body(media_type: str) -> None:
    events = [insert(number) for number in range(40)]
    events[25], events[38] = insert("x"), {"op": "?"}
    upload = Upload(BODIES[media_type](events), media_type, events="debezium-json")
    with pytest.raises(Invalid) as refusal:
        joined(upload.pieces(RecordDecoder(compile_plan(schema(SUMS))), Bounds(1000, piece_bytes=200)))
    assert [(fault.pointer, fault.row) for fault in refusal.value.violations] == [
        ("/events/25/id", 25),
        ("/events/38", 38),
    ]


def test_records_of_all_pieces_of_events_count_together() -> None:
    upload = Upload(BODIES["application/json"]([update(1)] * 10), "application/json", events="debezium-json")
    with pytest.raises(TooLarge, match="at most 19 records, this one has 20"):
        joined(upload.pieces(RecordDecoder(compile_plan(schema(SUMS))), Bounds(19, piece_bytes=200)))
