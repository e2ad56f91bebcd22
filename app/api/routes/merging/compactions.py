"""``T/compact``: requests for a compaction; watch and cancel it like a merge (``T/merges``)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Response
from pydantic import Field

from app.api.document.components import headers
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import LOOK_AGAIN_SECONDS
from app.api.routes.merging.merges import Merge
from app.api.shared.answers import OwnBody
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paths import TABLE_PATH, location
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import TableDep, Writing
from app.services.merging.compactions import ask_for_compaction

router = Router(route_class=JsonRoute, prefix=TABLE_PATH, tags=["merges"], responses=PROBLEM_RESPONSES)


class CompactionWish(OwnBody):
    """``full``: combine all runs; otherwise those that the table's policy picks."""

    full: Annotated[bool, Field(strict=True)] = True


@router.post(
    "/compact", status_code=202, operation_id="postCompaction", responses={202: {"headers": headers("Location")}}
)
def post_compaction(
    table: TableDep, repository: Writing, request: Request, response: Response, body: CompactionWish | None = None
) -> Merge:
    """Request a compaction of the table's runs; merges continue meanwhile. If a compaction is
    pending, it is returned.
    """
    wish = body or CompactionWish()
    merge = ask_for_compaction(repository, table.id, full=wish.full)
    response.headers["Retry-After"] = LOOK_AGAIN_SECONDS
    table_path = location(request, merge.id).rsplit("/", 2)[0]
    response.headers["Location"] = f"{table_path}/merges/{merge.id}"
    return Merge.from_value(merge)
