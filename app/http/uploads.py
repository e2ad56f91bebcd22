"""How records come in, from wherever they are sent."""

from __future__ import annotations

from app.core.plan.bounds import Bounds
from app.http.parts import Parts
from app.services.ingest import Accepted, Change, accept_batch
from app.services.known_rows import known_rows
from app.settings import Settings


def bounds_of(settings: Settings) -> Bounds:
    """How much one batch may hold."""
    return Bounds(
        settings.max_batch_records,
        settings.max_body_bytes,
        values=settings.max_batch_values,
        record_bytes=settings.max_record_bytes,
        ratio=settings.max_decompression_ratio,
    )


def stage(parts: Parts, name: tuple[str, str], change: Change) -> Accepted:
    """The batch that ``change`` of the table ``name`` becomes, durable by now. Raises as ``accept_batch`` does."""
    known = known_rows(parts.views, parts.images, name)
    bounds = bounds_of(parts.settings)
    return accept_batch(parts.database, parts.warehouse, *name, change, bounds, parts.commits, known, parts.admission)
