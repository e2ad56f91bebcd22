"""The records of a request for one table, in a staging file that the catalog does not name yet."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from app.catalog.database import CatalogDatabase
from app.core.errors import FaultCode, Invalid, Resource, Violation, not_found
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.faulty_events import FaultyEvent
from app.core.plan.records.record_decoder import Note
from app.core.plan.records.unknown_columns import FoundColumns
from app.core.table.history import Batch, NewBatch, Table
from app.files.layout import Warehouse
from app.files.writable import writing
from app.services.batches.group_commit import swept
from app.storage.ingest.pieces import Notes, Piece, decoded_pieces
from app.storage.staging.staging import Staged, delete_batch, write_pieces
from app.telemetry.entries import Counted

MAX_KEY_LENGTH: Final = 255


class Request(Protocol):
    """The metadata that is stored with the records of a request."""

    @property
    def idempotency_key(self) -> str | None:
        """The Idempotency-Key."""

    @property
    def fingerprint(self) -> str:
        """A digest of the request."""

    @property
    def sender(self) -> str:
        """The name of the caller's token, empty if none was needed."""


@dataclass(frozen=True)
class StagedUpload:
    """A batch that is not in the catalog yet; ``notes`` count the warnings about its records. The schema ``changes``
    (Paimon's JSON) come first: ``table`` already includes them. Its ``faulty`` events are set aside.
    """

    table: Table
    new: NewBatch
    notes: Mapping[Note, int]
    changes: Sequence[Mapping[str, Any]] = ()
    faulty: Sequence[FaultyEvent] = ()

    def delete(self, warehouse: Warehouse) -> None:
        """Delete the staging file."""
        delete_batch(warehouse, self.table.id, self.new.file)


def staged_upload(
    database: CatalogDatabase,
    warehouse: Warehouse,
    table: Table,
    request: Request,
    pieces: Iterable[Piece],
    unknown: FoundColumns | None = None,
) -> StagedUpload:
    """Write the records of ``request`` for ``table`` to a staging file; ``unknown`` are the columns that are left out.

    Raise what reading the ``pieces`` raises, ``NotStored``, ``NotFound`` if the table is dropped meanwhile, and
    ``Unavailable`` if the file was garbage-collected.
    """
    batch_id = uuid.uuid4().hex
    counted = Notes([field.column.name for field in compile_plan(table.schema).order.fields])
    staged = _written(database, warehouse, table, batch_id, pieces, counted)
    new = NewBatch(
        id=batch_id,
        schema_id=table.schema_id,
        file=staged.file,
        records=staged.records,
        ignored=staged.ignored,
        size_bytes=staged.size,
        fingerprint=request.fingerprint,
        idempotency_key=request.idempotency_key,
        digest=staged.digest,
        accepted_by=request.sender,
        ignored_columns=(unknown and unknown.shown) or None,
    )
    return StagedUpload(table, new, counted.counts)


def _written(
    database: CatalogDatabase,
    warehouse: Warehouse,
    table: Table,
    batch_id: str,
    pieces: Iterable[Piece],
    counted: Notes,
) -> Staged:
    try:
        with writing():
            return write_pieces(
                warehouse, table.id, batch_id, table.schema, counted(decoded_pieces(pieces)), sync=False
            )
    except FileNotFoundError as error:
        with database.reading() as repository:
            dropped = repository.tables.find(table.id) is None
        if dropped:  # and its folder with it, while the file was written
            message = f"the table {table.full_name} was dropped while the batch was written"
            raise not_found(Resource.TABLE, table.name, message) from error
        raise swept() from error


def count_accepted(database: CatalogDatabase, batch: Batch) -> None:
    """Count a batch in the metrics."""
    database.metrics.count(Counted.ACCEPTED_BATCHES)
    database.metrics.count(Counted.ACCEPTED_RECORDS, amount=batch.records)
    database.metrics.count(Counted.ACCEPTED_BYTES, amount=batch.size_bytes)


def check_idempotency_key(key: str | None) -> None:
    """Raise ``Invalid`` if the Idempotency-Key is too long or empty."""
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        fault = Violation(
            "/Idempotency-Key", FaultCode.BAD_HEADER, f"the Idempotency-Key has {len(key)} characters", "use 1 to 255"
        )
        raise Invalid("the Idempotency-Key is not valid", violations=[fault])
