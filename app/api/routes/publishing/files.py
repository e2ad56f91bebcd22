"""``T/files``: the data files of a snapshot, for engines that read them without the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import Field

from app.api.document.components import SPELLED
from app.api.middleware.routing import Router
from app.api.routes.rows.rows import Version
from app.api.shared.answers import Answer, From, NextPageToken
from app.api.shared.deps import WarehouseDep
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH
from app.api.shared.preferences import SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.core.plan.records.integers import integers_of
from app.core.table.options.entries import Integers
from app.services.publishing.files import list_files

router = Router(prefix=TABLE_PATH, tags=["snapshots"], responses=PROBLEM_RESPONSES)


class DataFile(Answer):
    """One Parquet file, sorted by token; its Parquet field ids are the ids of the columns."""

    uri: str
    run_id: Annotated[str, From("run.id")]
    partition: Annotated[str | None, From("run.partition")] = Field(
        description="the partition columns' values as JSON; null in a table without partitions"
    )
    schema_id: Annotated[int, From("run.schema_id")] = Field(description="the schema that the file was written under")
    rows: Annotated[int, From("file.rows")] = Field(description="state rows, deleted keys included")
    live_rows: int | None = Field(description="those that no delete hides; null where that was not counted")
    size_bytes: Annotated[int, From("file.size_bytes")]
    min_token: Annotated[int | str, From("file.min_token")] = Field(description="64 bits; text on request")
    max_token: Annotated[int | str, From("file.max_token")]

    def with_tokens_as_text(self) -> DataFile:
        """Return the file with its tokens as text, for clients that read no whole number beyond 2^53."""
        return self.model_copy(update={"min_token": str(self.min_token), "max_token": str(self.max_token)})


class FileList(Answer):
    """The files of a snapshot, by run, oldest first, and how to read them."""

    snapshot_id: int | None
    complete: bool = Field(description="whether the visible columns of the live rows are the table")
    incomplete: list[str] = Field(description="why they are not, and what to do")
    token_column: str = Field(description="Spark's xxhash64 of the primary key")
    live_column: str | None = Field(description="rows where it is not true are deleted; null where no row is hidden")
    hidden_columns: Annotated[list[str], From("hidden")] = Field(description="columns that are not the table's")
    files: list[DataFile]
    next_page_token: NextPageToken


@router.get("/files", operation_id="listFiles", responses={200: {"headers": SPELLED}})
def get_files(
    table: TableDep,
    repository: Reading,
    warehouse: WarehouseDep,
    request: WantedPage,
    response: Response,
    spelling: SpellingDep,
    snapshot: Version = None,
) -> FileList:
    """List the data files of the current snapshot, or of another one."""
    response.headers.update(spelling.headers)
    answer = FileList.from_value(list_files(repository, warehouse, table, snapshot, request))
    if integers_of(table.schema, spelling.integers) is Integers.NUMBER:
        return answer
    return answer.model_copy(update={"files": [file.with_tokens_as_text() for file in answer.files]})
