"""Uploads, read as ``POST T/batches`` reads them; what is accepted is staged, and answered by scans and lookups."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.history import Batch, BatchState, Table
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.services.batches.batches import Change, Upload
from app.services.batches.row_changes import RowChange, RowMethod
from app.services.bodies.change_events import EVENT_FORMATS
from app.services.bodies.encodings import ENCODINGS, decoded
from app.services.bodies.formats import ARROW, CLOUDEVENTS, CLOUDEVENTS_BATCH, CSV, JSON, NDJSON, PARQUET, EmptyFields
from app.services.bodies.sent_files import read_form
from app.services.rows.many_lookups import read_keys, rows_as_json
from app.services.rows.scans import NDJSON as ROWS
from app.services.rows.scans import WRITERS, read_scan, written
from app.services.rows.views import View
from app.storage.images import Images
from app.storage.ingest.pieces import decoded_pieces
from app.storage.staging.spool import Room
from app.storage.staging.staged_index import StagedIndex, load_batch
from app.storage.staging.staging import Staged, write_pieces
from lab.fuzz.tables import TABLES
from lab.fuzz.target import Run, Target, chosen

BOUNDS = Bounds(1000, 2**22)
AT = datetime(2026, 1, 1, tzinfo=UTC)
_LOOKED_UP = 20


@contextmanager
def serving(changes: Callable[[bytes], tuple[TableSchema, Change]]) -> Iterator[Run]:
    """Stages what ``changes`` reads of an input, and reads it again in every way."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Warehouse(folder)
        images = Images(Path(folder, "images"), warehouse)

        def run(body: bytes) -> None:
            schema, change = changes(body)
            pieces = change.pieces(RecordDecoder(compile_plan(schema)), BOUNDS)
            staged = write_pieces(warehouse, "t", "b", schema, decoded_pieces(pieces), sync=False)
            answer(images, schema, batch_of(staged))

        yield run
        images.close()


def batch_of(staged: Staged) -> Batch:
    """A staged batch as the catalog has it."""
    attributes = (staged.file, staged.records, staged.ignored, staged.size, "", None, AT, None, None, staged.digest)
    return Batch("b", "t", 1, BatchState.STAGED, 0, *attributes)


def answer(images: Images, schema: TableSchema, batch: Batch) -> None:
    """Scans and lookups of the batch, which must say the same."""
    table = Table("t", "shop", "orders", 0, schema, None, AT, AT)
    index = StagedIndex().extended(load_batch(images.warehouse, batch, schema))
    view = View(table, compile_plan(schema), None, {0: schema}, (batch,), (), index, 1)
    texts = {name: b"".join(written(images.warehouse, read_scan(view, None, []), name)) for name in WRITERS}
    rows = [json.loads(line) for line in texts[ROWS].splitlines()][:_LOOKED_UP]
    request = read_keys(view, [{name: row[name] for name in schema.primary_key} for row in rows])
    assert [row["row"] for row in json.loads(rows_as_json(images, request))["rows"]] == rows


def _upload(media_types: Sequence[str], body: bytes) -> tuple[TableSchema, Change]:
    """The first byte says which table, the second which media type, where there are several."""
    schema, body = chosen(body, [*TABLES.values()])
    media_type, body = chosen(body, media_types) if len(media_types) > 1 else (media_types[0], body)
    return schema, Upload(body, media_type)


def _csv(body: bytes) -> tuple[TableSchema, Change]:
    schema, body = chosen(body, [*TABLES.values()])
    empty = EmptyFields.ABSENT if schema.absent_unchanged else EmptyFields.NULL
    return schema, Upload(body, CSV, empty_fields=empty)


_EVENTS = [
    *((JSON, events) for events in EVENT_FORMATS),
    *((NDJSON[0], events) for events in EVENT_FORMATS),
    (CLOUDEVENTS, None),
    (CLOUDEVENTS_BATCH, None),
]


def _events(body: bytes) -> tuple[TableSchema, Change]:
    schema, body = chosen(body, [*TABLES.values()])
    (media_type, events), body = chosen(body, _EVENTS)
    return schema, Upload(body, media_type, events=events)


def _row(body: bytes) -> tuple[TableSchema, Change]:
    """A line with the key, then the body of a PUT, PATCH or DELETE."""
    schema, body = chosen(body, [*TABLES.values()])
    method, body = chosen(body, [*RowMethod])
    key, _, rest = body.partition(b"\n")
    return schema, RowChange((key.decode("utf-8", "replace"),), rest, method)


_CODINGS = [*ENCODINGS, "gzip, zstd", "zstd, gzip"]


def _unfold(body: bytes) -> None:
    coding, body = chosen(body, _CODINGS)
    decoded(body, coding, BOUNDS, Room())


def _form(body: bytes) -> None:
    """A form with a file, whose parts are separated by ``a``."""
    sent = read_form(body, "multipart/form-data; boundary=a", Room())
    assert sent.file is None or isinstance(sent.file.name, str)


def _words(tables: Iterable[TableSchema]) -> tuple[bytes, ...]:
    names = {name for table in tables for name in table.declared_names}
    values = (
        "NaN",
        "-Infinity",
        "1e400",
        "9223372036854775808",
        "0001-01-01",
        "24:00:00",
        "9999-12-31T23:59:59.9999999Z",
    )
    return tuple(f'"{one}"'.encode() for one in (*sorted(names), "_kind", "-D", "+U", "records", *values))


_JSON_WORDS = _words(TABLES.values())
_EVENT_WORDS = tuple(
    f'"{one}"'.encode() for one in ("payload", "schema", "before", "after", "op", "data", "old", "type", "fields")
)

BODIES = {
    "json": Target(lambda: serving(partial(_upload, [JSON])), words=_JSON_WORDS),
    "ndjson": Target(lambda: serving(partial(_upload, [*NDJSON[:1]])), words=_JSON_WORDS),
    "csv": Target(lambda: serving(_csv), words=(b'"', b'""', b"\r\n", b"_kind", b"id,", b"+I", b"\\N")),
    "arrow": Target(lambda: serving(partial(_upload, [ARROW]))),
    "parquet": Target(lambda: serving(partial(_upload, [PARQUET]))),
    "events": Target(lambda: serving(_events), words=(*_JSON_WORDS, *_EVENT_WORDS)),
    "row": Target(lambda: serving(_row), words=_JSON_WORDS),
    "codings": Target.of(_unfold),
    "forms": Target.of(_form),
}
