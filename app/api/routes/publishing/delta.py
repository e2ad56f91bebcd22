"""``T/delta``: what other engines read of a table, and how (docs/delta.md)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from app.api.shared.answers import Answer, EpochMillis, Told
from app.api.shared.deps import Reading, ReadTable, WarehouseDep
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.services.publishing.delta_state import DeltaState, delta_state

router = APIRouter(prefix=TABLE_PATH, tags=["snapshots"], responses=PROBLEM_RESPONSES)


class DeltaLines(Answer):
    """The line to paste into each engine."""

    duckdb: str
    polars: str = Field(description="Python; deltalake must be installed beside Polars")
    spark: str = Field(description="Python; the session must have Delta's package")
    trino: str = Field(description="SQL, once, of a catalog `delta` that may register tables; then it is a table")


def _newest(name: str) -> Told:
    return Told(lambda state: _of(state, name))


def _of(state: object, name: str) -> object:
    newest = state.newest if isinstance(state, DeltaState) else None
    return None if newest is None else getattr(newest, name)


class DeltaAnswer(Answer):
    """The newest version of the Delta log, and how far it is behind the table."""

    publishes: bool = Field(description="whether the table has delta.publish = true")
    version: Annotated[int | None, _newest("version")] = Field(description="null before the first")
    snapshot_id: Annotated[int | None, _newest("as_of")] = Field(description="the snapshot whose rows the version has")
    committed_at: Annotated[EpochMillis | None, _newest("committed_at")] = Field(description="epoch milliseconds")
    earliest_version: Annotated[
        int | None, Told(lambda state: None if state.earliest is None else state.earliest.version)
    ] = Field(description="the first that readers can go back to: delta.log-retained")
    behind_batches: Annotated[int, Told("behind.batches")] = Field(
        description="accepted batches that the version does not have, merged or not"
    )
    behind_records: Annotated[int, Told("behind.records")] = Field(description="the records in them")
    behind_millis: int = Field(description="for how long the oldest of them has been waiting")
    waiting: str | None = Field(description="what they wait for, and what to do; null where nothing is missing")
    path: str = Field(description="the folder of the table, which has the log")
    read_by: DeltaLines | None = Field(description="null before the first version")


@router.get("/delta", operation_id="getTableDelta", response_model=DeltaAnswer)
def get_delta(table: ReadTable, repository: Reading, warehouse: WarehouseDep, response: Response) -> DeltaAnswer:
    """What of the table is published as Delta, how far behind that is, and how other engines read it."""
    response.headers["Cache-Control"] = "no-store"  # it tells the moment
    state = delta_state(repository, warehouse, table)
    lines = None if state.read_by is None else DeltaLines.model_validate(state.read_by)
    return DeltaAnswer.of(state, read_by=lines)
