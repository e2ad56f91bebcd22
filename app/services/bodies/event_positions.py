"""The position of an event in the log of its database, which ``fields.<column>.from-event`` puts into a column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.core.table.options.event_position import EventPosition

# The objects that may hold the origin of an event: the event itself, and its wrappers.
EventObjects = Sequence[Mapping[str, Any]]
_DIGITS = re.compile(r"-?\d{1,19}")
_BINLOG = re.compile(r".*\.(\d+)", re.DOTALL)
_LARGEST = 2**63 - 1
# A file of MySQL's log rarely passes 4 GiB and never 1 TiB; MongoDB counts from 1 in each second.
_BITS_OF_FILE, _BITS_OF_SECOND = 40, 32
_MILLIS = 1000


def position_of(position: EventPosition, event: EventObjects) -> int | str | None:
    """Return the position of an event; None if it has none. Positions of one source increase; events of one change may
    share one.
    """
    return _READERS[position](event)


def _of_source(event: EventObjects, name: str) -> Any:
    """Return a member of Debezium's ``source``, as the envelope, a CloudEvent or ExtractNewRecordState has it."""
    return next((value for value in _in_source(event, name) if value is not None), None)


def _in_source(event: EventObjects, name: str) -> Iterator[Any]:
    for part in event:
        source = part.get("source")
        if isinstance(source, Mapping):
            yield source.get(name)
        yield part.get(f"iodebezium{name.replace('_', '')}")
        yield part.get(f"__source_{name}")
        if not name.startswith("ts_"):  # __ts_ms is the time of the connector
            yield part.get(f"__{name}")


def _number(value: object) -> int | None:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    return value if type(value) is int and abs(value) <= _LARGEST else None


def _lsn(event: EventObjects) -> int | None:
    """PostgreSQL: the last of ``source.sequence``; ``source.lsn`` is null in an incremental snapshot."""
    sequence = _of_source(event, "sequence")
    try:
        last = _number(json.loads(sequence)[-1]) if isinstance(sequence, str) else None
    except (ValueError, TypeError, LookupError):
        last = None
    return _number(_of_source(event, "lsn")) if last is None else last


def _binlog(event: EventObjects) -> int | None:
    """MySQL and MariaDB: the number of the file, then the place in it."""
    file, place = _of_source(event, "file"), _number(_of_source(event, "pos"))
    return _place_in(file, place)


def _place_in(file: object, place: int | None) -> int | None:
    match = _BINLOG.fullmatch(file) if isinstance(file, str) else None
    if match is None or place is None or not 0 <= place < 2**_BITS_OF_FILE:
        return None
    return _number((int(match[1]) << _BITS_OF_FILE) + place)


def _maxwell(event: EventObjects) -> int | None:
    """Maxwell with output_binlog_position=true: ``master.000006:800911``."""
    file, _, place = str(_member(event, "position") or "").rpartition(":")
    return _place_in(file, _number(place))


def _commit_lsn(event: EventObjects) -> str | None:
    """SQL Server: the commit, the change in it, the row of the change; a snapshot has the first alone. All are hex of
    one width, so that texts sort as the log does.
    """
    commit, change, row = (_of_source(event, name) for name in ("commit_lsn", "change_lsn", "event_serial_no"))
    number = _number(row)
    if not isinstance(commit, str):
        return None
    parts = [commit, *([change] if isinstance(change, str) else []), *([] if number is None else [f"{number:010}"])]
    return " ".join(parts)


def _ord(event: EventObjects) -> int | None:
    """MongoDB: the second, then the place in it."""
    millis, place = (_number(_of_source(event, name)) for name in ("ts_ms", "ord"))
    if millis is None or place is None or not 0 <= place < 2**_BITS_OF_SECOND:
        return None
    return _number((millis // _MILLIS << _BITS_OF_SECOND) + place)


def _member(event: EventObjects, *names: str) -> Any:
    return next((part[name] for part in event for name in names if part.get(name) is not None), None)


def _source_number(name: str) -> Callable[[EventObjects], int | None]:
    return lambda event: _number(_of_source(event, name))


def _own_number(*names: str) -> Callable[[EventObjects], int | None]:
    return lambda event: _number(_member(event, *names))


_READERS: Mapping[EventPosition, Callable[[EventObjects], int | str | None]] = {
    EventPosition.SOURCE_LSN: _lsn,
    EventPosition.SOURCE_POS: _binlog,
    EventPosition.SOURCE_COMMIT_LSN: _commit_lsn,
    EventPosition.SOURCE_SCN: _source_number("scn"),
    EventPosition.SOURCE_ORD: _ord,
    EventPosition.SOURCE_TS_MS: _source_number("ts_ms"),
    EventPosition.SOURCE_TS_US: _source_number("ts_us"),
    EventPosition.SOURCE_TS_NS: _source_number("ts_ns"),
    EventPosition.TS_MS: _own_number("ts_ms", "__ts_ms"),
    EventPosition.ES: _own_number("es"),
    EventPosition.TS: _own_number("ts"),
    EventPosition.XOFFSET: _own_number("xoffset"),
    EventPosition.POSITION: _maxwell,
}
