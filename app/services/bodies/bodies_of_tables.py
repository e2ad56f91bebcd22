"""Bodies for several tables of a database: change events, each of its table, or records by table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, RecordDecoder
from app.services.bodies.change_events import EventFormat, Events, chosen_event_pieces
from app.services.bodies.event_changes import Unusable, object_of
from app.services.bodies.event_origins import Origin
from app.services.bodies.json_bodies import (
    Numbered,
    is_list,
    ndjson_lines,
    parsed_each,
    raw_list,
    raw_record_pieces,
    unreadable,
)
from app.storage.ingest.pieces import Piece
from app.storage.staging.spool import Content

Sources = Mapping[str, Sequence[str]]
"""The tables of a database by name, with what each declares as ``events.source``."""
_NO_SOURCE: Final = "send it as the connector wrote it, to the URL of its table, or with its source (add.fields)"
_TABLES: Final = 'send {"tables": {"orders": {"records": [{…}, …]}}}; change events need ?format='
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_records = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True)
class Part:
    """The part of a body for one table: its approximate size in bytes, the reader of its records, and the place of its
    faults.
    """

    size: int
    pieces: Callable[[RecordDecoder, Bounds], Iterable[Piece]]
    pointer: str = ""


@dataclass
class Split:
    """A body by table. ``skipped`` counts, by name, the records that no table takes; ``absent`` are the tables of
    these names; ``no_rows`` counts the events that are not about a row; ``faults`` are the first of ``total``.
    """

    parts: dict[str, Part] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    no_rows: int = 0
    faults: list[Violation] = field(default_factory=list)
    total: int = 0

    def fault(self, violation: Violation) -> None:
        """Count a fault, and keep it unless ``REPORTED_VIOLATIONS`` are kept already."""
        self.faults += [violation] if self.total < REPORTED_VIOLATIONS else []
        self.total += 1

    def unknown(self, name: str, pointer: str, fix: str, row: int | None = None, *, skip: bool, count: int = 1) -> None:
        """Count ``count`` records for a table that does not exist: skipped if ``skip``, else a fault."""
        if skip:
            self.skipped[name] = self.skipped.get(name, 0) + count
        else:
            self.fault(Violation(pointer, FaultCode.UNKNOWN_TABLE, f"no table takes {name!r}", fix, row, table=name))


def split_records(content: Content, bounds: Bounds, sources: Sources, *, skip: bool) -> Split:
    """Return the records of ``{"tables": {"orders": {"records": […]}, …}}`` by table. Raise ``Invalid``."""
    bounds.check_whole(len(content))
    split = Split()
    body = _only(content, "tables", "")
    for name, raw in _object(body, "/tables").items():
        pointer = f"/tables/{escape_pointer(name)}"
        raws = _list(_only(raw, "records", pointer), f"{pointer}/records")
        if name not in sources:
            fix = "make the table, or add ?unknownTables=skip to leave its records out"
            split.absent.add(name)
            split.unknown(name, pointer, fix, skip=skip, count=len(raws))
            continue
        split.parts[name] = Part(len(raw), partial(_record_pieces, raws), pointer)
    return split


def _record_pieces(raws: Sequence[msgspec.Raw], decoder: RecordDecoder, bounds: Bounds) -> Iterable[Piece]:
    return raw_record_pieces(decoder, raws, bounds)


def _only(text: Content | msgspec.Raw, member: str, pointer: str) -> msgspec.Raw:
    """Return the only member of an object. Raise ``Invalid``."""
    members = _object(text, pointer)
    faults = [
        Violation(f"{pointer}/{escape_pointer(name)}", FaultCode.UNKNOWN_MEMBER, f"unknown member {name!r}", _TABLES)
        for name in members
        if name != member
    ]
    if member not in members:
        faults.append(Violation(f"{pointer}/{member}", FaultCode.MISSING, f"{member!r} is missing", _TABLES))
    if faults:
        raise _no_records(faults)
    return members[member]


def _object(text: Content | msgspec.Raw, pointer: str) -> Mapping[str, msgspec.Raw]:
    try:
        return _members.decode(text)
    except msgspec.ValidationError as error:
        fault = Violation(pointer, FaultCode.DICT_TYPE, "this is no object", _TABLES)
        raise _no_records([fault]) from error
    except (ValueError, RecursionError) as error:
        raise unreadable(pointer, error) from error


def _list(raw: msgspec.Raw, pointer: str) -> Sequence[msgspec.Raw]:
    try:
        return _records.decode(raw)
    except msgspec.ValidationError as error:
        raise _no_records([Violation(pointer, FaultCode.LIST_TYPE, "this is no list", _TABLES)]) from error


def _no_records(faults: Sequence[Violation]) -> Invalid:
    message = "the body is no batch of records by table"
    return Invalid(message, violations=faults[:REPORTED_VIOLATIONS], total_violations=len(faults))


@dataclass
class _Chosen:
    """The events of a body for one table, their numbers in the body, and their origins."""

    texts: list[Numbered] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    origins: set[Origin] = field(default_factory=set)

    def add(self, text: Numbered, row: int, origin: Origin) -> None:
        """Add an event."""
        self.texts.append(text)
        self.rows.append(row)
        self.origins.add(origin)


def split_events(
    how: EventFormat,
    unavailable: str,
    content: Content,
    bounds: Bounds,
    sources: Sources,
    *,
    lines: bool,
    skip: bool,
) -> Split:
    """Return the change events of a body by table: each goes to every table that takes events of its origin.

    ``lines``: the body is NDJSON. Raise ``Invalid`` if the body is no list of events.
    """
    bounds.check_whole(len(content))
    split, chosen = Split(), defaultdict[str, _Chosen](_Chosen)
    takers = _Takers(sources)
    noun = "line" if lines else "event"
    for row, (number, text) in enumerate(_texts(content, bounds, lines=lines)):
        origin = how.origins.origin_of_text(text)
        if origin is None or not takers.names(origin):
            _without_table(split, how, (number, text), noun, row, origin, skip=skip)
            continue
        for name in takers.names(origin):
            chosen[name].add((number, text), row, origin)
    for name, of_table in chosen.items():
        # Events of one origin are its own, since they are here; of several it may take one only.
        events = Events(how, name if len(of_table.origins) > 1 else "", unavailable)
        size = sum(len(text) for _, text in of_table.texts)
        split.parts[name] = Part(size, partial(chosen_event_pieces, events, of_table.texts, of_table.rows, noun))
    return split


class _Takers:
    """Finds the tables that take the events of an origin."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._known: dict[Origin, Sequence[str]] = {}

    def names(self, origin: Origin) -> Sequence[str]:
        """Return the names of these tables."""
        if origin not in self._known:
            feeds = [name for name, declared in self._sources.items() if origin.feeds(name, declared)]
            self._known[origin] = feeds
        return self._known[origin]


def _texts(content: Content, bounds: Bounds, *, lines: bool) -> Iterable[Numbered]:
    if lines:
        return (text for texts, _ in ndjson_lines(content, bounds) for text in texts)
    if is_list(content):
        return enumerate(raw_list(content, bounds))
    bounds.check_record(len(content))
    return [(0, bytes(content))] if content[:].strip() else ()


def _without_table(
    split: Split, how: EventFormat, sent: Numbered, noun: str, row: int, origin: Origin | None, *, skip: bool
) -> None:
    """Note an event that no table takes."""
    try:
        [value] = parsed_each([sent], noun, [row])
        if value is None or how.names_no_row(object_of(value)):
            split.no_rows += 1
            return
        if origin is None:
            message = "the event does not name its table"
            raise Unusable(message, _NO_SOURCE)
    except Invalid as error:
        for fault in error.violations:
            split.fault(fault)
        return
    except Unusable as error:
        split.fault(Violation(f"/events/{row}", error.code, str(error), error.fix, row))
        return
    fix = (
        f"make a table {origin.parts[-1]!r}, set events.source = {origin.shown} on the one that takes it, or add "
        "?unknownTables=skip to leave its events out"
    )
    split.absent.add(origin.parts[-1])
    split.unknown(origin.shown, f"/events/{row}", fix, row, skip=skip)


def faults_of(split: Split) -> Invalid:
    """Return the error for a body with the faults that ``split`` found."""
    more = f" (and {split.total - 1} more)" if split.total > 1 else ""
    message = f"{split.faults[0].message}{more}; nothing was stored in any table"
    return Invalid(message, code=ErrorCode.INVALID_RECORDS, violations=split.faults, total_violations=split.total)
