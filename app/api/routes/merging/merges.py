"""``T/merges``: merges requested, watched, cancelled."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.document.components import headers
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import LOOK_AGAIN_SECONDS
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, location
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.slashes import register_convertors
from app.api.shared.transactions import Reading, TableDep, Writing
from app.core.table.history import TaskKind, TaskState, TaskTrigger
from app.services.merging.merges import ask_for_merge, list_merges

register_convertors()
router = Router(prefix=f"{TABLE_PATH}/merges", tags=["merges"], responses=PROBLEM_RESPONSES)


class Merge(Answer):
    """One merge or compaction (``job``); ``progress`` is from 0 to 1 by Spark's tasks, times are epoch milliseconds."""

    id: str
    job: Annotated[TaskKind, From("kind")]
    full: bool
    state: TaskState
    trigger: TaskTrigger
    requested_at: EpochMillis
    started_at: EpochMillis | None
    finished_at: EpochMillis | None
    progress: float
    progress_detail: dict[str, int]
    snapshot_id: int | None
    batches: int
    records: int
    rows: int
    error: str | None


class MergeList(Answer):
    """One page of a table's merges, newest first."""

    merges: Annotated[list[Merge], From("items")]
    next_page_token: NextPageToken


@router.post("", status_code=202, operation_id="postMerge", responses={202: {"headers": headers("Location")}})
def post_merge(table: TableDep, repository: Writing, request: Request, response: Response) -> Merge:
    """Request a merge of all staged batches. If a merge is pending, it is returned."""
    merge = ask_for_merge(repository, table.id)
    response.headers["Location"] = location(request, merge.id)
    response.headers["Retry-After"] = LOOK_AGAIN_SECONDS
    return Merge.from_value(merge)


@router.get("", operation_id="listMerges")
def get_merges(
    table: TableDep,
    repository: Reading,
    wanted: WantedPage,
    state: Annotated[TaskState | None, Query(description="only tasks in this state")] = None,
    job: Annotated[TaskKind | None, Query(description="only merges, or only compactions")] = None,
) -> MergeList:
    """List the table's merges and compactions, newest first."""
    return MergeList.from_value(list_merges(repository, table, wanted, state, job))


@router.get("/{merge_id:id}", operation_id="getMerge")
def get_merge(table: TableDep, merge_id: str, repository: Reading) -> Merge:
    """Return one merge: state, progress, and its outcome or error."""
    return Merge.from_value(repository.tasks.get(table.id, merge_id))


@router.post("/{merge_id:id}:cancel", operation_id="cancelMerge")
def cancel_merge(table: TableDep, merge_id: str, repository: Writing) -> Merge:
    """Stop a merge; its batches stay staged. A finished merge is returned unchanged."""
    return Merge.from_value(repository.tasks.request_cancel(table.id, merge_id))
