"""Staging of uploads, for the API and the console."""

from __future__ import annotations

from typing import Final

from app.core.plan.records.bounds import Bounds
from app.http.parts import Parts
from app.services.batches.batches import Accepted, Change, accept_batch
from app.services.batches.batches_of_tables import AcceptedBatches, TablesIntake, UploadOfTables
from app.services.batches.set_aside_events import RetriedEvents
from app.services.rows.known_rows import KnownRows, known_rows
from app.settings import Settings

# Members of the scope: the body of an upload, and the disk space for the decompressed body.
SPOOLED: Final = "keyfold.body"
ROOM: Final = "keyfold.room"
# The forms of the console that need no sign-in: they carry at most a token.
SIGN_PATHS: Final = ("/console/sign-in", "/console/sign-out")
# The forms of the console that bring records, which may be larger than others: of one row, and with a file.
_TABLE_PAGE: Final = "/console/tables/{database}/{table}"
ROW_FORM_PATHS: Final = (f"{_TABLE_PAGE}/row/new", f"{_TABLE_PAGE}/row/edit", f"{_TABLE_PAGE}/row/delete")
UPLOAD_FORM_PATH: Final = f"{_TABLE_PAGE}/upload"


def bounds_of(settings: Settings) -> Bounds:
    """Return the bounds of one batch."""
    return Bounds(
        settings.max_batch_records,
        settings.max_body_bytes,
        values=settings.max_batch_values,
        record_bytes=settings.max_record_bytes,
        ratio=settings.max_decompression_ratio,
    )


def stage(parts: Parts, name: tuple[str, str], change: Change) -> Accepted:
    """Stage ``change`` for the table ``name`` and return its durable batch. Raise as ``accept_batch`` does."""
    known = known_rows(parts.views, parts.images, name)
    bounds = bounds_of(parts.settings)
    return accept_batch(parts.database, parts.warehouse, *name, change, bounds, parts.commits, known, parts.admission)


def stage_retried(parts: Parts, retried: RetriedEvents) -> Accepted:
    """Stage events that a table has set aside again, and return their batch. Raise as ``accept_batch`` and
    ``RetriedEvents.events`` do.
    """
    known, bounds = known_rows(parts.views, parts.images, retried.name), bounds_of(parts.settings)
    return accept_batch(
        parts.database,
        parts.warehouse,
        *retried.name,
        retried,
        bounds,
        parts.commits,
        known,
        parts.admission,
        retried.settles,
    )


def stage_tables(parts: Parts, database: str, upload: UploadOfTables) -> AcceptedBatches:
    """Stage ``upload`` for tables of the ``database`` and return the durable batches. Raise as ``TablesIntake.accept``
    does.
    """

    def known(name: tuple[str, str]) -> KnownRows:
        return known_rows(parts.views, parts.images, name)

    intake = TablesIntake(
        parts.database, parts.warehouse, bounds_of(parts.settings), parts.commits, known, parts.admission
    )
    return intake.accept(database, upload)
