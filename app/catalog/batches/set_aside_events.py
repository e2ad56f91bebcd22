"""Change events with faults that their table keeps until they are retried or withdrawn (``onFault=set-aside``)."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from app.catalog.shared.models import set_aside_events as events
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.tables import Tables
from app.core.errors import FaultCode, Invalid, Resource, Violation, not_found
from app.core.plan.records.faulty_events import FaultyEvent, SetAsideEvent

# A table keeps at most this many events.
MOST_EVENTS: Final = 10_000
# The events of a table have at most this many characters together.
MOST_CHARACTERS: Final = 2**26
_AT_ONCE: Final = 500  # values of one statement
_MEMBERS: Final = ("pointer", "message", "fix", "column", "table")
_FULL: Final = "retry those that can be stored by now, or withdraw them: GET …/set-aside-events"


def _event(row: AnyRow) -> SetAsideEvent:
    values = dict(row._mapping)
    del values["digest"]
    return SetAsideEvent(**{**values, "faults": [_violation(fault) for fault in values["faults"]]})


def _violation(stored: Mapping[str, Any]) -> Violation:
    return Violation(code=FaultCode[stored["code"].upper()], **{name: stored[name] for name in _MEMBERS})


def _stored(faults: Sequence[Violation]) -> list[dict[str, Any]]:
    return [{"code": fault.code.value, **{name: getattr(fault, name) for name in _MEMBERS}} for fault in faults]


@dataclass(frozen=True)
class SetAsideEvents:
    """Reads and writes the change events that are set aside."""

    transaction: Transaction
    tables: Tables

    def add(self, table_id: str, batch_id: str, sender: str, faulty: Sequence[FaultyEvent]) -> None:
        """Store events of the request that became a batch. An event that is stored already is counted again.

        Raise ``Invalid`` if the table would keep too many.
        """
        self.tables.lock(table_id)
        by_digest, sent = {event.digest: event for event in faulty}, Counter(event.digest for event in faulty)
        again = self._known(table_id, by_digest)
        for digest, times in again.items():
            condition = (events.c.table_id == table_id) & (events.c.digest == digest)
            changes = {"times": times + sent[digest], "faults": _stored(by_digest[digest].faults)}
            self.transaction.execute(events.update().where(condition).values(changes))
        new = {digest: event for digest, event in by_digest.items() if digest not in again}
        number = self._room(table_id, list(new.values()))
        rows = [
            {
                "id": uuid.uuid4().hex,
                "table_id": table_id,
                "number": number + place,
                "digest": digest,
                "format": event.format,
                "unavailable": event.unavailable,
                "text": event.text,
                "faults": _stored(event.faults),
                "times": sent[digest],
                "batch_id": batch_id,
                "set_aside_at": self.transaction.now(),
                "set_aside_by": sender,
            }
            for place, (digest, event) in enumerate(new.items(), 1)
        ]
        if rows:
            self.transaction.execute(events.insert(), rows)

    def page(self, table_id: str, *, after_number: int | None = None, limit: int) -> list[SetAsideEvent]:
        """Return up to ``limit`` events of the table in number order, with numbers above ``after_number``."""
        condition = (events.c.table_id == table_id) & (events.c.number > (after_number or 0))
        query = sa.select(events).where(condition).order_by(events.c.number).limit(limit)
        return [_event(row) for row in self.transaction.execute(query)]

    def some(self, table_id: str, ids: Sequence[str]) -> list[SetAsideEvent]:
        """Return the table's events with these ids, in the order of their numbers. Raise ``NotFound``."""
        self._check_kept(table_id, ids)
        stored: list[SetAsideEvent] = []
        for few in _in_parts(ids):
            condition = (events.c.table_id == table_id) & events.c.id.in_(few)
            stored += [_event(row) for row in self.transaction.execute(sa.select(events).where(condition))]
        return sorted(stored, key=lambda event: event.number)

    def delete(self, table_id: str, ids: Sequence[str]) -> None:
        """Delete these events of the table. Raise ``NotFound`` if one does not exist."""
        self.tables.lock(table_id)  # so that only one of two retries finds an event
        self._check_kept(table_id, ids)
        self.transaction.erase()  # a key that was forgotten may be in them
        for few in _in_parts(ids):
            self.transaction.execute(events.delete().where(events.c.table_id == table_id, events.c.id.in_(few)))

    def note_faults(self, table_id: str, faults: Mapping[str, Sequence[Violation]]) -> None:
        """Store the present faults of events, by their ids. Raise ``NotFound`` if one does not exist."""
        self._check_kept(table_id, list(faults))
        for event_id, violations in faults.items():
            self.transaction.execute(events.update().where(events.c.id == event_id).values(faults=_stored(violations)))

    def count(self, table_id: str | None = None) -> int:
        """Return how many events the table, or all tables, keep."""
        query = sa.select(sa.func.count()).select_from(events)
        query = query if table_id is None else query.where(events.c.table_id == table_id)
        return int(self.transaction.execute(query).scalar_one())

    def before(self, table_id: str, time: datetime) -> tuple[int, str]:
        """Return how many of the table's events are from before ``time``, and the id of one of them."""
        query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.min(events.c.id), "")).where(
            events.c.table_id == table_id, events.c.set_aside_at <= time
        )
        count, first = self.transaction.execute(query).one()
        return int(count), str(first)

    def _check_kept(self, table_id: str, ids: Sequence[str]) -> None:
        """Raise ``NotFound`` for the first of the events that the table does not keep."""
        existing: set[str] = set()
        for few in _in_parts(ids):
            query = sa.select(events.c.id).where(events.c.table_id == table_id, events.c.id.in_(few))
            existing |= set(self.transaction.execute(query).scalars())
        missing = next((event_id for event_id in ids if event_id not in existing), None)
        if missing is not None:
            raise not_found(Resource.SET_ASIDE_EVENT, missing)

    def _known(self, table_id: str, digests: Collection[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for few in _in_parts(list(digests)):
            condition = (events.c.table_id == table_id) & events.c.digest.in_(few)
            query = sa.select(events.c.digest, events.c.times).where(condition)
            counts |= {row.digest: row.times for row in self.transaction.execute(query)}
        return counts

    def _room(self, table_id: str, new: Sequence[FaultyEvent]) -> int:
        """Return the number of the table's last event, 0 for none. Raise ``Invalid`` if there would be too many
        events.
        """
        query = sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.max(events.c.number), 0),
            sa.func.coalesce(sa.func.sum(sa.func.length(events.c.text)), 0),
        ).where(events.c.table_id == table_id)
        count, number, size = self.transaction.execute(query).one()
        size += sum(len(event.text) for event in new)
        if count + len(new) > MOST_EVENTS or size > MOST_CHARACTERS:
            message = (
                f"with these {len(new)} events {count + len(new)} would be set aside, of {size} characters; at most"
                f" {MOST_EVENTS} of {MOST_CHARACTERS} are kept; nothing was stored"
            )
            raise Invalid(message, violations=[Violation("/onFault", FaultCode.TOO_MANY, message, _FULL)])
        return int(number)


def _in_parts(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE)]
