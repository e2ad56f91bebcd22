"""A file uploaded as one batch; its faults are shown in their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from starlette.responses import Response

from app.console.site.tabs import address_of_table
from app.console.site.visits import Page, Visit, new_once
from app.console.table_pages.batches import sent_batch
from app.console.table_pages.table import table_name, table_page
from app.core.access import Role
from app.core.errors import Invalid, KeyfoldError
from app.core.file_names import CODINGS, ENDINGS, media_type_and_coding
from app.http.kinds import status_of
from app.http.parts import Parts
from app.http.uploads import ROOM, UPLOAD_FORM_PATH, stage
from app.services.batches.batches import Upload
from app.services.bodies.formats import ARROW, CSV, JSON, NDJSON, PARQUET, EmptyFields
from app.services.bodies.record_texts import record_texts

MOST_FAULTS: Final = 200


@dataclass(frozen=True)
class FileKind:
    """A format of files: its name on the page, and its media type."""

    words: str
    media_type: str


KINDS: Final[Mapping[str, FileKind]] = {
    "csv": FileKind("CSV", CSV),
    "ndjson": FileKind("NDJSON, a record a line", NDJSON[0]),
    "json": FileKind('JSON, {"records": […]}', JSON),
    "parquet": FileKind("Parquet", PARQUET),
    "arrow": FileKind("Arrow, its streaming format", ARROW),
}
_ENDINGS: Final = (*(ending for kind in KINDS.values() for ending in ENDINGS[kind.media_type]), *CODINGS)


def show_upload(visit: Visit) -> Response:
    """Show the form, and what became of the file that was sent before."""
    return _page(visit)


def send(visit: Visit) -> Response:
    """Stage the file, all or nothing."""
    try:
        upload = _upload(visit)
    except Invalid as error:
        return _page(visit, error=error)
    try:
        batch = stage(visit.parts, table_name(visit), upload).batch
    except KeyfoldError as error:
        if status_of(error) >= 500:
            raise
        return _page(visit, error=error, texts=_texts(upload, error))
    return visit.go(address_of_table(visit, f"/upload?sent={batch.id}"))


def _upload(visit: Visit) -> Upload:
    """Return the file as an upload. Raise ``Invalid`` if there is none, or if its format is not known."""
    if visit.file is None:
        raise Invalid("choose a file")
    media_type, coding = media_type_and_coding(visit.file.name)
    guessed = next((kind for kind, file_kind in KINDS.items() if file_kind.media_type == media_type), "")
    kind = KINDS.get(visit.form.get("kind", "") or guessed)
    if kind is None:
        raise Invalid(f"the name {visit.file.name[:100]!r} does not say what is in the file: choose its format")
    empty = EmptyFields.ABSENT if kind.media_type == CSV and visit.form.get("empty") == "absent" else EmptyFields.NULL
    upload = Upload(
        visit.file.content,
        kind.media_type,
        encoding=coding,
        room=visit.request.scope[ROOM],
        empty_fields=empty,
        sender=visit.grant.name,
    )
    return replace(upload, idempotency_key=visit.once(upload.fingerprint[:32]))


def _texts(upload: Upload, error: KeyfoldError) -> dict[int, str]:
    """Return the texts of the rows with faults, by row; empty for a compressed body."""
    rows = {violation.row for violation in error.violations[:MOST_FAULTS] if violation.row is not None}
    if upload.encoding:
        return {}
    try:
        return record_texts(upload.body, upload.media_type, rows)
    except (ValueError, RecursionError, KeyfoldError):  # it is no such body: that is what is wrong with it
        return {}


def _page(visit: Visit, *, error: KeyfoldError | None = None, texts: Mapping[int, str] | None = None) -> Response:
    parts: Parts = visit.parts
    with parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
    violations = error.violations[:MOST_FAULTS] if error else ()
    return table_page(
        visit,
        "upload",
        status=200 if error is None else status_of(error),
        error=error,
        faults_of_rows=[
            (violation, (texts or {}).get(violation.row if violation.row is not None else -1))
            for violation in violations
        ],
        total=max(error.total_violations or 0, len(error.violations)) if error else 0,
        sent=sent_batch(visit, table.id, visit.param("sent")),
        once=new_once(),
        chosen={name: visit.form.get(name, "") for name in ("kind", "empty")},
        file_kinds=KINDS,
        accept=",".join(_ENDINGS),
        most_bytes=parts.settings.max_body_bytes,
        absent_unchanged=table.schema.absent_unchanged,
        columns=table.schema.columns,
        path=address_of_table(visit),
    )


PAGES: Final = (
    Page("GET", UPLOAD_FORM_PATH, show_upload, Role.WRITE),
    Page("POST", UPLOAD_FORM_PATH, send, Role.WRITE),
)
