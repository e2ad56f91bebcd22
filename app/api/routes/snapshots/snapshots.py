"""``T/snapshots``, ``T/snapshot`` and ``T/rollback``, with the members of Paimon's REST catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, Payload
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, VersionName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import Reading, TableDep, Writing
from app.core.errors import FaultCode, Invalid, Violation
from app.core.table.history import SnapshotKind
from app.services.snapshots import snapshots as service

router = Router(route_class=JsonRoute, prefix=TABLE_PATH, tags=["snapshots"], responses=PROBLEM_RESPONSES)
# Paimon's clients know four kinds only.
COMMIT_KINDS: Mapping[SnapshotKind, str] = {
    SnapshotKind.MERGE: "APPEND",
    SnapshotKind.COMPACTION: "COMPACT",
    SnapshotKind.ROLLBACK: "OVERWRITE",
    SnapshotKind.PARTITION_DROP: "OVERWRITE",
    SnapshotKind.FORGETTING: "OVERWRITE",
}
# The version of Paimon's snapshot format that has the members below.
_PAIMON_VERSION = 3
STORED_ROWS = "state rows: a key counts once per run that has it, deleted ones included"
LIVE_ROWS = "the rows that a reader sees, where that is known: null while a partition has several runs"
Number = Annotated[int, Field(strict=True)]


class Snapshot(Answer):
    """A snapshot: Paimon's members, and Keyfold's own.

    Keyfold's files are not Paimon's, so there are no manifests. Times are milliseconds since 1970-01-01 UTC.
    """

    id: Annotated[int, From("snapshot.id")]
    kind: Annotated[SnapshotKind, From("snapshot.kind")]
    schema_id: Annotated[int, From("snapshot.schema_id")] = Field(description="the table's schema at the commit")
    merge_id: Annotated[str | None, From("snapshot.merge_id")] = Field(
        description="the merge or compaction that committed it"
    )
    committed_at: Annotated[EpochMillis, From("snapshot.committed_at")]
    runs: Annotated[int, From(lambda described: len(described.snapshot.runs))]
    files: Annotated[int, From("snapshot.files")]
    rows: Annotated[int | None, From("snapshot.rows")] = Field(description=LIVE_ROWS)
    stored_rows: Annotated[int, From("snapshot.stored_rows")] = Field(description=STORED_ROWS)
    size_bytes: Annotated[int, From("snapshot.size_bytes")]
    tags: list[str]
    version: Annotated[int, From(lambda _: _PAIMON_VERSION)]
    base_manifest_list: Annotated[str, From(lambda _: "")]
    delta_manifest_list: Annotated[str, From(lambda _: "")]
    commit_user: Annotated[str, From(lambda _: "keyfold")]
    commit_identifier: Annotated[int, From("snapshot.id")]
    commit_kind: Annotated[
        Literal["APPEND", "COMPACT", "OVERWRITE", "ANALYZE"],
        From(lambda described: COMMIT_KINDS[described.snapshot.kind]),
    ]
    time_millis: Annotated[EpochMillis, From("snapshot.committed_at")]
    total_record_count: Annotated[int, From("snapshot.stored_rows")] = Field(description="Paimon's word for storedRows")
    delta_record_count: Annotated[int, From("added_rows")] = Field(
        description="stored rows more than the snapshot before; 0 where that has expired"
    )


class SnapshotAnswer(Payload):
    """One snapshot."""

    snapshot: Snapshot


class RollbackAnswer(SnapshotAnswer):
    """The new snapshot, with the rows of an earlier one."""

    undone_batches: int = Field(description="batches that were merged after the target, and are no longer visible")


class SnapshotList(Answer):
    """A page of a table's snapshots, newest first; ``nextPageToken`` is null on the last page."""

    snapshots: Annotated[list[Snapshot], From("items")]
    next_page_token: NextPageToken


class TableSnapshot(Answer):
    """The current snapshot and its totals."""

    snapshot: Annotated[Snapshot, From(lambda described: described)]
    record_count: Annotated[int, From("snapshot.stored_rows")]
    file_size_in_bytes: Annotated[int, From("snapshot.size_bytes")]
    file_count: Annotated[int, From("snapshot.files")]
    last_file_creation_time: Annotated[EpochMillis, From("snapshot.committed_at")]


class TableSnapshotAnswer(Payload):
    """The current snapshot."""

    snapshot: TableSnapshot


class SnapshotInstant(Payload):
    """A snapshot by its number."""

    type: Literal["snapshot"]
    snapshot_id: Number


class TagInstant(Payload):
    """A snapshot by its tag."""

    type: Literal["tag"]
    tag_name: str


class Rollback(Payload):
    """The target of a rollback: ``instant`` as Paimon spells it, or just ``snapshot`` or ``tag``."""

    instant: Annotated[SnapshotInstant | TagInstant, Field(discriminator="type")] | None = None
    snapshot: Number | None = None
    tag: str | None = None
    from_snapshot: Number | None = Field(None, description="go back only while this is the current snapshot, else 409")

    def target(self) -> dict[str, Any]:
        """Return the target. Raise ``Invalid`` unless exactly one is named."""
        number, tag = self.snapshot, self.tag
        if isinstance(self.instant, SnapshotInstant):
            number = self.instant.snapshot_id
        elif isinstance(self.instant, TagInstant):
            tag = self.instant.tag_name
        if sum(target is not None for target in (self.instant, self.snapshot, self.tag)) != 1:
            message = "the rollback must name one snapshot"
            fix = 'send {"instant": {"type": "snapshot", "snapshotId": 3}}, {"snapshot": 3} or {"tag": "v1"}'
            raise Invalid(message, violations=[Violation("", FaultCode.NO_INSTANT, message, fix)])
        return {"number": number, "tag": tag}


@router.get("/snapshots", operation_id="listSnapshots")
def list_snapshots(
    table: TableDep,
    repository: Reading,
    wanted: WantedPage,
) -> SnapshotList:
    """List the table's snapshots, newest first, a page at a time."""
    return SnapshotList.from_value(service.list_snapshots(repository, table, wanted))


@router.get("/snapshots/{version}", operation_id="getVersionSnapshot")
def get_snapshot(table: TableDep, version: VersionName, repository: Reading) -> SnapshotAnswer:
    """Return one snapshot, by number, tag, EARLIEST or LATEST."""
    chosen = service.find_snapshot(repository, table, version)
    [described] = service.describe(repository, table, [chosen])
    return SnapshotAnswer(snapshot=Snapshot.from_value(described))


@router.get("/snapshot", operation_id="getTableSnapshot")
def get_table_snapshot(table: TableDep, repository: Reading) -> TableSnapshotAnswer:
    """Return the current snapshot and its size; 404 before the first merge."""
    current = service.current_snapshot(repository, table)
    return TableSnapshotAnswer(snapshot=TableSnapshot.from_value(current))


@router.post("/rollback", operation_id="rollbackTable", responses=problems(409))
def post_rollback(table: TableDep, body: Rollback, repository: Writing, notes: NotesDep) -> RollbackAnswer:
    """Roll back to a snapshot or tag: create and return a new snapshot with its rows.

    Nothing is lost: the snapshots in between stay until they expire, so a rollback can be rolled back. Staged batches
    stay staged, and the next merge folds them on top. Batches merged since the target are no longer visible. To post
    them again, use a new Idempotency-Key, since the old key returns the old batch. The schema does not change.
    """
    target = body.target()
    notes.add(to=target)
    made = service.roll_back(repository, table, from_snapshot=body.from_snapshot, **target)
    return RollbackAnswer(snapshot=Snapshot.from_value(made.made), undone_batches=made.undone_batches)
