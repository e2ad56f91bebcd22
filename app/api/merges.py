"""``T/merges``: merges asked for, watched, cancelled (design §6)."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request, Response

from app.api.deps import Reading, Writing
from app.api.paging import PageSize, PageToken
from app.api.paths import TABLE_PATH, ReadTable, WrittenTable, location
from app.api.payloads import Payload, epoch_millis
from app.api.problems import PROBLEM_RESPONSES
from app.core.table.history import Merge
from app.services.merges import ask_for_merge, list_merges

router = APIRouter(prefix=f"{TABLE_PATH}/merges", tags=["merges"], responses=PROBLEM_RESPONSES)


class MergeBody(Payload):
    """One merge or compaction (``job``); ``progress`` is from 0 to 1 by Spark's tasks, times are epoch milliseconds."""

    id: str
    job: str
    full: bool
    state: str
    trigger: str
    requested_at: int
    started_at: int | None
    finished_at: int | None
    progress: float
    progress_detail: dict[str, int]
    snapshot_id: int | None
    batches: int
    records: int
    rows: int
    error: str | None

    @classmethod
    def of(cls, merge: Merge) -> MergeBody:
        """The merge as the API shows it."""
        return cls(
            id=merge.id,
            job=merge.job.value,
            full=merge.full,
            state=merge.state.value,
            trigger=merge.trigger.value,
            requested_at=epoch_millis(merge.requested_at),
            started_at=_millis(merge.started_at),
            finished_at=_millis(merge.finished_at),
            progress=merge.progress,
            progress_detail=dict(merge.progress_detail),
            snapshot_id=merge.snapshot_id,
            batches=merge.batches,
            records=merge.records,
            rows=merge.rows,
            error=merge.error,
        )


class MergeList(Payload):
    """One page of a table's merges, newest first."""

    merges: list[MergeBody]
    next_page_token: str | None


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else epoch_millis(moment)


@router.post("", status_code=202, operation_id="postMerge")
def post_merge(table: WrittenTable, repository: Writing, request: Request, response: Response) -> MergeBody:
    """Merge everything that is staged now; a merge that already waits is answered again."""
    merge = ask_for_merge(repository, table.id)
    response.headers["Location"] = location(request, merge.id)
    return MergeBody.of(merge)


@router.get("", operation_id="listMerges")
def get_merges(
    table: ReadTable,
    repository: Reading,
    size: PageSize,
    page_token: PageToken = None,
) -> MergeList:
    """The table's merges, newest first."""
    page, token = list_merges(repository, table, page_token, size)
    return MergeList(merges=[MergeBody.of(merge) for merge in page], next_page_token=token)


@router.get("/{merge_id}", operation_id="getMerge")
def get_merge(table: ReadTable, merge_id: str, repository: Reading) -> MergeBody:
    """One merge: state, progress, and its outcome or error."""
    return MergeBody.of(repository.tasks.get(table.id, merge_id))


@router.post("/{merge_id}:cancel", operation_id="cancelMerge")
def cancel_merge(table: WrittenTable, merge_id: str, repository: Writing) -> MergeBody:
    """Stop a merge; its batches stay staged. A merge that is over is left as it is."""
    return MergeBody.of(repository.tasks.request_cancel(table.id, merge_id))
