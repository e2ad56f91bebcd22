"""Ingest: an upsert batch validated, made durable, and entered in the catalog (design §2)."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from app.catalog.database import CatalogDatabase
from app.core.errors import (
    Conflict,
    ErrorCode,
    FaultCode,
    Invalid,
    NotFound,
    Resource,
    TooLarge,
    Unavailable,
    UnsupportedMediaType,
    Violation,
    escape_pointer,
    not_found,
)
from app.core.plan.merge_plan import compile_plan
from app.core.plan.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.core.table.history import Batch, NewBatch, Table
from app.storage.layout import Warehouse
from app.storage.staging import delete_batch, has_batch, write_batch

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
MAX_KEY_LENGTH = 255
ALTERED_TRIES = 3


@dataclass(frozen=True)
class Upload:
    """One POST of records: its body, the media type without parameters, its Idempotency-Key."""

    body: bytes
    media_type: str
    idempotency_key: str | None = None

    @property
    def fingerprint(self) -> str:
        """A digest of the request, to tell a retry from another request under the same Idempotency-Key."""
        return hashlib.sha256(self.media_type.encode() + b"\0" + self.body).hexdigest()


def accept_batch(
    database: CatalogDatabase,
    warehouse: Warehouse,
    database_name: str,
    table_name: str,
    upload: Upload,
    max_records: int,
) -> Batch:
    """Validate the records of ``upload`` and stage them; when it returns, the batch is durable.

    A repeated Idempotency-Key with the same request answers the batch of the first. Raises ``Invalid`` with every
    fault, ``Conflict`` for an Idempotency-Key that was used for another request, ``TooLarge`` beyond ``max_records``,
    ``Unavailable`` when the process slept so long that a sweep took the file for garbage.
    """
    _check_idempotency_key(upload.idempotency_key)
    for _ in range(ALTERED_TRIES):
        try:
            return _accept(database, warehouse, (database_name, table_name), upload, max_records)
        except Conflict as error:
            # Read under a schema that was altered meanwhile: it is read again under the new one.
            if error.code is not ErrorCode.COMMIT_CONFLICT:
                raise
    raise Conflict(f"table {table_name!r} is altered again and again; post the batch later")


def _accept(
    database: CatalogDatabase, warehouse: Warehouse, name: tuple[str, str], upload: Upload, max_records: int
) -> Batch:
    with database.reading() as repository:
        table = repository.tables.get(*name)
        earlier = repository.batches.find_by_key(table.id, upload.idempotency_key) if upload.idempotency_key else None
    if earlier is not None:
        return _same_request(earlier, upload)
    decoded = RecordDecoder(compile_plan(table.schema)).decode(_limited(parse_records(upload), max_records))
    return _stage(database, warehouse, table, upload, decoded)


def _check_idempotency_key(key: str | None) -> None:
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        fault = Violation(
            "/Idempotency-Key", FaultCode.BAD_HEADER, f"the Idempotency-Key has {len(key)} characters", "use 1 to 255"
        )
        raise Invalid("the Idempotency-Key is not valid", violations=[fault])


def _same_request(earlier: Batch, upload: Upload) -> Batch:
    if earlier.fingerprint != upload.fingerprint:
        key = upload.idempotency_key
        message = f"Idempotency-Key {key!r} was used for another request (batch {earlier.id}); use a new key"
        raise Conflict(message, code=ErrorCode.IDEMPOTENCY_KEY_REUSED)
    return earlier


def _limited(records: Iterable[object], most: int) -> Iterator[object]:
    for index, record in enumerate(records):
        if index >= most:
            raise TooLarge(f"a batch holds at most {most} records; split the request")
        yield record


def _stage(
    database: CatalogDatabase, warehouse: Warehouse, table: Table, upload: Upload, decoded: DecodedRecords
) -> Batch:
    batch_id = uuid.uuid4().hex
    file, size = _write(database, warehouse, table, batch_id, decoded)
    new = NewBatch(
        batch_id, table.schema_id, file, len(decoded), decoded.ignored, size, upload.fingerprint, upload.idempotency_key
    )
    try:
        with database.transaction() as repository:
            batch = repository.batches.add(table.id, new)
            # A sweep holds the table's lock, too: what is there now stays, for a batch names it.
            if batch.id == batch_id and not has_batch(warehouse, table.id, file):
                raise _swept()
    except (Conflict, NotFound):
        # Only where the catalog surely has no such batch: after a lost answer the file may already be part of the
        # table.
        delete_batch(warehouse, table.id, file)
        raise
    if batch.id != batch_id:
        # The same request came twice at once and the other one was first.
        delete_batch(warehouse, table.id, file)
    return batch


def _write(
    database: CatalogDatabase, warehouse: Warehouse, table: Table, batch_id: str, decoded: DecodedRecords
) -> tuple[str, int]:
    try:
        return write_batch(warehouse, table.id, batch_id, table.schema, decoded)
    except FileNotFoundError as error:
        with database.reading() as repository:
            dropped = repository.tables.find(table.id) is None
        if dropped:  # and its folder with it, while the file was written
            message = f"the table {table.full_name} was dropped while the batch was written"
            raise not_found(Resource.TABLE, table.name, message) from error
        raise _swept() from error


def _swept() -> Unavailable:
    return Unavailable(
        "the batch took so long to be stored that its file was swept; nothing was accepted, post it again"
    )


def parse_records(upload: Upload) -> Iterable[object]:
    """The records of the body, not yet checked against a schema. Raises ``Invalid`` or ``UnsupportedMediaType``."""
    reader = READERS.get(upload.media_type)
    if reader is not None:
        return reader(upload.body)
    message = f"cannot read {upload.media_type!r}; send {JSON} or {NDJSON[0]}"
    raise UnsupportedMediaType(message)


def parse_json(body: bytes) -> object:
    """The JSON of a body, numbers exact. Raises ``Invalid``."""
    try:
        return _loads(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable("", error) from error


def _json_records(body: bytes) -> Iterable[object]:
    parsed = parse_json(body)
    records = parsed.get("records") if isinstance(parsed, dict) else None
    if not isinstance(parsed, dict) or not isinstance(records, list):
        fault = Violation(
            "/records", FaultCode.MISSING, "the body has no list of records", 'send {"records": [{…}, …]}'
        )
        raise Invalid("the body is not a batch of records", violations=[fault])
    unknown = [name for name in parsed if name != "records"]
    if unknown:
        faults = [
            Violation(f"/{escape_pointer(name)}", FaultCode.UNKNOWN_MEMBER, f"unknown member {name!r}", "remove it")
            for name in unknown[:REPORTED_VIOLATIONS]
        ]
        raise Invalid("the body is not a batch of records", violations=faults, total_violations=len(unknown))
    return records


def _ndjson_records(body: bytes) -> Iterable[object]:
    """One record a line; blank lines are skipped. Lines that are no JSON are reported all together."""
    records: list[object] = []
    faults: list[Violation] = []
    total = 0
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            records.append(_loads(line))
        except (ValueError, RecursionError) as error:
            total += 1
            row = len(records)
            records.append(None)
            if len(faults) < REPORTED_VIOLATIONS:
                message = f"line {number} is not JSON: {error}"
                faults.append(
                    Violation(f"/records/{row}", FaultCode.NOT_JSON, message, "send one JSON object a line", row)
                )
    if total:
        code = ErrorCode.INVALID_RECORDS
        raise Invalid(
            f"{total} line(s) are not JSON; nothing was stored", code=code, violations=faults, total_violations=total
        )
    return records


def _unreadable(pointer: str, error: Exception) -> Invalid:
    message = "the body is nested too deeply" if isinstance(error, RecursionError) else f"the body is not JSON: {error}"
    return Invalid(message, violations=[Violation(pointer, FaultCode.NOT_JSON, message, "send JSON in UTF-8")])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent with too many digits") from None


def _unchanged(parsed: dict[str, Any]) -> dict[str, Any]:
    """A call of Python's for each object: without any, other threads would wait until the last byte is parsed."""
    return parsed


def _loads(text: bytes) -> Any:
    """JSON with exact numbers: those with a fraction or exponent become Decimal; NaN and Infinity are refused."""
    return json.loads(
        text.decode("utf-8"), object_hook=_unchanged, parse_float=_decimal, parse_constant=_refuse_constant
    )


# What reads the records of a body, by its media type.
READERS: Mapping[str, Callable[[bytes], Iterable[object]]] = {
    JSON: _json_records,
    **dict.fromkeys(NDJSON, _ndjson_records),
}
