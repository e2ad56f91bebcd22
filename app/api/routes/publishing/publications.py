"""``T/delta`` and ``T/iceberg``: the published versions of a table, and how other engines read them (docs/delta.md,
docs/iceberg.md).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Response
from pydantic import Field

from app.api.middleware.routing import Router
from app.api.shared.answers import Answer, EpochMillis, From
from app.api.shared.deps import GrantDep, WarehouseDep
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.core.access import EVERYBODY
from app.core.table.published import Format
from app.services.publishing.publication_state import Endpoint, PublicationState, publication_state

router = Router(prefix=TABLE_PATH, tags=["snapshots"], responses=PROBLEM_RESPONSES)


class DeltaLines(Answer):
    """The line to paste into each engine."""

    duckdb: str
    polars: str = Field(description="Python; deltalake must be installed, too")
    spark: str = Field(description="Python; the session must have Delta's package")
    trino: str = Field(description="SQL, once, of a catalog `delta` that may register tables; then it is a table")


class IcebergLines(Answer):
    """The line to paste into each engine."""

    pyiceberg: str = Field(description="Python, after `from pyiceberg.catalog import load_catalog`")
    duckdb: str
    polars: str = Field(description="Python; pyiceberg must be installed, too")
    spark: str = Field(description="Python; the session must have Iceberg's package")
    trino: str = Field(description="what the file of a catalog `keyfold` has, a line each")
    metadata: str = Field(description="the newest metadata as a file, for engines without a catalog")


async def _endpoint(request: Request, grant: GrantDep) -> Endpoint:
    return Endpoint(str(request.base_url), with_token=grant is not EVERYBODY)


EndpointDep = Annotated[Endpoint, Depends(_endpoint)]


def _newest(name: str) -> From:
    return From(lambda state: _of(state, name))


def _of(state: object, name: str) -> object:
    newest = state.newest if isinstance(state, PublicationState) else None
    return None if newest is None else getattr(newest, name)


class _PublicationAnswer(Answer):
    publishes: bool = Field(description="whether the table's option has it published")
    version: Annotated[int | None, _newest("version")] = Field(description="null before the first")
    snapshot_id: Annotated[int | None, _newest("as_of")] = Field(description="the snapshot whose rows the version has")
    committed_at: Annotated[EpochMillis | None, _newest("committed_at")] = Field(description="epoch milliseconds")
    earliest_version: Annotated[
        int | None, From(lambda state: None if state.earliest is None else state.earliest.version)
    ] = Field(description="the first that readers can go back to")
    behind_batches: Annotated[int, From("behind.batches")] = Field(
        description="accepted batches that the version does not have, merged or not"
    )
    behind_records: Annotated[int, From("behind.records")] = Field(description="the records in them")
    behind_millis: int = Field(description="for how long the oldest of them has been waiting")
    waiting: str | None = Field(description="what they wait for, and what to do; null if nothing is missing")


class DeltaAnswer(_PublicationAnswer):
    """The newest version of the Delta log, and how far it is behind the table."""

    path: str = Field(description="the folder of the table, which has the log")
    read_by: DeltaLines | None = Field(description="null before the first version")


class IcebergAnswer(_PublicationAnswer):
    """The newest version that Iceberg's readers see, and how far it is behind the table."""

    read_by: IcebergLines | None = Field(description="null before the first version")


@router.get("/delta", operation_id="getTableDelta", response_model=DeltaAnswer)
def get_delta(
    table: TableDep, repository: Reading, warehouse: WarehouseDep, endpoint: EndpointDep, response: Response
) -> DeltaAnswer:
    """Return the newest published Delta version, how far it is behind the table, and how other engines read it."""
    response.headers["Cache-Control"] = "no-store"  # it always changes
    state = publication_state(repository, warehouse, table, Format.DELTA, endpoint)
    lines = None if state.read_by is None else DeltaLines.model_validate(state.read_by)
    return DeltaAnswer.from_value(state, read_by=lines)


@router.get("/iceberg", operation_id="getTableIceberg", response_model=IcebergAnswer)
def get_iceberg(
    table: TableDep, repository: Reading, warehouse: WarehouseDep, endpoint: EndpointDep, response: Response
) -> IcebergAnswer:
    """Return the newest published Iceberg snapshot, how far it is behind the table, and how other engines read it."""
    response.headers["Cache-Control"] = "no-store"  # it always changes
    state = publication_state(repository, warehouse, table, Format.ICEBERG, endpoint)
    lines = None if state.read_by is None else IcebergLines.model_validate(state.read_by)
    return IcebergAnswer.from_value(state, read_by=lines)
