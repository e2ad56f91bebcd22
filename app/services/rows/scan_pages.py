"""Pages of a scan, and counts: each page names the place where the next one begins (docs/decisions/0021)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, Resource, Violation, not_found
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Batch, BatchState, Table
from app.files.layout import Warehouse
from app.services.rows.scan_room import ScanPlace
from app.services.rows.scans import BEGINNING, WRITERS, Part, Place, Scan, parts
from app.services.rows.views import View, schemas_of
from app.storage.staging.staged_index import StagedIndex, load_batch

MOST_ROWS = 100_000  # of a page
MOST_BYTES = 64 * 2**20  # of a page, about; one that would be larger ends before
_LONGEST_TOKEN = 500
_LEAST_CELL = 4  # bytes of a value in memory, a null included
_LARGEST = 2**63 - 1
_MOST_BATCHES = 100_000  # that a token can be about: all of them are looked up


@dataclass(frozen=True)
class PageToken:
    """Where a page begins and of what: snapshot and schema of a table by number, and the staged batches that were
    folded on top: ``staged`` of the numbers ``first`` to ``last``, which is the last that was accepted. ``filters`` is
    their digest.
    """

    table_id: str
    snapshot_id: int
    schema_id: int
    first: int
    last: int
    staged: int
    filters: str
    place: Place

    @property
    def text(self) -> str:
        """As clients send it back."""
        told = [*(getattr(self, name) for name in _MEMBERS), *self.place]
        return base64.urlsafe_b64encode(json.dumps(told, separators=(",", ":")).encode()).decode().rstrip("=")


_MEMBERS = ("table_id", "snapshot_id", "schema_id", "first", "last", "staged", "filters")
_TYPES = (str, int, int, int, int, int, str, int, int, int)


def read_token(text: str) -> PageToken:
    """The token whose text it is. Raises ``Invalid`` for one that no page gave."""
    try:
        told = json.loads(base64.urlsafe_b64decode(text[:_LONGEST_TOKEN] + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError) as error:
        raise _no_token(text) from error
    if not isinstance(told, list) or [type(one) for one in told] != list(_TYPES):
        raise _no_token(text)
    numbers = [one for one in told if isinstance(one, int)]
    if any(not -(2**63) <= one <= _LARGEST for one in numbers) or min(*told[1:6], told[7], told[9]) < 0:
        raise _no_token(text)
    table_id, snapshot, schema, first, last, staged, filters, *place = told
    return PageToken(table_id, snapshot, schema, first, last, staged, filters, Place(*place))


def _no_token(text: str) -> Invalid:
    fix = "send one that an answer of this route gave for this table and these filters, or none"
    message = f"{text[:50]!r} is no page token of this scan"
    return Invalid(message, violations=[Violation("/pageToken", FaultCode.NOT_A_POSITION, message, fix)])


def loaded(warehouse: Warehouse, view: View, place: ScanPlace) -> View:
    """The view with all its staged records in memory, for which ``place`` must have room.

    Raises ``StagingFull``, and ``DamagedFile``; ``missing`` also where a batch has left meanwhile.
    """
    index = view.index
    for batch in view.unread:
        schema = view.schemas[batch.schema_id]
        before = max(batch.size_bytes, _LEAST_CELL * len(schema.columns) * batch.records)
        place.take_staged(before)
        read = load_batch(warehouse, batch, schema)
        place.take_staged(max(0, read.size_bytes - before))
        index = index.extended(read)
    return replace(view, index=index, unread=())


def pinned_view(repository: Repository, table: Table, text: str) -> tuple[View, Place]:
    """What the scan sees that the token goes on with, and where.

    Raises ``Invalid``, and ``NotFound`` when the snapshot has expired or a staged batch was withdrawn.
    """
    token = read_token(text)
    if token.table_id != table.id:
        raise _no_token(text)
    snapshot = repository.snapshots.get(table.id, token.snapshot_id) if token.snapshot_id else None
    batches = _staged(repository, table, token)
    if token.schema_id > table.schema_id:
        raise _no_token(text)
    schema = (
        table.schema if token.schema_id == table.schema_id else repository.tables.schema_at(table.id, token.schema_id)
    )
    shown = replace(table, schema_id=token.schema_id, schema=schema)
    schemas = schemas_of(repository, shown, snapshot, batches)
    unread = tuple(batch for batch in batches if batch.records)
    view = View(shown, compile_plan(schema), snapshot, schemas, batches, unread, StagedIndex(), token.last)
    return view, token.place


def _staged(repository: Repository, table: Table, token: PageToken) -> tuple[Batch, ...]:
    if not token.staged:
        return ()
    if not token.staged <= token.last - token.first + 1 <= _MOST_BATCHES:
        raise _no_token(token.text)
    found = repository.batches.page(table.id, after_number=token.first - 1, limit=token.last - token.first + 1)
    kept = tuple(batch for batch in found if batch.state is not BatchState.DELETED)
    if len(kept) != token.staged:
        raise gone(token.snapshot_id)
    return kept


def gone(snapshot_id: int | None) -> Exception:
    """The refusal of a scan that cannot go on as it began."""
    message = "staged batches that the scan began with are gone; begin it again, without pageToken"
    return not_found(Resource.SNAPSHOT, str(snapshot_id or 0), message)


@dataclass(frozen=True)
class ScanPage:
    """Rows of a scan, each part with its partition's number, and the token of the next page; None on the last one."""

    scan: Scan
    parts: Sequence[tuple[int, Part]]
    next_token: str | None

    def body(self, media_type: str) -> bytes:
        """The rows as that type has them."""
        batches = [part.batch for _, part in self.parts]
        return b"".join(WRITERS[media_type].write(self.scan.columns, batches, self.scan.integers))


def read_page(
    warehouse: Warehouse, scan: Scan, filters: Sequence[str], limit: int, start: Place = BEGINNING
) -> ScanPage:
    """At most ``limit`` rows from ``start`` on; fewer, but one, where they would take more than ``MOST_BYTES``."""
    taken: list[tuple[int, Part]] = []
    rows = size = 0
    for number, part in parts(warehouse, scan, start):
        fit = (MOST_BYTES - size) * len(part) // max(1, part.text_bytes)
        kept = part.first(max(0 if taken else 1, min(limit - rows, fit, len(part))))
        if len(kept):
            taken.append((number, kept))
            rows, size = rows + len(kept), size + kept.text_bytes
        if len(kept) < len(part):
            return ScanPage(scan, taken, _token(scan, filters, _behind(taken, start)).text)
    return ScanPage(scan, taken, None)


def _behind(taken: Sequence[tuple[int, Part]], start: Place) -> Place:
    """The place behind the last row of ``taken``, which begins at ``start``."""
    partition, token = taken[-1][0], taken[-1][1].last_token
    same = sum(part.of_token(token) for number, part in taken if number == partition)
    before = start.skip if (start.partition, start.token) == (partition, token) else 0
    return Place(partition, token, same + before)


def check_filters(text: str, filters: Sequence[str]) -> None:
    """Raises ``Invalid`` for a page token of other filters."""
    if read_token(text).filters != _digest(filters):
        raise _no_token(text)


def _digest(filters: Sequence[str]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(list(filters)).encode())


def _token(scan: Scan, filters: Sequence[str], place: Place) -> PageToken:
    view = scan.view
    numbers = [batch.number for batch in view.staged]
    return PageToken(
        view.table.id,
        view.snapshot_id or 0,
        view.table.schema_id,
        min(numbers, default=0),
        view.last_batch,
        len(numbers),
        _digest(filters),
        place,
    )
