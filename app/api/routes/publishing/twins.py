"""What Paimon's own clients are told of a table that publishes its rows to them (docs/decisions/0030)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request

from app.api.document.payloads import TableDetails
from app.api.shared.answers import EpochMillis, Payload
from app.api.shared.deps import Reading, ReadTable, WarehouseDep, inline
from app.api.shared.paimon_clients import NO_FILES, TABLE_OPTIONS, PaimonClient, refusal_of
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.core.table.history import Table
from app.services.publishing.twins import published
from app.services.tables import tables as service

router = APIRouter(prefix=TABLE_PATH, tags=["tables"], responses=PROBLEM_RESPONSES)
_READ_ONLY: Final = "none: this table is read only, write with POST …/batches"
# A twin is a table without a key. Who writes to it fails before there is a file, for no writer has this format, and no
# commit such a number; readers take a file's format from its name.
_TWIN_OPTIONS: Final[Mapping[str, str]] = {
    "bucket": "-1",
    "file.format": _READ_ONLY,
    "commit.max-retries": _READ_ONLY,
}
_ASKED_AGAIN: Final = timedelta(hours=1, minutes=1)  # clients ask again an hour before the end


class _Details:
    """Tables as the client that asks is told them."""

    def __init__(self, warehouse: WarehouseDep, repository: Reading, paimon: PaimonClient) -> None:
        self.warehouse, self.repository, self.paimon = warehouse, repository, paimon

    def of(self, table: Table) -> TableDetails:
        """One table. Paimon's clients are shown its twin, or that they must ask before they read."""
        plain = TableDetails.of(table, path=service.location_of(self.warehouse, table))
        if not self.paimon:
            return plain
        found = published(self.repository, self.warehouse, table)
        if found is None:
            schema = plain.table_schema
            told = schema.model_copy(update={"options": {**schema.options, **TABLE_OPTIONS}})
            return plain.model_copy(update={"table_schema": told})
        twin = TableDetails.of(found.table, path=found.location)
        unkeyed = {"fields": found.fields, "partition_keys": [], "primary_keys": [], "options": _TWIN_OPTIONS}
        return twin.model_copy(update={"table_schema": twin.table_schema.model_validate({**_kept(twin), **unkeyed})})


def _kept(twin: TableDetails) -> dict[str, object]:
    return {} if twin.table_schema.comment is None else {"comment": twin.table_schema.comment}


Details = Annotated[_Details, Depends(inline(_Details))]


class TableToken(Payload):
    """What a client of Paimon's needs to open the table's files: nothing more than it has, until then."""

    token: dict[str, str]
    expires_at_millis: EpochMillis


# Not in the OpenAPI document, for only clients that know Paimon's protocol have a use for it.
@router.get("/token", operation_id="getTableToken", include_in_schema=False)
def get_table_token(table: ReadTable, repository: Reading, warehouse: WarehouseDep, request: Request) -> TableToken:
    """Leave to open the files that a table publishes to Paimon's clients; 501 where it publishes none (now)."""
    if published(repository, warehouse, table) is None:
        raise refusal_of(NO_FILES, request)
    return TableToken(token={}, expires_at_millis=repository.now() + _ASKED_AGAIN)
