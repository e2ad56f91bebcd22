"""``T/compact``: a compaction asked for; it is watched and cancelled as merges are (``T/merges``)."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.deps import DatabaseDep
from app.api.merges import MergeBody
from app.api.payloads import Payload
from app.api.problems import PROBLEM_RESPONSES
from app.api.table_paths import TABLE_PATH, NamedTable, location
from app.services.compactions import request_compaction

router = APIRouter(prefix=TABLE_PATH, tags=["merges"], responses=PROBLEM_RESPONSES)


class CompactionWish(Payload):
    """``full``: combine all runs; otherwise those that the table's policy picks."""

    full: bool = True


@router.post("/compact", status_code=202, operation_id="postCompaction")
def post_compaction(
    table: NamedTable, catalog: DatabaseDep, request: Request, response: Response, body: CompactionWish | None = None
) -> MergeBody:
    """Combine the table's runs, beside its merges; a compaction that already waits is answered again."""
    wish = body or CompactionWish()
    asked = request_compaction(catalog, table.id, full=wish.full)
    table_path = location(request, asked.id).rsplit("/", 2)[0]
    response.headers["Location"] = f"{table_path}/merges/{asked.id}"
    return MergeBody.of(asked)
