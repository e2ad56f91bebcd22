"""``T/rows:forget`` and ``T/forgettings``: keys removed from all files of a table (docs/decisions/0036)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Response
from pydantic import Field

from app.api.document.components import Key, headers
from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import LOOK_AGAIN_SECONDS
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, OwnBody
from app.api.shared.deps import GrantDep
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, location
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.slashes import register_convertors
from app.api.shared.transactions import Reading, TableDep, Writing
from app.core.table.upkeep.forgetting import MOST_KEYS, ForgettingState, RemnantKind
from app.services.upkeep import forgettings as service

register_convertors()
router = Router(route_class=JsonRoute, prefix=TABLE_PATH, tags=["forgettings"], responses=PROBLEM_RESPONSES)


class KeysToForget(OwnBody):
    """Keys, each an object of the primary-key columns; they are not stored."""

    keys: list[Key] = Field(min_length=1, max_length=MOST_KEYS)
    reference: str | None = Field(
        None,
        description="your text that identifies this request, such as a ticket number; it is kept",
    )


class Remnant(Answer):
    """Files or versions that may still hold a key: their number, and an example."""

    kind: RemnantKind
    count: int
    example: str = Field(description="one of them: the id of a task, a published version, the path of a file")
    until: EpochMillis | None = Field(description="when it goes at the earliest, where that is known")


class Forgetting(Answer):
    """Keys that are forgotten, in all records that were accepted before; times are epoch milliseconds."""

    id: str
    state: ForgettingState
    keys: int = Field(description="how many; which ones is stored nowhere")
    reference: str | None
    until_batch: int = Field(description="the number of the last batch whose records are forgotten")
    requested_at: EpochMillis
    requested_by: str = Field(description="the name of the token, empty where none was needed")
    forgotten_at: EpochMillis | None = Field(description="since when no read of the table finds them")
    gone_at: EpochMillis | None = Field(description="since when nothing that Keyfold keeps holds them")
    snapshot_id: int | None = Field(description="the first snapshot without them; null if there were none")
    rows: int = Field(description="state rows that were removed, of all snapshots")
    records: int = Field(description="records that were removed from batches which were in no history file")
    remnants: list[Remnant] = Field(description="what may still hold them; empty before the first look, and at the end")


class ForgettingList(Answer):
    """One page of a table's forgettings, newest first."""

    forgettings: Annotated[list[Forgetting], From("items")]
    next_page_token: NextPageToken


@router.post(
    "/rows:forget",
    status_code=202,
    operation_id="forgetRows",
    responses={202: {"headers": headers("Location")}, **problems(409)},
)
def forget_rows(
    table: TableDep,
    body: KeysToForget,
    repository: Writing,
    grant: GrantDep,
    notes: NotesDep,
    request: Request,
    response: Response,
) -> Forgetting:
    """Remove keys from rows, runs, staged batches, history, changelogs and every snapshot, as if they had never been
    written. `GET …/forgettings/{id}` says when no read finds them, and when they are gone from all files.

    Records of such a key that are accepted later begin a new row. A key that the table never had is not an error.
    """
    forgetting = service.ask_to_forget(repository, table, body.keys, grant.name, body.reference)
    notes.add(forgetting=forgetting.id, keys=forgetting.keys)  # the keys themselves are values of rows
    response.headers["Retry-After"] = LOOK_AGAIN_SECONDS
    response.headers["Location"] = f"{location(request, '').rsplit('/', 2)[0]}/forgettings/{forgetting.id}"
    return Forgetting.from_value(forgetting)


@router.get("/forgettings", operation_id="listForgettings")
def get_forgettings(table: TableDep, repository: Reading, wanted: WantedPage) -> ForgettingList:
    """List the pending and completed forgettings, newest first; they stay listed as long as the table exists."""
    return ForgettingList.from_value(service.list_forgettings(repository, table, wanted))


@router.get("/forgettings/{forgetting_id:id}", operation_id="getForgetting")
def get_forgetting(table: TableDep, forgetting_id: str, repository: Reading) -> Forgetting:
    """Return the progress of a forgetting, and what may still hold its keys."""
    return Forgetting.from_value(repository.forgettings.get(table.id, forgetting_id))
