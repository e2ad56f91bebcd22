"""One request for several tables of a database: a batch for each, all or none of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from app.catalog.batches.batches import key_reused
from app.catalog.database import CatalogDatabase
from app.core.access import Grant, Role
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
from app.core.table.history import Batch, Table
from app.core.table.schema_bounds import SchemaBounds
from app.files.layout import Warehouse
from app.services.batches.admission import Admission
from app.services.batches.batches import ALTERED_TRIES, Upload, under_way
from app.services.batches.group_commit import GroupCommit
from app.services.batches.receiver import Receiver, alters, sets_aside
from app.services.batches.staged_uploads import StagedUpload, check_idempotency_key, count_accepted
from app.services.bodies.bodies_of_tables import Part, Sources, Split, faults_of, split_events, split_records
from app.services.bodies.encodings import decoded
from app.services.bodies.formats import CLOUDEVENTS, CLOUDEVENTS_BATCH, JSON, NDJSON, event_format
from app.services.rows.known_rows import KnownRows, no_rows
from app.storage.ingest.pieces import Piece
from app.telemetry.traces import span


class UnknownTables(StrEnum):
    """Values of ``unknownTables``: what to do with records and events that no table takes."""

    REFUSE = "refuse"
    SKIP = "skip"


@dataclass(frozen=True)
class UploadOfTables:
    """One POST of records for several tables: the upload, and its sender."""

    upload: Upload
    grant: Grant
    unknown: UnknownTables = UnknownTables.REFUSE

    @property
    def idempotency_key(self) -> str | None:
        """The Idempotency-Key, that of every batch."""
        return self.upload.idempotency_key

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the whole request, that of every batch."""
        return hashlib.sha256(f"tables;{self.unknown}\0{self.upload.fingerprint}".encode()).hexdigest()

    @property
    def sender(self) -> str:
        """The name of the caller's token."""
        return self.upload.sender

    @property
    def unknown_columns(self) -> UnknownColumns:
        """The treatment of columns that a table does not have."""
        return self.upload.unknown_columns

    @property
    def on_fault(self) -> OnFault:
        """The treatment of events with faults."""
        return self.upload.on_fault

    @property
    def schema_bounds(self) -> SchemaBounds:
        """How large a table may become."""
        return self.upload.schema_bounds

    def split(self, bounds: Bounds, sources: Sources) -> Split:
        """Return the body by table. Raise ``Invalid``, ``TooLarge``, ``UnsupportedMediaType``."""
        sent, skip = self.upload, self.unknown is UnknownTables.SKIP
        how = event_format(sent.media_type, sent.events)
        if how is None and sent.media_type != JSON:
            readable = ", ".join((JSON, CLOUDEVENTS, CLOUDEVENTS_BATCH, f"{NDJSON[0]} with ?format="))
            raise UnsupportedMediaType(f"cannot read {sent.media_type[:100]!r} for several tables; send {readable}")
        sent.check_on_fault(how)
        content = sent.unmarked(decoded(sent.body, sent.encoding, bounds, sent.room))
        if how is None:
            return split_records(content, bounds, sources, skip=skip)
        lines = sent.media_type in NDJSON
        return split_events(how, sent.unavailable, content, bounds, sources, lines=lines, skip=skip)


@dataclass(frozen=True)
class AcceptedBatch:
    """The batch of one table; ``notes``, ``changes`` and ``set_aside`` are as those of ``Accepted``."""

    table: str
    batch: Batch
    notes: Mapping[Note, int] = field(default_factory=dict)
    changes: Sequence[Mapping[str, Any]] = ()
    set_aside: int = 0


@dataclass(frozen=True)
class AcceptedBatches:
    """The batches of a request. ``skipped`` counts, by name, the records that no table takes; ``no_rows`` counts the
    events that are not about a row.
    """

    batches: Sequence[AcceptedBatch]
    replayed: bool = False
    skipped: Mapping[str, int] = field(default_factory=dict)
    no_rows: int = 0


@dataclass(frozen=True)
class TablesIntake:
    """Accepts requests for several tables; its members are the arguments of ``accept_batch``. ``known`` looks up the
    rows of a table by its name.
    """

    database: CatalogDatabase
    warehouse: Warehouse
    bounds: Bounds
    commits: GroupCommit
    known: Callable[[tuple[str, str]], KnownRows] = lambda _: no_rows
    admission: Admission | None = None

    def accept(self, name: str, upload: UploadOfTables) -> AcceptedBatches:
        """Stage the records of ``upload`` for tables of the database ``name``, in one transaction of the catalog. When
        it returns, all of them are durable; when it raises, none is stored.

        A repeated Idempotency-Key with the same request answers the batches of the first. Raise as ``accept_batch``,
        with the faults of all tables, and ``Forbidden`` for a table outside the token's scope.
        """
        check_idempotency_key(upload.idempotency_key)
        with span("batches", {"database": name}):
            for _ in range(ALTERED_TRIES):
                try:
                    return self._accept(name, upload)
                except Conflict as error:
                    if error.code is not ErrorCode.COMMIT_CONFLICT:
                        raise
        raise Conflict(f"tables of {name!r} are altered again and again; post the request later", retry_seconds=1)

    def _accept(self, name: str, upload: UploadOfTables) -> AcceptedBatches:
        key = upload.idempotency_key
        with self.database.reading() as repository:
            tables = {table.name: table for table in repository.tables.every_one(name)}
            earlier = repository.batches.with_key(name, key) if key else []
        if earlier:
            return _replayed(upload, tables, earlier)
        with self.commits.keys.taking(name, key) as free:
            if not free:
                raise under_way(key)
            sources = {table.name: table.schema.parsed["events.source"] for table in tables.values()}
            split = upload.split(self.bounds, sources)
            # Tables that do not exist, too: a token must not find out which tables exist outside its scope.
            needed = Role.ADMIN if upload.unknown_columns is UnknownColumns.ADD else Role.WRITE
            for table in (*split.parts, *sorted(split.absent)):
                upload.grant.check_table(needed, name, table)
            with ExitStack() as admitted:
                for table, part in split.parts.items():
                    if self.admission is not None:
                        admitted.enter_context(self.admission.admitted(tables[table], part.size))
                return self._stored(upload, tables, split)

    def _stored(self, upload: UploadOfTables, tables: Mapping[str, Table], split: Split) -> AcceptedBatches:
        with self._staged(upload, tables, split) as staged:
            news = {staged_upload.table.id: staged_upload.new for staged_upload in staged}
            alter, settle = alters(staged, upload), sets_aside(staged, upload)
            batches = self.commits.enter_together(news, alter, settle) if news else []
            replayed = any(
                batch.id != staged_upload.new.id for batch, staged_upload in zip(batches, staged, strict=True)
            )
            if replayed:  # another machine stored the same request first
                for staged_upload in staged:
                    staged_upload.delete(self.warehouse)
        accepted = [
            AcceptedBatch(staged_upload.table.name, batch)
            if replayed
            else AcceptedBatch(
                staged_upload.table.name, batch, staged_upload.notes, staged_upload.changes, len(staged_upload.faulty)
            )
            for staged_upload, batch in zip(staged, batches, strict=True)
        ]
        for batch in () if replayed else batches:
            count_accepted(self.database, batch)
            if self.admission is not None:
                self.admission.accepted(batch.table_id, batch.records, batch.size_bytes)
        return AcceptedBatches(accepted, replayed, split.skipped, split.no_rows)

    @contextmanager
    def _staged(
        self, upload: UploadOfTables, tables: Mapping[str, Table], split: Split
    ) -> Iterator[Sequence[StagedUpload]]:
        """Yield the staging files of all tables; they are deleted if the catalog certainly does not name them. Raise
        ``Invalid`` with the faults of all tables.
        """
        staged: list[StagedUpload] = []
        named = False
        try:
            for table, part in split.parts.items():
                try:
                    staged.append(self._one(upload, tables[table], part))
                except Invalid as error:
                    _add_faults(split, error, table, part)
            if split.total:
                raise faults_of(split)
            self.bounds.check_records(sum(staged_upload.new.records for staged_upload in staged))
            named = True
            yield staged
        except BaseException as error:
            # After a lost answer of the catalog the files may already be part of the tables.
            if not named or isinstance(error, (Conflict, Invalid, KeyReused, NotFound, NotStored)):
                for staged_upload in staged:
                    staged_upload.delete(self.warehouse)
            raise

    def _one(self, upload: UploadOfTables, table: Table, part: Part) -> StagedUpload:
        def read(decoder: RecordDecoder) -> Iterable[Piece]:
            return part.pieces(decoder, self.bounds.of_table(len(decoder.plan.schema.declared_names)))

        receiver = Receiver(self.database, self.warehouse, table, self.known((table.database, table.name)))
        return receiver.staged(upload, read)


def _replayed(upload: UploadOfTables, tables: Mapping[str, Table], earlier: Sequence[Batch]) -> AcceptedBatches:
    """Return the batches of the earlier request with the same Idempotency-Key. Raise ``KeyReused``, ``Forbidden``."""
    names = {table.id: table for table in tables.values()}
    for batch in earlier:
        if batch.fingerprint != upload.fingerprint:
            raise key_reused(batch)
        upload.grant.check_table(Role.WRITE, names[batch.table_id].database, names[batch.table_id].name)
    return AcceptedBatches([AcceptedBatch(names[batch.table_id].name, batch) for batch in earlier], replayed=True)


def _add_faults(split: Split, error: Invalid, table: str, part: Part) -> None:
    """Add the faults that one table's records have."""
    faults = error.violations or [Violation("", FaultCode.UNREADABLE_BODY, error.message)]
    for fault in faults:
        split.fault(replace(fault, pointer=f"{part.pointer}{fault.pointer}", table=table))
    split.total += max(0, error.total_violations - len(faults))
