"""Snapshots: listed, found by number or tag, rolled back to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.catalog.repository import Repository
from app.core.errors import Conflict, ErrorCode, Invalid, NotFound, Resource
from app.core.table.history import Snapshot, Table
from app.services.shared.pages import Page, PageRequest, page_of

EARLIEST, LATEST = "EARLIEST", "LATEST"


@dataclass(frozen=True)
class DescribedSnapshot:
    """A snapshot, its tags, and the difference in state rows from the previous snapshot (0 if that has expired)."""

    snapshot: Snapshot
    added_rows: int
    tags: tuple[str, ...]


def is_number(version: str) -> bool:
    """Return whether a version of a table is a snapshot's number, not a tag."""
    return re.fullmatch("[+-]?[0-9]+", version) is not None


def find_snapshot(repository: Repository, table: Table, version: str) -> Snapshot:
    """Return the snapshot of ``version``: EARLIEST, LATEST, a number or a tag, in Paimon's order.

    Raise ``NotFound`` (SNAPSHOT_NOT_FOUND), which lists the kept ones.
    """
    if version in (EARLIEST, LATEST):
        known = repository.snapshots.ends(table.id)
        if known is None:
            raise repository.snapshots.not_found(table.id, f"the snapshot {version}", version)
        return repository.snapshots.get(table.id, known[0 if version == EARLIEST else 1])
    if is_number(version):
        return repository.snapshots.get(table.id, int(version[:19]))  # a longer number is beyond any snapshot
    try:
        number = repository.tags.get(table.id, version).snapshot_id
    except NotFound as error:
        raise repository.snapshots.not_found(table.id, f"a snapshot or tag {version!r}", version) from error
    return repository.snapshots.get(table.id, number)


def current_snapshot(repository: Repository, table: Table) -> DescribedSnapshot:
    """Return the table's current snapshot. Raise ``NotFound`` before the first commit."""
    return describe(repository, table, [find_snapshot(repository, table, LATEST)])[0]


def list_snapshots(repository: Repository, table: Table, request: PageRequest) -> Page[DescribedSnapshot]:
    """Return a page of the table's snapshots, newest first. Raise ``Invalid``."""
    listed = repository.snapshots.page(table.id, after=request.after_number, limit=request.and_one_more)
    page = page_of(listed, request, lambda snapshot: snapshot.id)
    return Page(describe(repository, table, page.items), page.next_token)


def describe(repository: Repository, table: Table, listed: Sequence[Snapshot]) -> list[DescribedSnapshot]:
    """Return the snapshots, each with the change of its number of state rows and the names of its tags."""
    rows = repository.snapshots.rows_of(table.id, {snapshot.id - 1 for snapshot in listed})
    tags = repository.tags.on(table.id, {snapshot.id for snapshot in listed})
    return [
        DescribedSnapshot(
            snapshot,
            _added(snapshot, rows.get(snapshot.id - 1)),
            tuple(tag.name for tag in tags if tag.snapshot_id == snapshot.id),
        )
        for snapshot in listed
    ]


def _added(snapshot: Snapshot, before: int | None) -> int:
    if before is None:
        return snapshot.stored_rows if snapshot.id == 1 else 0
    return snapshot.stored_rows - before


@dataclass(frozen=True)
class RolledBack:
    """The snapshot that a rollback made, and how many batches were merged after its target."""

    made: DescribedSnapshot
    undone_batches: int


def roll_back(
    repository: Repository,
    table: Table,
    *,
    number: int | None = None,
    tag: str | None = None,
    from_snapshot: int | None = None,
) -> RolledBack:
    """Return a new snapshot that shows what the snapshot ``number`` (or that of ``tag``) showed.

    Staged batches stay staged, and later merges fold them on top; batches merged since are no longer visible, until a
    rollback to a snapshot that has them. The schema stays as it is now: older runs are read under it. Raise
    ``NotFound``, and ``Conflict`` if ``from_snapshot`` is given and is not current, or if the target still has
    forgotten keys.
    """
    wanted = repository.tags.get(table.id, tag).snapshot_id if tag is not None else number
    if wanted is None:
        raise Invalid("the rollback names no snapshot and no tag")
    check_not_to_forget(repository, table, wanted)
    made = repository.snapshots.roll_back(table.id, wanted, base_snapshot_id=from_snapshot)
    return RolledBack(describe(repository, table, [made])[0], repository.batches.count_merged_after(table.id, wanted))


def check_not_to_forget(repository: Repository, table: Table, number: int) -> None:
    """Raise ``Conflict`` for a snapshot that still has forgotten keys: it may not be kept or rolled back to."""
    repository.tables.lock(table.id)
    for forgetting in repository.forgettings.unended(table.id):
        if number in forgetting.held:
            raise Conflict(
                f"snapshot {number} still has keys that were forgotten (GET …/forgettings/{forgetting.id}): it is"
                " only kept until no version that other engines read needs it; name another snapshot",
                code=ErrorCode.SNAPSHOT_TO_FORGET,
                resource_type=Resource.SNAPSHOT,
                resource_name=str(number),
            )
