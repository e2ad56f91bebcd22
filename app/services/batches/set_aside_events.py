"""Change events that are set aside: listed, read, withdrawn, and retried once their table or its rules have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, Resource, Violation, not_found
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.faulty_events import OnFault, SetAsideEvent
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.plan.records.unknown_columns import UnknownColumns
from app.core.table.history import Table
from app.core.table.schema_bounds import DEFAULT_BOUNDS, SchemaBounds
from app.services.batches.receiver import Sent
from app.services.batches.staged_uploads import StagedUpload
from app.services.bodies.change_events import STORED_FORMATS, Events, RecordCount, chosen_event_pieces
from app.services.shared.pages import Page, PageRequest, fitting, page_of
from app.storage.ingest.pieces import Piece

# At most this many events are retried at once.
MOST_RETRIED: Final = 1000


def list_events(repository: Repository, table: Table, request: PageRequest) -> Page[SetAsideEvent]:
    """Return a page of the table's events, in the order in which they were set aside. Raise ``Invalid``."""
    events = repository.set_aside_events.page(table.id, after_number=request.after_number, limit=request.and_one_more)
    most = fitting(len(event.text) for event in events)
    return page_of(
        events, PageRequest(min(request.limit, most), request.token), lambda set_aside_event: set_aside_event.number
    )


def withdraw_event(repository: Repository, table: Table, event_id: str) -> SetAsideEvent:
    """Delete the stored event and return it. Raise ``NotFound``."""
    [event] = repository.set_aside_events.some(table.id, [event_id])
    repository.set_aside_events.delete(table.id, [event_id])
    return event


@dataclass(frozen=True)
class RetriedEvents:
    """A request to retry events that were set aside: those with these ``ids``, by default the table's first thousand.
    They are read as if they had arrived now. Events that still have faults stay set aside. ``sender`` is the name of
    the caller's token.
    """

    database: CatalogDatabase
    name: tuple[str, str]
    ids: Sequence[str] = ()
    sender: str = ""
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        """Raise ``Invalid`` if there are more events than one retry may have."""
        if len(self.ids) > MOST_RETRIED:
            message = f"{len(self.ids)} events are named, {MOST_RETRIED} are retried at once"
            raise Invalid(message, violations=[Violation("/id", FaultCode.TOO_MANY, message, "name fewer")])

    @cached_property
    def events(self) -> Sequence[SetAsideEvent]:
        """Read when first needed: a repeated request finds none, for the first one stored them. Raise ``NotFound``."""
        with self.database.reading() as repository:
            return _events_to_retry(repository, repository.tables.get(*self.name), self.ids)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the requested event ids."""
        return hashlib.sha256("\0".join(self.ids).encode()).hexdigest()

    @property
    def unknown_columns(self) -> UnknownColumns:
        """Columns that the table still does not have are faults."""
        return UnknownColumns.REFUSE

    @property
    def on_fault(self) -> OnFault:
        """Events with faults stay set aside."""
        return OnFault.SET_ASIDE

    @property
    def schema_bounds(self) -> SchemaBounds:
        """The bounds of any schema; they do not matter, since the columns stay as they are."""
        return DEFAULT_BOUNDS.table

    @property
    def size(self) -> int:
        """The size of the events in characters."""
        return sum(len(event.text) for event in self.events)

    def pieces(self, decoder: RecordDecoder, bounds: Bounds) -> Iterable[Piece]:
        """Yield the records to stage: those of all formats have their own positions in the batch."""
        numbered, so_far = [*enumerate(self.events)], RecordCount()
        for (name, unavailable), some in groupby(numbered, lambda pair: (pair[1].format, pair[1].unavailable)):
            chosen = [(number, event.text.encode()) for number, event in some]
            events = Events(STORED_FORMATS[name], self.name[1], unavailable)
            rows = [number for number, _ in chosen]
            yield from chosen_event_pieces(events, chosen, rows, "event", decoder, bounds, so_far)

    def settles(self, staged: Sequence[StagedUpload], _: Sent) -> Callable[[Repository], None]:
        """Return a function that deletes the stored events and updates the faults of the others, in a transaction. It
        raises ``NotFound`` if one was retried or withdrawn since.
        """
        [upload] = staged
        faults = {self.events[event.number].id: event.faults for event in upload.faulty}

        def settle(repository: Repository) -> None:
            stored_events, table_id = repository.set_aside_events, upload.table.id
            stored_events.delete(table_id, [event.id for event in self.events if event.id not in faults])
            stored_events.note_faults(table_id, faults)

        return settle


def _events_to_retry(repository: Repository, table: Table, ids: Sequence[str]) -> Sequence[SetAsideEvent]:
    stored_events = repository.set_aside_events
    events = (
        stored_events.some(table.id, list(dict.fromkeys(ids)))
        if ids
        else stored_events.page(table.id, limit=MOST_RETRIED)
    )
    if not events:
        raise not_found(Resource.SET_ASIDE_EVENT, table.name, f"no event of {table.full_name} is set aside")
    return events
