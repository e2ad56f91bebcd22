"""The snapshots of a table: on a time line, named by tags, compared with each other, and gone back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.console.parts.timeline import Timeline, timeline_of
from app.console.site.tabs import address_of_table, of_table, row_link
from app.console.site.visits import Page, Visit
from app.console.table_pages.table import TABLE_PAGE, table_name, table_page
from app.core.access import Role
from app.core.errors import AlreadyExists, Conflict, FaultCode, Invalid, KeyfoldError, NotFound, Violation
from app.core.table.history import SnapshotKind
from app.http.kinds import status_of
from app.services.explaining.comparisons import Bounds, Comparison, RowChange, compare_named, of_snapshots
from app.services.shared.pages import PageRequest
from app.services.snapshots.snapshots import LATEST, DescribedSnapshot, find_snapshot, list_snapshots, roll_back
from app.services.snapshots.tags import create_tag, list_tags

PAGE_SNAPSHOTS: Final = 50
# At most this many tags are shown at a time.
MOST_TAGS: Final = 100
SAMPLE: Final = 10
# Of what a page compares: a second or two of work. The API looks at more.
PAGE_BOUNDS: Final = Bounds(keys=50_000, cells=20_000_000)
_SNAPSHOTS: Final = f"{TABLE_PAGE}/snapshots"
_NO_TAG: Final[Mapping[str, str]] = {"tag": "", "snapshot": "", "retained": ""}


@dataclass(frozen=True)
class Compared:
    """The differences between the snapshots ``since`` and ``version``."""

    since: str
    version: str
    comparison: Comparison

    @property
    def most(self) -> int:
        """The changed rows of the column with most of them; at least 1, as a divisor."""
        return max([1, *(column.changed for column in self.comparison.columns)])

    def address(self, row: RowChange) -> str:
        """Return the address of the page of one of the rows."""
        return row_link(row.key.values())


def show_snapshots(visit: Visit) -> Response:
    """Show what the table held at each commit, newest first, and its tags."""
    return _list(visit, _NO_TAG, None)


def _list(visit: Visit, form: Mapping[str, str], error: KeyfoldError | None) -> Response:
    request = PageRequest(PAGE_SNAPSHOTS, visit.param("after") or None)
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        page = list_snapshots(repository, table, request)
        tags = list_tags(repository, table, PageRequest(MOST_TAGS, visit.param("tags") or None))
    line: Timeline[DescribedSnapshot] = timeline_of([*reversed(page.items)], _committed, _size)
    return table_page(
        visit,
        "snapshots",
        status=HTTPStatus.OK if error is None else status_of(error),
        items=page.items,
        next_token=page.next_token,
        line=line,
        tags=tags,
        current=table.snapshot_id,
        kinds=[*SnapshotKind],
        form=form,
        error=error,
        retained_by_default=table.schema.parsed["tag.default-time-retained"],
    )


def _committed(snapshot: DescribedSnapshot) -> datetime:
    return snapshot.snapshot.committed_at


def _size(snapshot: DescribedSnapshot) -> int:
    return snapshot.snapshot.size_bytes


def make_tag(visit: Visit) -> Response:
    """Name a snapshot; show the form with its faults if that cannot be."""
    form = {name: visit.form.get(name, "").strip() for name in _NO_TAG}
    try:
        number = _number(form["snapshot"])
        with visit.parts.database.transaction() as repository:
            table = repository.tables.get(*table_name(visit))
            made = create_tag(repository, table, form["tag"], number, form["retained"] or None)
    except (Invalid, AlreadyExists, NotFound) as error:
        return _list(visit, form, error)
    _note(visit, "createTag", tag=made.tag.name, snapshot=made.tag.snapshot_id)
    return visit.go(address_of_table(visit, "/snapshots") + "#tags")


def _number(text: str) -> int | None:
    """Return the number of a snapshot, None for the current one. Raise ``Invalid``."""
    if not text or (text.isascii() and text.isdigit() and len(text) < 10):
        return int(text) if text else None
    message = f"{text[:50]!r} is no number of a snapshot"
    fault = Violation("/snapshotId", FaultCode.NOT_A_NUMBER, message, "write one of the list, or leave it empty")
    raise Invalid(message, violations=[fault])


def delete_tag(visit: Visit) -> Response:
    """Delete a tag; its snapshot expires as others do."""
    name = visit.form.get("tag", "")
    with visit.parts.database.transaction() as repository:
        repository.tags.delete(repository.tables.get(*table_name(visit)).id, name)
    _note(visit, "deleteTag", tag=name)
    return visit.go(address_of_table(visit, "/snapshots") + "#tags")


def show_changes(visit: Visit) -> Response:
    """Show what differs between two snapshots, whichever of them is the older one."""
    since, version = visit.param("since"), visit.param("version", LATEST)
    compared, error = None, None
    try:
        compared = _compared(visit, since or None, version)
    except NotFound as missing:
        error = missing
    values = {"since": since, "version": version, "found": compared, "error": error, "same": _same(visit)}
    status = HTTPStatus.OK if error is None else HTTPStatus.NOT_FOUND
    return visit.page("snapshots/snapshot_changes.html", status, **of_table(visit), **values, tab="snapshots")


def _same(visit: Visit) -> str:
    """Return the query of the API for what the page compares."""
    since = visit.param("since")
    return f"?{urlencode({'since': since})}" if since else ""


def _compared(visit: Visit, since: str | None, version: str) -> Compared:
    parts = visit.parts
    comparison = compare_named(
        parts.database,
        parts.warehouse,
        parts.scans,
        table_name(visit),
        lambda repository, table: of_snapshots(repository, table, version, since),
        sample=SAMPLE,
        bounds=PAGE_BOUNDS,
    )
    before = "nothing" if comparison.since is None else str(comparison.since)
    return Compared(before, str(comparison.snapshot_id), comparison)


def show_rollback(visit: Visit) -> Response:
    """Show what going back to a snapshot would do, and a form that asks for the table's name."""
    return _ask(visit, visit.param("to"), "", None)


def send_rollback(visit: Visit) -> Response:
    """Roll the table back and show its snapshots. If its name was not typed, or a commit came between, show the form
    again.
    """
    to, typed, seen = (visit.form.get(name, "").strip() for name in ("to", "typed", "from"))
    try:
        if typed != table_name(visit)[1].strip():
            raise Invalid("the table was not changed: type its name exactly as above")
        with visit.parts.database.transaction() as repository:
            table = repository.tables.get(*table_name(visit))
            wanted = find_snapshot(repository, table, to).id
            made = roll_back(repository, table, number=wanted, from_snapshot=_number(seen))
    except (Invalid, Conflict, NotFound) as error:
        return _ask(visit, to, typed, error)
    _note(visit, "rollbackTable", to={"number": wanted}, made=made.made.snapshot.id)
    return visit.go(address_of_table(visit, "/snapshots"))


def _ask(visit: Visit, to: str, typed: str, error: KeyfoldError | None) -> Response:
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        wanted = find_snapshot(repository, table, to)
        waiting = repository.stats.staged(table.id)
    return visit.page(
        "snapshots/snapshot_rollback.html",
        HTTPStatus.OK if error is None else status_of(error),
        **of_table(visit),
        tab="snapshots",
        wanted=wanted,
        current=table.snapshot_id,
        waiting=waiting,
        found=_compared(visit, LATEST, str(wanted.id)),
        typed=typed,
        error=error,
        body={"snapshot": wanted.id, "fromSnapshot": table.snapshot_id},
    )


def _note(visit: Visit, operation: str, **members: object) -> None:
    database, table = table_name(visit)
    visit.note(operation, database=database, table=table, **members)


PAGES: Final = (
    Page("GET", _SNAPSHOTS, show_snapshots),
    Page("GET", f"{_SNAPSHOTS}/changes", show_changes),
    Page("POST", f"{_SNAPSHOTS}/tags", make_tag, Role.WRITE),
    Page("POST", f"{_SNAPSHOTS}/tags/delete", delete_tag, Role.ADMIN),
    Page("GET", f"{_SNAPSHOTS}/rollback", show_rollback, Role.ADMIN),
    Page("POST", f"{_SNAPSHOTS}/rollback", send_rollback, Role.ADMIN),
)
