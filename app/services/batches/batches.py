"""Batches: accepted and staged, listed, read, withdrawn."""

from __future__ import annotations

import hashlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Protocol

from app.catalog.batches.batches import key_reused
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import (
    Conflict,
    ErrorCode,
    FaultCode,
    Invalid,
    KeyReused,
    NotFound,
    NotStored,
    UnsupportedMediaType,
    Violation,
)
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.faulty_events import OnFault
from app.core.plan.records.record_decoder import Note, RecordDecoder
from app.core.plan.records.unknown_columns import UnknownColumns
from app.core.table.history import Batch, BatchState, Table
from app.core.table.schema_bounds import DEFAULT_BOUNDS, SchemaBounds
from app.files.layout import Warehouse
from app.services.batches.admission import Admission
from app.services.batches.group_commit import GroupCommit
from app.services.batches.receiver import Receiver, Sent, alters, sets_aside
from app.services.batches.staged_uploads import StagedUpload, check_idempotency_key, count_accepted
from app.services.bodies.change_events import EventFormat
from app.services.bodies.encodings import decoded
from app.services.bodies.formats import (
    CLOUDEVENTS,
    CLOUDEVENTS_BATCH,
    FORMATS,
    JSON,
    NDJSON,
    EmptyFields,
    event_format,
    format_of,
)
from app.services.rows.known_rows import KnownRows, no_rows
from app.services.shared.pages import Page, PageRequest, page_of
from app.services.shared.unavailable import UNAVAILABLE
from app.storage.ingest.pieces import Piece
from app.storage.staging.spool import Content, Room, read_until
from app.storage.staging.staging import delete_batch
from app.telemetry.traces import span


class BatchOrder(StrEnum):
    """Which end of a table's batches a list begins with; batches are numbered in the order of arrival."""

    NEWEST = "newest"
    OLDEST = "oldest"


def list_batches(
    repository: Repository,
    table: Table,
    request: PageRequest,
    state: BatchState | None = None,
    order: BatchOrder = BatchOrder.NEWEST,
) -> Page[Batch]:
    """Return a page of the table's batches, of those that are in ``state`` if one is given. Raise ``Invalid``."""
    look = repository.batches.newest if order is BatchOrder.NEWEST else repository.batches.page
    listed = look(table.id, after_number=request.after_number, limit=request.and_one_more, state=state)
    return page_of(listed, request, lambda batch: batch.number)


def withdraw_batch(database: CatalogDatabase, warehouse: Warehouse, name: tuple[str, str], batch_id: str) -> Batch:
    """Withdraw a staged batch of the table ``name`` (database, table).

    Raise ``NotFound``, and ``Conflict`` if a merge has claimed it.
    """
    with database.transaction() as repository:
        table = repository.tables.get(*name)
        batch = repository.batches.delete_staged(table.id, batch_id)
    delete_batch(warehouse, table.id, batch.file)
    return batch


def retry_batch(database: CatalogDatabase, name: tuple[str, str], batch_id: str) -> Batch:
    """Stage a batch that was set aside again, under the next number, as if it had arrived now.

    Raise ``NotFound``, and ``Conflict`` for a batch that is not set aside.
    """
    with database.transaction() as repository:
        table = repository.tables.get(*name)
        repository.set_aside.take_back(repository.batches.get(table.id, batch_id))
        return repository.batches.get(table.id, batch_id)


def current_batch(database: CatalogDatabase, batch: Batch) -> Batch:
    """Return the batch with its present state."""
    with database.reading() as repository:
        return repository.batches.get(batch.table_id, batch.id)


ALTERED_TRIES: Final = 3
_HASHED_BYTES: Final = 2**22
_JSON_TYPES: Final = frozenset({JSON, *NDJSON, CLOUDEVENTS, CLOUDEVENTS_BATCH})


@dataclass(frozen=True)
class Upload:
    """One POST of records: the body as sent, the media type without parameters, the Idempotency-Key, the codings of
    Content-Encoding, the format of its change events (if any), and the disk space for the decompressed body.
    ``unavailable`` is the placeholder in events for unchanged values.

    ``empty_fields`` is the meaning of an empty CSV field. ``unknown_columns`` is the treatment of columns that the
    table does not have; the table may grow to ``schema_bounds``. ``on_fault`` is the treatment of faulty events.
    ``sender`` is the name of the caller's token. Change events from tables of the source that do not feed ``table``
    are refused; without ``table`` all events are taken.
    """

    body: Content
    media_type: str
    idempotency_key: str | None = None
    encoding: str = ""
    events: str | None = None
    unavailable: str = UNAVAILABLE
    room: Room = field(default_factory=Room)
    empty_fields: EmptyFields = EmptyFields.NULL
    sender: str = ""
    table: str = ""
    unknown_columns: UnknownColumns = UnknownColumns.REFUSE
    schema_bounds: SchemaBounds = DEFAULT_BOUNDS.table
    on_fault: OnFault = OnFault.REFUSE

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the request. A retry has the same digest; another request under the same Idempotency-Key has a
        different one.
        """
        kind = f"{self.media_type};{self.encoding}" if self.encoding else self.media_type
        kind = f"{kind};format={self.events}" if self.events else kind
        kind = f"{kind};unavailable={self.unavailable}" if self.unavailable != UNAVAILABLE else kind
        kind = f"{kind};emptyFields=absent" if self.empty_fields is EmptyFields.ABSENT else kind
        refuses = self.unknown_columns is UnknownColumns.REFUSE
        kind = kind if refuses else f"{kind};unknownColumns={self.unknown_columns}"
        kind = kind if self.on_fault is OnFault.REFUSE else f"{kind};onFault={self.on_fault}"
        digest = hashlib.sha256(kind.encode() + b"\0")
        for start in range(0, len(self.body), _HASHED_BYTES):
            digest.update(self.body[start : start + _HASHED_BYTES])
            read_until(self.body, start)
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    def pieces(self, decoder: RecordDecoder, bounds: Bounds) -> Iterable[Piece]:
        """Return the records to stage. Raise ``Invalid`` for what is unreadable, ``TooLarge``,
        ``UnsupportedMediaType``.
        """
        if self.unknown_columns is UnknownColumns.ADD and self.media_type not in _JSON_TYPES:
            message = f"columns are added from JSON, the body is {self.media_type[:100]!r}"
            fault = Violation("/unknownColumns", FaultCode.CONTRADICTING_PARAMETERS, message, "alter the table first")
            raise Invalid("columns of such a body cannot be added", violations=[fault])
        chosen = format_of(self.media_type, self.events, self.empty_fields, self.unavailable, self.table)
        if self.empty_fields is EmptyFields.ABSENT and not decoder.plan.schema.absent_unchanged:
            message, fix = "in this table an absent column is null", "set record.absent-columns = unchanged"
            fault = Violation("/emptyFields", FaultCode.CONTRADICTING_PARAMETERS, message, fix)
            raise Invalid("empty fields cannot be absent", violations=[fault])
        if chosen is None:
            message = f"cannot read {self.media_type[:100]!r}; send one of: {', '.join(FORMATS)}"
            raise UnsupportedMediaType(message)
        self.check_on_fault(event_format(self.media_type, self.events))
        bounds = bounds.of_table(len(decoder.plan.schema.declared_names))
        content = decoded(self.body, self.encoding, bounds, self.room)
        if not len(content) and self.events is None:  # of events, nothing is a tombstone
            fix = f"send the records as {self.media_type}; without records, send no request"
            fault = Violation("", FaultCode.UNREADABLE_BODY, "the body is empty", fix)
            raise Invalid("the body is empty", violations=[fault])
        return chosen.pieces(decoder, self.unmarked(content), bounds)

    def check_on_fault(self, how: EventFormat | None) -> None:
        """Raise ``Invalid`` if faults are to be set aside in a body without change events."""
        if self.on_fault is OnFault.SET_ASIDE and how is None:
            message, fix = "only change events are set aside", "send change events, or remove onFault"
            fault = Violation("/onFault", FaultCode.CONTRADICTING_PARAMETERS, message, fix)
            raise Invalid(message, violations=[fault])

    def unmarked(self, content: Content) -> Content:
        """Return the decoded body without its byte order mark."""
        marked = self.media_type in _JSON_TYPES and content[: len(BOM_UTF8)] == BOM_UTF8
        return content[len(BOM_UTF8) :] if marked else content


class Change(Sent, Protocol):
    """A request to stage records: an ``Upload``, or the change of one row."""

    @property
    def size(self) -> int:
        """The approximate size in bytes."""

    def pieces(self, decoder: RecordDecoder, bounds: Bounds) -> Iterable[Piece]:
        """Return the records to stage."""


@dataclass(frozen=True)
class Accepted:
    """The batch of a request; ``replayed`` if an earlier request with its Idempotency-Key made it.

    ``notes`` count the warnings about its records, ``changes`` are the schema changes (Paimon's JSON) that it needed,
    and ``set_aside`` counts the events that were set aside; all are empty for a replayed one.
    """

    batch: Batch
    replayed: bool = False
    notes: Mapping[Note, int] = field(default_factory=dict)
    changes: Sequence[Mapping[str, Any]] = ()
    set_aside: int = 0


Settles = Callable[[Sequence[StagedUpload], Sent], Callable[[Repository], None] | None]
"""What is done in the transaction of a batch once that is entered; None where nothing is."""


def accept_batch(
    database: CatalogDatabase,
    warehouse: Warehouse,
    database_name: str,
    table_name: str,
    upload: Change,
    bounds: Bounds,
    commits: GroupCommit | None = None,
    known: KnownRows = no_rows,
    admission: Admission | None = None,
    settles: Settles = sets_aside,
) -> Accepted:
    """Validate the records of ``upload`` and stage them; when it returns, the batch is durable.

    Concurrent batches of the same ``commits`` share a transaction. ``known`` looks up the table's rows; without it
    every record counts as the first of its key. ``admission`` may refuse the batch; without it every batch is
    admitted. ``settles`` adds work to the transaction.

    A repeated Idempotency-Key with the same request answers the batch of the first. Raise ``Invalid`` with every
    fault, ``KeyReused`` for an Idempotency-Key that was used for another request, ``Conflict`` (REQUEST_IN_FLIGHT)
    while the first is under way, ``TooLarge`` beyond ``bounds``, ``UnsupportedMediaType``, ``Unavailable`` if the
    staging file was garbage-collected before its batch was committed, ``NotStored`` if the warehouse cannot be
    written, and what ``admission`` raises.
    """
    check_idempotency_key(upload.idempotency_key)
    commits = commits or GroupCommit(database, warehouse)
    name = (database_name, table_name)
    with span("batch", {"table": ".".join(name)}) as here:
        for _ in range(ALTERED_TRIES):
            try:
                done = _accept(database, warehouse, name, upload, bounds, commits, known, admission, settles)
            except Conflict as error:
                # The schema was altered since the body was read: read it again under the new schema.
                if error.code is not ErrorCode.COMMIT_CONFLICT:
                    raise
            else:
                here.set_attributes({"keyfold.batch": done.batch.id, "keyfold.records": done.batch.records})
                return done
    raise Conflict(f"table {table_name!r} is altered again and again; post the batch later", retry_seconds=1)


def _accept(
    database: CatalogDatabase,
    warehouse: Warehouse,
    name: tuple[str, str],
    upload: Change,
    bounds: Bounds,
    commits: GroupCommit,
    known: KnownRows,
    admission: Admission | None,
    settles: Settles,
) -> Accepted:
    key = upload.idempotency_key
    with database.reading() as repository:
        table = repository.tables.get(*name)
        earlier = repository.batches.find_by_key(table.id, key) if key else None
    if earlier is not None:
        if earlier.fingerprint != upload.fingerprint:
            raise key_reused(earlier)
        return Accepted(earlier, replayed=True)
    with commits.keys.taking(table.id, key) as free:
        if not free:
            raise under_way(key)
        with nullcontext() if admission is None else admission.admitted(table, upload.size):
            receiver = Receiver(database, warehouse, table, known)
            staged = receiver.staged(upload, lambda decoder: upload.pieces(decoder, bounds))
            done = _entered(database, warehouse, staged, upload, commits, settles)
            if admission is not None:
                admission.accepted(table.id, done.batch.records, done.batch.size_bytes)
            return done


def under_way(key: str | None) -> Conflict:
    """Return the error: another request with the same Idempotency-Key is in flight."""
    message = f"a request with the Idempotency-Key {key!r} is in flight; retry when it has ended"
    return Conflict(message, code=ErrorCode.REQUEST_IN_FLIGHT)


def _entered(
    database: CatalogDatabase,
    warehouse: Warehouse,
    staged: StagedUpload,
    upload: Change,
    commits: GroupCommit,
    settles: Settles,
) -> Accepted:
    try:
        alter, settle = alters([staged], upload), settles([staged], upload)
        if alter is None and settle is None:
            batch = commits.enter(staged.table.id, staged.new)
        else:
            [batch] = commits.enter_together({staged.table.id: staged.new}, alter, settle)
    except (Conflict, Invalid, KeyReused, NotFound, NotStored):
        # Only where the catalog surely has no such batch: after a lost answer the file may already be part of the
        # table.
        staged.delete(warehouse)
        raise
    replayed = batch.id != staged.new.id
    if replayed:  # another machine stored the same request first
        staged.delete(warehouse)
        return Accepted(batch, replayed)
    count_accepted(database, batch)
    return Accepted(batch, notes=staged.notes, changes=staged.changes, set_aside=len(staged.faulty))
