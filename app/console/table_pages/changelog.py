"""The changelog of a table, the newest change first, followed until somebody pauses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from app.console.site.tabs import of_table, row_link
from app.console.site.visits import SEEN, Page, Visit
from app.console.table_pages.table import TABLE_PAGE, table_name, table_page
from app.core.errors import Conflict, ErrorCode, FaultCode, Invalid, Violation
from app.core.plan.records.integers import encoder_of
from app.core.table.history import SnapshotKind, Table
from app.core.table.options.entries import ChangelogProducer, Integers
from app.core.table.records import RowKind
from app.services.snapshots.changelogs import Changes, Newest, read_newest

MOST_CHANGES: Final = 200
MOST_SNAPSHOTS: Final = 50
# At most this many columns are shown: the page of a row has them all.
MOST_COLUMNS: Final = 30
_PAGE: Final = f"{TABLE_PAGE}/changelog"
_FRAGMENT: Final = "table/changelog_live.html"


NO_CHANGE: Final[Mapping[SnapshotKind, str]] = {
    SnapshotKind.MERGE: "No row changed.",
    SnapshotKind.COMPACTION: "No row changed.",
    SnapshotKind.ROLLBACK: "A changelog does not have the changes of a rollback: follow the link above.",
    SnapshotKind.PARTITION_DROP: "A changelog does not have the rows of a dropped partition: follow the link above.",
    SnapshotKind.FORGETTING: "Keys were forgotten. They are recorded nowhere, and no older change has them any more.",
}
"""Why a snapshot shows no change."""


@dataclass(frozen=True)
class ChangeShown:
    """One change. An update that says what was before is one of them: then ``before`` has its columns as they were.
    ``differ`` are those that have another value.
    """

    kind: RowKind
    key: Sequence[Any]
    row: Mapping[str, Any]
    before: Mapping[str, Any] | None = None

    @property
    def differ(self) -> frozenset[str]:
        """The columns that the update changed."""
        if self.before is None:
            return frozenset()
        return frozenset(name for name, value in self.row.items() if self.before.get(name) != value)

    @property
    def address(self) -> str:
        """The query of the address of the row's page."""
        return row_link(self.key)


@dataclass(frozen=True)
class SnapshotShown:
    """The changes of one snapshot; ``more``: it has others, too. ``words`` say why there are none."""

    number: int
    kind: SnapshotKind
    columns: Sequence[str]
    keys: Sequence[str]
    changes: Sequence[ChangeShown]
    more: bool
    words: str


def show_changelog(visit: Visit) -> Response:
    """Show the whole page; with ``until`` it stands still there."""
    until = _until(visit)
    try:
        newest = _read(visit, until)
    except Conflict as error:
        if error.code is not ErrorCode.CHANGELOG_NOT_KEPT:
            raise
        return table_page(visit, "changelog", snapshots=None, error=error, producers=[*ChangelogProducer], until=until)
    return table_page(visit, "changelog", **_context(newest), error=None, producers=[], until=until)


def show_live(visit: Visit) -> Response:
    """Show the part that changes, which is polled: the files are read where there is a new snapshot."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
    if visit.param(SEEN) == _state(table, table.snapshot_id):
        return visit.nothing_new()
    try:
        newest = _read(visit, None)
    except Conflict:  # an ALTER ended it: the whole page says so
        response = visit.nothing_new()
        response.headers["HX-Refresh"] = "true"
        return response
    return visit.page(_FRAGMENT, **of_table(visit), **_context(newest), until=None)


def _until(visit: Visit) -> int | None:
    text = visit.param("until")
    if not text or (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        return int(text) if text else None
    message = f"until={text[:50]!r} is no number of a snapshot"
    fault = Violation("/until", FaultCode.NOT_A_NUMBER, message, "open the changelog without it")
    raise Invalid(message, violations=[fault])


def _read(visit: Visit, until: int | None) -> Newest:
    parts = visit.parts
    return read_newest(parts.database, parts.warehouse, table_name(visit), until, MOST_CHANGES, MOST_SNAPSHOTS)


def _context(newest: Newest) -> dict[str, Any]:
    snapshots = [_shown(changes) for changes in newest.changes]
    digest = _state(newest.table, newest.head)
    producer = newest.table.schema.parsed["changelog-producer"]
    return {
        "snapshots": snapshots,
        "producer": producer,
        "head": newest.head,
        "older": newest.older,
        "digest": digest,
        "most": MOST_COLUMNS,
    }


def _state(table: Table, head: int | None) -> str:
    """Return the state that identifies the fragment: an ALTER may begin a changelog, or end it."""
    return f"{table.schema_id}.{head or 0}"


def _shown(changes: Changes) -> SnapshotShown:
    schema = changes.table.schema
    keys, names = schema.primary_key, [column.name for column in schema.columns]
    columns = [*keys, *(name for name in names if name not in keys)]
    encoders = {column.name: encoder_of(column.type, Integers.NUMBER) for column in schema.columns}
    rows = [(kind, {name: encoders[name](value) for name, value in row.items()}) for kind, row in changes.rows]
    paired = [*_paired(rows, keys)]
    words = NO_CHANGE[changes.kind]
    if changes.kind is SnapshotKind.MERGE and schema.parsed["changelog-producer"] is ChangelogProducer.FULL_COMPACTION:
        words = "The next full compaction shows what changed."
    return SnapshotShown(changes.start.snapshot, changes.kind, columns, keys, paired, not changes.last, words)


def _paired(rows: Sequence[tuple[RowKind, dict[str, Any]]], keys: Sequence[str]) -> Iterator[ChangeShown]:
    """Yield the changes in their order; what was before an update is reported with it."""
    before: ChangeShown | None = None
    for kind, row in rows:
        shown = ChangeShown(kind, [row.get(name) for name in keys], row)
        if before is not None and kind is RowKind.UPDATE_AFTER and before.key == shown.key:
            yield ChangeShown(kind, shown.key, row, before.row)
            before = None
            continue
        if before is not None:
            yield before
        before = shown if kind is RowKind.UPDATE_BEFORE else None
        if before is None:
            yield shown
    if before is not None:
        yield before


PAGES: Final = (
    Page("GET", _PAGE, show_changelog),
    Page("GET", f"{_PAGE}/live", show_live, whole=False),
)
