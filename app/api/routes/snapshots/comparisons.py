"""Comparisons: the rows that a merge changed, and the differences between two snapshots, by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from app.api.document.components import SPELLED, Key, Row
from app.api.middleware.routing import Router
from app.api.routes.rows.lookups import names_in
from app.api.shared.answers import Answer
from app.api.shared.deps import Parts, PartsDep
from app.api.shared.paths import TABLE_PATH, FullName, VersionName
from app.api.shared.preferences import Spelling, SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.slashes import register_convertors
from app.api.shared.transactions import Reading
from app.core.errors import FaultCode, Invalid, Violation
from app.core.table.history import Table
from app.services.explaining.comparisons import MOST_SAMPLE, Became, Compared, compare_named, of_merge, of_snapshots

register_convertors()
router = Router(prefix=TABLE_PATH, responses=PROBLEM_RESPONSES)

Sample = Annotated[
    int,
    Query(
        description=f"up to so many rows of each that were added, changed and removed, {MOST_SAMPLE} at most; together"
        " they take 8 MiB at most"
    ),
]
Columns = Annotated[
    str | None, Query(description="comma-separated columns to look at: a row that differs elsewhere is unchanged")
]


class ColumnChanges(Answer):
    """The number of changed rows in which the column has another value."""

    column: str
    changed: int


class RowChange(Answer):
    """A row before and after; null if there was none. ``columns`` are those with another value."""

    became: Became
    key: Key
    before: Row | None
    after: Row | None
    columns: list[str]


class RowChanges(Answer):
    """The changes of rows from snapshot ``since`` (null before the first merge) to ``snapshotId``.

    ``keys`` counts all that were written in between. The rows of ``unchanged`` ones are equal: their records were
    late, repeated known values, or deleted rows that did not exist.
    """

    since: int | None
    snapshot_id: int | None
    exact: bool = Field(description="whether all keys were looked at; else the numbers are estimated from a share")
    share: float = Field(description="the share of the keys that was looked at")
    keys: int
    added: int
    changed: int
    removed: int
    unchanged: int
    columns: list[ColumnChanges]
    sample: list[RowChange]


@router.get(
    "/merges/{merge_id:id}/changes",
    operation_id="getMergeChanges",
    tags=["merges"],
    responses={200: {"headers": SPELLED}, **problems(409)},
)
def get_merge_changes(
    name: FullName,
    merge_id: str,
    parts: PartsDep,
    response: Response,
    spelling: SpellingDep,
    columns: Columns = None,
    sample: Sample = 10,
) -> RowChanges:
    """Return the rows that a merge or compaction added, changed and removed: their counts, the changes per column, and
    some examples before and after.

    The snapshot of the merge must still be kept. After a merge of many keys only a share of them is compared, which
    takes seconds.
    """
    response.headers.update(spelling.headers)
    return _compared(parts, name, lambda seen, table: of_merge(seen, table, merge_id), columns, sample, spelling)


@router.get(
    "/snapshots/{version}/changes",
    operation_id="getSnapshotChanges",
    tags=["snapshots"],
    responses={200: {"headers": SPELLED}},
)
def get_snapshot_changes(
    name: FullName,
    version: VersionName,
    parts: PartsDep,
    response: Response,
    spelling: SpellingDep,
    since: Annotated[
        str | None,
        Query(description="a snapshot's number, EARLIEST, LATEST, or a tag; without it the snapshot before"),
    ] = None,
    columns: Columns = None,
    sample: Sample = 10,
) -> RowChanges:
    """Return the differences between two snapshots, regardless of what was committed between them.

    To preview a rollback, compare the snapshot since LATEST. Both snapshots are read with the schema of the later one,
    so an ALTER between them is not a change.
    """
    response.headers.update(spelling.headers)
    return _compared(
        parts, name, lambda seen, table: of_snapshots(seen, table, version, since), columns, sample, spelling
    )


def _compared(
    parts: Parts,
    name: tuple[str, str],
    find: Callable[[Reading, Table], Compared],
    columns: str | None,
    sample: int,
    spelling: Spelling,
) -> RowChanges:
    if not 0 <= sample <= MOST_SAMPLE:
        message, fix = f"sample {sample} is not from 0 to {MOST_SAMPLE}", "send a number of that range, or none for 10"
        raise Invalid(message, violations=[Violation("/sample", FaultCode.OUT_OF_RANGE, message, fix)])
    return RowChanges.from_value(
        compare_named(
            parts.database, parts.warehouse, parts.scans, name, find, names_in(columns), sample, spelling.integers
        )
    )
