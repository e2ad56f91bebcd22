"""Pages of a scan, counts, and the room of all scans. A page token names where the next page begins
(docs/decisions/0021).
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import xxhash

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, Resource, StagingFull, Unavailable, Violation, not_found
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Batch, BatchState, Table
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse
from app.files.reading import LEAST_TOKEN, TokenRange
from app.services.rows.scans import ALL_TOKENS, BEGINNING, WRITERS, Part, Place, Scan, parts
from app.services.rows.views import View, schemas_of
from app.services.shared.damage import noted
from app.storage.staging.staged_index import StagedIndex, load_batch

MOST_SCANS: Final = 16
MOST_STAGED_BYTES: Final = 2**30
# Columns of the files that are read at a time; each has a reader of about 64 KiB.
MOST_COLUMNS: Final = 16_000


class ScanRoom:
    """The bound on concurrent scans. Safe to share between threads."""

    def __init__(
        self, most_scans: int = MOST_SCANS, most_staged_bytes: int = MOST_STAGED_BYTES, most_columns: int = MOST_COLUMNS
    ) -> None:
        self._most_scans, self._most_staged_bytes, self._most_columns = most_scans, most_staged_bytes, most_columns
        self._scans = self._staged_bytes = self._columns = 0
        self._lock = threading.Lock()

    @contextmanager
    def place(self) -> Iterator[ScanPlace]:
        """Yield a place for one scan, until its answer has gone out. Raise ``Unavailable`` if there is none."""
        with self._lock:
            if self._scans >= self._most_scans:
                raise _no_place(self._scans)
            self._scans += 1
        place = ScanPlace(self)
        try:
            yield place
        finally:
            with self._lock:
                self._scans -= 1
                self._staged_bytes -= place.staged_bytes
                self._columns -= place.columns

    def take_staged(self, size: int) -> None:
        """Reserve ``size`` more bytes for staged rows. Raise ``StagingFull`` if there is no room."""
        with self._lock:
            if self._staged_bytes + size > self._most_staged_bytes:
                raise _too_much_staged(self._most_staged_bytes)
            self._staged_bytes += size

    def take_columns(self, count: int) -> None:
        """Reserve ``count`` more columns of files. Raise ``Unavailable`` if other scans read too many; a single scan
        may read any number.
        """
        with self._lock:
            if self._columns and self._columns + count > self._most_columns:
                raise _no_place(self._scans)
            self._columns += count


class ScanPlace:
    """The place of one scan, and the memory and columns that it takes."""

    def __init__(self, room: ScanRoom) -> None:
        self._room = room
        self.staged_bytes = self.columns = 0

    def take_staged(self, size: int) -> None:
        """Reserve as ``ScanRoom.take_staged`` does; the bytes are freed with the place."""
        self._room.take_staged(size)
        self.staged_bytes += size

    def take_columns(self, count: int) -> None:
        """Reserve as ``ScanRoom.take_columns`` does; the columns are freed with the place."""
        self._room.take_columns(count)
        self.columns += count


def _no_place(scans: int) -> Unavailable:
    message = f"the process already answers {scans} scans at a time; repeat the request in a moment"
    fix = "scan fewer tables at a time, read answers as fast as they come, or run more processes (KEYFOLD_PROCESSES)"
    return Unavailable(message, violations=[Violation("", FaultCode.TOO_MANY, message, fix)])


def _too_much_staged(most: int) -> StagingFull:
    message = f"the staged records need more than the {most} bytes of memory that all scans share for them"
    fix = "wait until the table is merged (POST …/merges), or scan with consistency=merged"
    return StagingFull(f"{message}; {fix}", violations=[Violation("", FaultCode.STAGED_BYTES, message, fix)])


# A page has at most this many rows.
MOST_ROWS = 100_000
# A page ends before it is larger than about this.
MOST_BYTES = 64 * 2**20
_LONGEST_TOKEN = 500
_LEAST_CELL = 4  # bytes of a value in memory, a null included
_LARGEST = 2**63 - 1
# A token names at most this many batches: all of them are looked up.
_MOST_BATCHES = 100_000


@dataclass(frozen=True)
class PageToken:
    """The place where a page begins, and the view: the numbers of snapshot and schema, and the staged batches on top,
    which are ``staged`` of the numbers ``first`` to ``last``, the last accepted one. ``filters`` is a digest of the
    filters.
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
        """The token as clients send it back."""
        members = [*(getattr(self, name) for name in _MEMBERS), *self.place]
        return base64.urlsafe_b64encode(json.dumps(members, separators=(",", ":")).encode()).decode().rstrip("=")


_MEMBERS = ("table_id", "snapshot_id", "schema_id", "first", "last", "staged", "filters")
_TYPES = (str, int, int, int, int, int, str, int, int, int)


def read_token(text: str) -> PageToken:
    """Return the token of a text. Raise ``Invalid`` if no page has returned it."""
    try:
        members = json.loads(base64.urlsafe_b64decode(text[:_LONGEST_TOKEN] + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError) as error:
        raise _no_token(text) from error
    if not isinstance(members, list) or [type(member) for member in members] != list(_TYPES):
        raise _no_token(text)
    numbers = [member for member in members if isinstance(member, int)]
    if any(not -(2**63) <= number <= _LARGEST for number in numbers) or min(*members[1:6], members[7], members[9]) < 0:
        raise _no_token(text)
    table_id, snapshot, schema, first, last, staged, filters, *place = members
    return PageToken(table_id, snapshot, schema, first, last, staged, filters, Place(*place))


def _no_token(text: str) -> Invalid:
    fix = "send one that an answer of this route gave for this table and these filters, or none"
    message = f"{text[:50]!r} is no page token of this scan"
    return Invalid(message, violations=[Violation("/pageToken", FaultCode.NOT_A_POSITION, message, fix)])


def loaded(warehouse: Warehouse, view: View, place: ScanPlace) -> View:
    """Return the view with all its staged records in memory, for which ``place`` must have room.

    Raise ``StagingFull``, and ``DamagedFile``; it is ``missing`` also if a batch was merged since.
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
    """Return the view and the place with which the page token continues a scan.

    Raise ``Invalid``, and ``NotFound`` if the snapshot has expired or a staged batch was withdrawn or set aside.
    """
    token = read_token(text)
    if token.table_id != table.id:
        raise _no_token(text)
    snapshot = repository.snapshots.get(table.id, token.snapshot_id) if token.snapshot_id else None
    batches = _staged(repository, table, token)
    if token.schema_id > table.schema_id:
        raise _no_token(text)
    shown = repository.tables.under(table, token.schema_id)
    schemas = schemas_of(repository, shown, snapshot, batches)
    unread = tuple(batch for batch in batches if batch.records)
    view = View(shown, compile_plan(shown.schema), snapshot, schemas, batches, unread, StagedIndex(), token.last)
    return view, token.place


def _staged(repository: Repository, table: Table, token: PageToken) -> tuple[Batch, ...]:
    if not token.staged:
        return ()
    if not token.staged <= token.last - token.first + 1 <= _MOST_BATCHES:
        raise _no_token(token.text)
    listed = repository.batches.page(table.id, after_number=token.first - 1, limit=token.last - token.first + 1)
    # Since then no batch has joined these: one that is staged again gets another number.
    batches = tuple(batch for batch in listed if batch.state in (BatchState.STAGED, BatchState.MERGED))
    if len(batches) != token.staged:
        raise gone(token.snapshot_id)
    return batches


def gone(snapshot_id: int | None) -> Exception:
    """Return the error of a scan that cannot continue on its view."""
    message = "staged batches that the scan began with are gone; begin it again, without pageToken"
    return not_found(Resource.SNAPSHOT, str(snapshot_id or 0), message)


def page_failure(database: CatalogDatabase, error: DamagedFile, text: str) -> Exception:
    """Return the failure of the page ``text`` whose staged records cannot be read: they were merged, and their file is
    swept, so that no retry helps; or the damage.
    """
    return gone(read_token(text).snapshot_id) if error.missing and not noted(database, error) else error


@dataclass(frozen=True)
class ScanPage:
    """Rows of a scan, each part with its partition's number, and the token of the next page; None on the last one."""

    scan: Scan
    parts: Sequence[tuple[int, Part]]
    next_token: str | None

    def body(self, media_type: str) -> bytes:
        """Return the rows in the media type of the page."""
        batches = [part.batch for _, part in self.parts]
        body = io.BytesIO()  # unlike a list, it does not hold all pieces and the whole at once
        body.writelines(WRITERS[media_type].write(self.scan.columns, batches, self.scan.integers))
        return body.getvalue()


def read_page(
    warehouse: Warehouse, scan: Scan, filters: Sequence[str], limit: int, start: Place = BEGINNING
) -> ScanPage:
    """Return at most ``limit`` rows from ``start`` on; fewer, but at least one, if they exceed ``MOST_BYTES``."""
    taken: list[tuple[int, Part]] = []
    rows = size = 0
    for number, part in parts(warehouse, scan, start):
        fit = (MOST_BYTES - size) * len(part) // max(1, part.text_bytes)
        fitting = part.first(max(0 if taken else 1, min(limit - rows, fit, len(part))))
        if len(fitting):
            taken.append((number, fitting))
            rows, size = rows + len(fitting), size + fitting.text_bytes
        if len(fitting) < len(part):
            return ScanPage(scan, taken, _token(scan, filters, _behind(taken, start)).text)
    return ScanPage(scan, taken, None)


def _behind(taken: Sequence[tuple[int, Part]], start: Place) -> Place:
    """Return the place after the last row of ``taken``, which begins at ``start``."""
    partition, token = taken[-1][0], taken[-1][1].last_token
    same = sum(part.of_token(token) for number, part in taken if number == partition)
    before = start.skip if (start.partition, start.token) == (partition, token) else 0
    return Place(partition, token, same + before)


def check_filters(text: str, scan: Scan, filters: Sequence[str]) -> None:
    """Raise ``Invalid`` for a page token of a scan with other filters or another token range."""
    if read_token(text).filters != _digest(scan, filters):
        raise _no_token(text)


def _digest(scan: Scan, filters: Sequence[str]) -> str:
    tokens = [] if scan.tokens == ALL_TOKENS else [scan.tokens.first, scan.tokens.last]
    return xxhash.xxh3_64_hexdigest(json.dumps([*filters, *tokens]).encode())


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
        _digest(scan, filters),
        place,
    )


SAMPLE_ROWS = 50_000  # state rows that an estimate reads
_TOKENS = 2**64


@dataclass(frozen=True)
class RowCount:
    """The number of rows; ``exact`` says whether it was counted."""

    rows: int
    exact: bool
    snapshot_id: int | None


def count_rows(warehouse: Warehouse, scan: Scan, *, exact: bool, sample_rows: int = SAMPLE_ROWS) -> RowCount:
    """Return the number of rows of a scan. Unless ``exact``, only the lowest tokens are read, with about
    ``sample_rows`` state rows, and the count is extrapolated: tokens are hashes, so rows are spread evenly.

    Raise ``DamagedFile``.
    """
    view = scan.view
    stored = view.snapshot.stored_rows if view.snapshot else 0
    known = view.snapshot.rows if view.snapshot else 0
    readable = all(schema is not None for schema in view.readable.values())
    if not scan.conditions and not scan.staged and known is not None and readable:
        return RowCount(known, True, view.snapshot_id)
    stored += sum(len(keys.tokens) for keys in scan.staged.values())
    if exact or stored <= sample_rows:
        return RowCount(sum(len(part) for _, part in parts(warehouse, scan)), True, view.snapshot_id)
    share = _TOKENS * sample_rows // stored
    sampled = replace(scan, tokens=TokenRange(LEAST_TOKEN, LEAST_TOKEN + share - 1))
    counted = sum(len(part) for _, part in parts(warehouse, sampled))
    return RowCount(counted * _TOKENS // share, False, view.snapshot_id)
