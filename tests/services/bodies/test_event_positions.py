"""Positions of change events: where each connector says them, and that later events have greater ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.options.event_position import EventPosition
from app.core.types.kinds import Kind
from app.services.batches.batches import Upload
from app.services.bodies.event_positions import position_of
from tests.pieces import joined, listed
from tests.services.builders import schema

BINLOG = {"file": "mysql-bin.000003", "pos": 154}
SERVER = {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 2}


def envelope(**source: object) -> Mapping[str, Any]:
    return {"payload": {"op": "c", "ts_ms": 9, "after": {"id": 1}, "source": source}}


@pytest.mark.parametrize(
    ("position", "source", "value"),
    [
        ("source.lsn", {"lsn": 24, "sequence": '["20","26"]'}, 26),
        ("source.lsn", {"lsn": 24, "sequence": "[null,null]"}, 24),
        ("source.lsn", {"lsn": None, "sequence": '[null,"26"]'}, 26),
        ("source.lsn", {"lsn": 24, "sequence": "no list"}, 24),
        ("source.pos", BINLOG, (3 << 40) + 154),
        ("source.commit_lsn", SERVER, "00000027:00000758:0005 00000027:00000758:0003 0000000002"),
        ("source.commit_lsn", {**SERVER, "change_lsn": None, "event_serial_no": None}, "00000027:00000758:0005"),
        ("source.scn", {"scn": "2868546"}, 2868546),
        ("source.ord", {"ts_ms": 1_700_000_000_000, "ord": 5}, (1_700_000_000 << 32) + 5),
        ("source.ts_ms", {"ts_ms": 7}, 7),
        ("source.ts_us", {"ts_us": 7001}, 7001),
        ("source.ts_ns", {"ts_ns": 7001002}, 7001002),
        ("ts_ms", {"ts_ms": 7}, 9),
    ],
)
def test_an_envelope_says_the_position_in_its_source(position: str, source: dict[str, object], value: object) -> None:
    assert stored("debezium-json", envelope(**source), position) == [value]


@pytest.mark.parametrize(
    ("how", "event", "position", "value"),
    [
        ("debezium-flat-json", {"id": 1, "__lsn": 24, "__source_sequence": '[null,"26"]'}, "source.lsn", 26),
        ("debezium-flat-json", {"id": 1, "__source_ts_ms": 7, "__ts_ms": 9}, "source.ts_ms", 7),
        ("debezium-flat-json", {"id": 1, "__source_ts_ms": 7, "__ts_ms": 9}, "ts_ms", 9),
        ("debezium-flat-json", {"id": 1, "__file": "binlog.000001", "__pos": 4}, "source.pos", (1 << 40) + 4),
        ("canal-json", {"type": "INSERT", "es": 5, "ts": 6, "data": [{"id": "1"}]}, "es", 5),
        ("canal-json", {"type": "INSERT", "es": 5, "ts": 6, "data": [{"id": "1"}]}, "ts", 6),
        ("maxwell-json", {"type": "insert", "ts": 6, "xoffset": 2, "data": {"id": 1}}, "xoffset", 2),
        (
            "maxwell-json",
            {"type": "insert", "position": "master.000006:800911", "data": {"id": 1}},
            "position",
            (6 << 40) + 800911,
        ),
    ],
)
def test_other_formats_say_it_in_their_own_members(
    how: str, event: dict[str, object], position: str, value: object
) -> None:
    assert stored(how, event, position) == [value]


def test_a_cloudevent_says_it_in_its_attributes() -> None:
    said = {"iodebeziumop": "c", "iodebeziumlsn": "24", "iodebeziumsequence": '[null,"26"]'}
    event = {**said, "data": {"after": {"id": 1}}}
    assert stored(None, event, "source.lsn", "application/cloudevents+json") == [26]


def test_both_halves_of_a_key_change_have_the_position() -> None:
    payload = {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "source": {"lsn": 5}}
    assert stored("debezium-json", payload, "source.lsn") == [5, 5]


UNTOLD = [one for one in EventPosition if one is not EventPosition.TS_MS]
UNREADABLE = [one for one in UNTOLD if one is not EventPosition.SOURCE_COMMIT_LSN]  # that one is a text


@pytest.mark.parametrize(
    ("position", "source"),
    [
        *((one, {}) for one in UNTOLD),
        *((one, dict.fromkeys(("lsn", "file", "pos", "scn", "ts_ms", "ts_us", "ts_ns"), "text")) for one in UNREADABLE),
    ],
)
def test_an_event_without_the_position_is_refused_by_name(position: EventPosition, source: dict[str, object]) -> None:
    with pytest.raises(Invalid) as refused:
        stored("debezium-json", envelope(**source), position)
    [fault] = refused.value.violations
    assert (fault.pointer, fault.code, fault.column) == ("/events/0/place", "unusable_event", "place")
    assert position in fault.message


@pytest.mark.parametrize(
    ("position", "earlier", "later"),
    [
        ("source.pos", {"file": "b.000009", "pos": 2**32}, {"file": "b.000010", "pos": 4}),
        ("source.commit_lsn", {**SERVER, "event_serial_no": 9}, {**SERVER, "event_serial_no": 10}),
        ("source.commit_lsn", {"commit_lsn": SERVER["commit_lsn"]}, SERVER),
        ("source.ord", {"ts_ms": 1_999, "ord": 9}, {"ts_ms": 2_000, "ord": 1}),
    ],
)
def test_what_is_later_in_the_log_is_greater(position: str, earlier: dict[str, Any], later: dict[str, Any]) -> None:
    before, after = (position_of(EventPosition(position), [{"source": one}]) for one in (earlier, later))
    assert before is not None
    assert after is not None
    assert before < after  # type: ignore[operator]


def stored(how: str | None, event: object, position: str, media_type: str = "application/json") -> list[Any]:
    """What is staged in the column that the position fills."""
    of = "STRING" if EventPosition(position).kind is Kind.STRING else "BIGINT"
    table = schema(("id", "BIGINT"), ("place", of), options={"fields.place.from-event": position})
    upload = Upload(json.dumps(event).encode(), media_type, events=how)
    decoded = joined(upload.pieces(RecordDecoder(compile_plan(table)), Bounds(100)))
    return listed(decoded.columns["place"])
