"""``T/damage``: the known damaged or missing files of a table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.api.middleware.routing import Router
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.core.table.upkeep.damage import DamageReason, FileKind
from app.services.shared import damage as service

router = Router(prefix=TABLE_PATH, tags=["health"], responses=PROBLEM_RESPONSES)


class Damage(Answer):
    """One file, its damage, and its expected size and digest."""

    file: Annotated[str, From("path")] = Field(description="its path below the warehouse")
    kind: FileKind
    reason: DamageReason
    expected: str = Field(description="bytes and xxh3-128 of the file as it was written: what to restore")
    found: str = Field(description="what is there instead")
    batch_id: str | None = Field(description="of a staging file; DELETE …/batches/{batch_id} gives the batch up")
    batch_number: int | None
    run_id: str | None = Field(description="of a data file")
    snapshot_id: int | None = Field(description="of a changelog file")
    found_at: EpochMillis = Field(description="when it was first found, as epoch milliseconds")


class DamageList(Answer):
    """Damaged files, by path; ``nextPageToken`` is null on the last page."""

    damage: Annotated[list[Damage], From("items")]
    next_page_token: NextPageToken


@router.get("/damage", operation_id="listDamage")
def get_damage(table: TableDep, repository: Reading, wanted: WantedPage) -> DamageList:
    """List the files of the table that a merge, a read, a scrub or `keyfold verify` found damaged or missing.

    A file leaves the list when it is found intact, within minutes after it was restored.
    """
    return DamageList.from_value(service.list_damage(repository, table, wanted))
