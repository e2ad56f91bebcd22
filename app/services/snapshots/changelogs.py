"""Changelogs: the changes between snapshots, read in pages or followed (docs/changelogs.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Commit, Repository
from app.core.errors import Conflict, ErrorCode, FaultCode, NotFound, Resource, Violation, not_found
from app.core.plan.merging.fold import shown_row
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import ChangelogFile, SnapshotKind, Table
from app.core.table.named_columns import names_in
from app.core.table.options.entries import ChangelogProducer, MergeEngine
from app.core.table.records import KIND_COLUMN, RowKind
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse
from app.storage.history.changelogs import ChangeFile, arrow_stream, changes_in, files_of_changelog, files_of_runs
from app.storage.scans.writers import text_bytes

MOST_TOGETHER = 1000  # changes that are decoded at a time
# A page ends before it is larger than about this.
MOST_BYTES = 32 * 2**20


@dataclass(frozen=True, order=True)
class Position:
    """A place in a table's changelog: the next change to read is number ``change`` (from 0) of ``snapshot``.
    ``rewritten`` is how often keys had been removed from the snapshot when this was counted.
    """

    snapshot: int
    change: int = 0
    rewritten: int = 0

    @property
    def text(self) -> str:
        """The position as a page token and as the id of an event."""
        return f"{self.snapshot}.{self.change}" + (f".{self.rewritten}" if self.rewritten else "")

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Return the position of a text; None if it is not one."""
        match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,15})(?:\.([0-9]{1,9}))?", text)
        return cls(int(match[1]), int(match[2]), int(match[3] or 0)) if match and int(match[1]) > 0 else None

    def after_rewrites(self, rewritten: int) -> Position:
        """Return the index of the next change in a snapshot from which keys were removed ``rewritten`` times. If the
        position was counted before that, start at 0, since it is unknown how many earlier changes are gone.
        """
        return self if self.rewritten == rewritten else Position(self.snapshot, 0, rewritten)


@dataclass(frozen=True)
class Changes:
    """Some neighbouring changes of one snapshot, by token, then key, -U before +U; the first is at ``start``.

    ``table`` has its schema at the snapshot. Rows have all of its columns, records (``input``) those that they name.
    ``last``: the snapshot has no more changes; then ``rows`` may be empty. ``text_bytes`` is their approximate size in
    an answer.
    """

    start: Position
    kind: SnapshotKind
    table: Table
    rows: Sequence[tuple[RowKind, dict[str, Any]]]
    last: bool
    text_bytes: int = 0

    def after(self, count: int) -> Position:
        """Return the position after the first ``count`` changes; after the last one it is the next snapshot."""
        if self.last and count == len(self.rows):
            return Position(self.start.snapshot + 1)
        return Position(self.start.snapshot, self.start.change + count, self.start.rewritten)

    def first(self, count: int) -> Changes:
        """Return the first changes, at most ``count``."""
        if count >= len(self.rows):
            return self
        return Changes(self.start, self.kind, self.table, self.rows[:count], False, self.text_bytes)


@dataclass(frozen=True)
class Page:
    """Changes of ``table`` for one request; ``last_snapshot`` is the last requested one; ``rest`` is where the next
    page begins, None on the last page.
    """

    table: Table
    changes: Sequence[Changes]
    last_snapshot: int
    rest: Position | None


def check_range(first: int | None, last: int | None) -> list[Violation]:
    """Return the faults of a range of snapshots, for any table."""
    if first is None or last is None or first <= last:
        return []
    fix = "send fromSnapshot not above toSnapshot"
    return [Violation("/toSnapshot", FaultCode.EMPTY_RANGE, f"toSnapshot {last} is before fromSnapshot {first}", fix)]


def read_page(
    database: CatalogDatabase,
    warehouse: Warehouse,
    name: tuple[str, str],
    start: Position | None,
    last: int | None,
    limit: int,
    *,
    one_schema: bool,
) -> Page:
    """Return up to ``limit`` changes of the table ``name`` (database, table) from ``start`` (the earliest kept
    snapshot) to the end of snapshot ``last`` (the current); fewer if they exceed ``MOST_BYTES``.

    ``one_schema``: the page ends where the table was altered. Raise ``NotFound`` (SNAPSHOT_NOT_FOUND) for snapshots
    that are not kept, ``Conflict`` if the table keeps no changelog.
    """
    table, kept = _kept(database, name)
    begin = start or Position(kept.start)
    final = kept[-1] if last is None and kept else last or 0
    if start is not None or last is not None:
        _check_kept(table, kept, [begin.snapshot, *([] if last is None else [last])])
    read: list[Changes] = []
    for changes in changes_from(database, warehouse, table, begin, final):
        if one_schema and read and changes.rows and read[0].table.schema_id != changes.table.schema_id:
            return Page(table, read, final, changes.start)
        part = changes.first(limit - sum(len(changes.rows) for changes in read))
        read += [part] if part.rows else []
        rest = part.after(len(part.rows))
        if rest.snapshot > final:
            break
        if (
            sum(len(changes.rows) for changes in read) >= limit
            or sum(changes.text_bytes for changes in read) >= MOST_BYTES
        ):
            return Page(table, read, final, rest)
    return Page(table, read, final, None)


@dataclass(frozen=True)
class Newest:
    """The newest changes of ``table``, snapshot by snapshot, the newest first; ``head`` is the first of these
    snapshots, None before the first merge. ``older`` says why there are no older ones; None if there are.
    """

    table: Table
    changes: Sequence[Changes]
    head: int | None
    older: str | None


def read_newest(
    database: CatalogDatabase,
    warehouse: Warehouse,
    name: tuple[str, str],
    until: int | None,
    limit: int,
    most_snapshots: int,
) -> Newest:
    """Return the changes of the last snapshots of the table ``name`` (database, table) up to ``until`` (the current
    one), at most ``limit`` in all, and from ``most_snapshots``. Of a snapshot with more changes the first are
    returned.

    Raise ``NotFound`` (SNAPSHOT_NOT_FOUND) for an ``until`` that is not kept, and ``Conflict`` if the table keeps no
    changelog.
    """
    table, kept = _kept(database, name)
    if until is not None:
        _check_kept(table, kept, [until])
    head = until or (kept[-1] if kept else None)
    read: list[Changes] = []
    for number in range(head or 0, max(kept.start - 1, (head or 0) - most_snapshots), -1):
        room = limit - sum(len(changes.rows) for changes in read)
        if room <= 0:
            return Newest(table, read, head, None)
        try:
            read.append(_first_of(changes_from(database, warehouse, table, Position(number), number), room))
        except (Conflict, NotFound) as error:
            return Newest(table, read, head, error.message)
    more = head is not None and head - most_snapshots >= kept.start
    return Newest(table, read, head, None if more else "what came before has expired, or never was")


def _first_of(changes: Iterator[Changes], most: int) -> Changes:
    """Return the first changes of one snapshot, joined; at most ``most``."""
    begin = part = next(changes)
    rows = [*part.rows]
    while not part.last and len(rows) < most:
        part = next(changes)
        rows += part.rows
    return replace(begin, rows=rows, last=part.last).first(most)


def follow_from(database: CatalogDatabase, name: tuple[str, str], start: Position | None) -> tuple[Table, Position]:
    """Return the table ``name`` (database, table), and where to begin following it: ``start``, or after the current
    snapshot.

    Raise ``NotFound`` (SNAPSHOT_NOT_FOUND) for a snapshot that is neither kept nor the next one, and ``Conflict`` if
    the table keeps no changelog.
    """
    table, kept = _kept(database, name)
    if start is None:
        return table, Position(kept.stop)
    if start.snapshot != kept.stop:
        _check_kept(table, kept, [start.snapshot])
    return table, start


def _kept(database: CatalogDatabase, name: tuple[str, str]) -> tuple[Table, range]:
    with database.reading() as repository:
        table = repository.tables.get(*name)
        _check_keeps_changelog(table.schema, "the table")
        return table, repository.commits.kept(table.id)


def _check_keeps_changelog(schema: TableSchema, what: str) -> None:
    """Raise ``Conflict`` if the table keeps no changelog."""
    options = schema.parsed
    if options["changelog-producer"] is ChangelogProducer.NONE and options.engine is not MergeEngine.DEDUPLICATE:
        raise Conflict(
            f"{what} has merge-engine {options.engine} and changelog-producer none: its merges write parts of rows, "
            "which are no changes; set changelog-producer to lookup or full-compaction: the changelog has the merges "
            "after that",
            code=ErrorCode.CHANGELOG_NOT_KEPT,
        )


def _check_kept(table: Table, kept: range, numbers: Sequence[int]) -> None:
    for number in numbers:
        if number not in kept:
            raise _not_kept(table, kept, number)


def _not_kept(table: Table, kept: range, number: int) -> NotFound:
    has = f"the changelog has snapshots {kept.start} to {kept.stop - 1}" if kept else "nothing was merged yet"
    why = "does not exist yet"
    if number < kept.start:
        why = "has expired"
        has += "; read the table at one of them (rows:scan?snapshot=…), then the changelog from the next one"
    return not_found(Resource.SNAPSHOT, str(number), f"snapshot {number} of {table.full_name} {why}: {has}")


def as_arrow(page: Page) -> bytes:
    """Return the changes of a page as an Arrow stream: one schema, for the page was cut where the table was altered."""
    columns = (page.changes[0].table if page.changes else page.table).schema.columns
    return arrow_stream(columns, [(changes.start.snapshot, changes.rows) for changes in page.changes])


def changes_from(
    database: CatalogDatabase, warehouse: Warehouse, table: Table, start: Position, last: int
) -> Iterator[Changes]:
    """Yield the changes from ``start`` to the end of snapshot ``last``, at most ``MOST_TOGETHER`` at a time; each
    snapshot ends with one whose ``last`` is true.

    Between two of them no transaction is open. If keys were forgotten meanwhile, and the old files are removed, the
    changes of the snapshot come again from the first on. Raise as ``read_page`` does, and ``DamagedFile``.
    """
    for number in range(start.snapshot, last + 1):
        place = start if number == start.snapshot else Position(number)
        written = _written_now(database, table, number)
        while place.snapshot == number:
            try:
                for changes in _changes_of(warehouse, written, place.after_rewrites(written.commit.rewritten)):
                    place = changes.after(len(changes.rows))
                    yield changes
                break
            except DamagedFile as error:
                before, written = written, _written_now(database, table, number)
                if not error.missing or written.files == before.files:
                    raise


@dataclass(frozen=True)
class _Written:
    """The changes of one snapshot as files; ``folded``: they are rows of states, not records. ``table`` has its schema
    at the snapshot. ``under`` is the schema at the start of the job that wrote the files.
    """

    commit: Commit
    table: Table
    under: TableSchema
    files: Sequence[ChangeFile]
    folded: bool

    @property
    def count(self) -> int:
        """Changes in all."""
        return sum(file.rows for file in self.files)


def _written_now(database: CatalogDatabase, table: Table, number: int) -> _Written:
    with database.reading() as repository:
        return _written(repository, table, number)


def _written(repository: Repository, table: Table, number: int) -> _Written:
    commit = repository.commits.find(table.id, number)
    if commit is None:
        raise _not_kept(table, repository.commits.kept(table.id), number)
    then = repository.tables.under(table, commit.schema_id)
    producer = then.schema.parsed["changelog-producer"]
    stored: Sequence[ChangelogFile] = ()
    if producer is ChangelogProducer.NONE and commit.kind is SnapshotKind.MERGE:
        _check_keeps_changelog(then.schema, f"snapshot {number} was merged when the table")
        runs = repository.snapshots.get(table.id, number).runs
        files = files_of_runs(table.id, [run for run in runs if run.changed_at == commit.committed_at])
    else:
        stored = repository.changelogs.snapshot_files(table.id, number)
        files = files_of_changelog(table.id, number, stored)
    under = _written_under(repository, then, commit, stored)
    return _Written(commit, then, under, files, producer is not ChangelogProducer.INPUT)


def _written_under(repository: Repository, table: Table, commit: Commit, files: Sequence[ChangelogFile]) -> TableSchema:
    """Return the schema under which the changes of a commit were written; ``table`` has the one at the commit.

    A merge or a full compaction may have begun before an ALTER. The merge's run is the newest one. The compaction's run
    has the folder name of its ``files``; there is none if it left no row. Where keys were forgotten, the names do not
    match, and the newest schema of a full compaction counts.
    """
    if commit.schema_id == 0:
        return table.schema
    runs = repository.snapshots.get(table.id, commit.snapshot_id).runs
    if commit.kind is SnapshotKind.COMPACTION:
        folders = {file.name.partition("/")[0] for file in files}
        of_folders = [run for run in runs if run.id.partition(".")[0] in folders]
        if commit.rewritten and not of_folders:
            of_folders = sorted((run for run in runs if run.full), key=lambda run: run.schema_id)
        runs = tuple(of_folders)
    return repository.tables.under(table, runs[-1].schema_id if runs else commit.schema_id).schema


def _named(schema: TableSchema, record: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that the record names."""
    names = names_in(schema, record)
    if names is None:
        return record
    return {name: value for name, value in record.items() if name in names}


def _changes_of(warehouse: Warehouse, written: _Written, start: Position) -> Iterator[Changes]:
    place, table, brought_by = start, written.table, written.commit.kind
    schema, plan = table.schema, compile_plan(table.schema)
    for batch in changes_in(warehouse, written.files, written.under, schema, start.change, MOST_TOGETHER):
        rows = [(RowKind(row.pop(KIND_COLUMN)), row) for row in batch.to_pylist()]
        shown = [(kind, shown_row(plan, row) if written.folded else _named(schema, row)) for kind, row in rows]
        last = place.change + len(rows) >= written.count
        yield Changes(place, brought_by, table, shown, last, text_bytes(batch))
        place = Position(place.snapshot, place.change + len(rows), place.rewritten)
    if place.change >= written.count and place == start:
        yield Changes(place, brought_by, table, (), last=True)
