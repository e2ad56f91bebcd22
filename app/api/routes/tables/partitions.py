"""``T/partitions``: listed and dropped (paths and members of Paimon's REST catalog)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from app.api.document.components import SPELLED, Spec
from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, Payload
from app.api.shared.deps import PartsDep, in_writers_thread
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, FullName
from app.api.shared.preferences import SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import Reading, TableDep
from app.core.plan.records.integers import integers_of, row_as_text
from app.core.table.options.entries import Integers
from app.services.tables.partitions import drop_partitions, list_partitions

router = Router(
    route_class=JsonRoute, prefix=f"{TABLE_PATH}/partitions", tags=["partitions"], responses=PROBLEM_RESPONSES
)


PartitionPattern = Annotated[
    str | None,
    Query(
        alias="partitionNamePattern",
        description="SQL LIKE over names as `day=2024-05-01/shop=b`: `%`, `_`, and a backslash to escape them.",
    ),
]


class Partition(Answer):
    """One partition: the values of its columns, and its totals. ``recordCount`` counts state rows, which include
    remembered deletes.
    """

    spec: Spec
    record_count: Annotated[int, From("rows")]
    file_size_in_bytes: Annotated[int, From("size_bytes")]
    file_count: Annotated[int, From("files")]
    runs: int
    last_file_creation_time: Annotated[EpochMillis | None, From("changed_at")]


class PartitionList(Answer):
    """One page of a table's partitions."""

    partitions: Annotated[list[Partition], From("items")]
    next_page_token: NextPageToken


class PartitionSpecs(Payload):
    """Partitions by the values of some or all partition columns, as JSON or as text."""

    specs: Annotated[list[Spec], Field(min_length=1, max_length=1000)]


class DroppedPartitions(Payload):
    """The values of the dropped partitions."""

    dropped: list[Spec]


@router.get("", operation_id="listPartitions", responses={200: {"headers": SPELLED}})
def get_partitions(
    table: TableDep,
    repository: Reading,
    wanted: WantedPage,
    response: Response,
    spelling: SpellingDep,
    pattern: PartitionPattern = None,
) -> PartitionList:
    """List the partitions of the current snapshot; none of a table without ``partitionKeys``."""
    response.headers.update(spelling.headers)
    page = list_partitions(repository, table, wanted, pattern)
    if integers_of(table.schema, spelling.integers) is Integers.TEXT:
        page = replace(page, items=[replace(item, spec=row_as_text(table.schema, item.spec)) for item in page.items])
    return PartitionList.from_value(page)


@router.post("/drop", operation_id="dropPartitions", responses=problems(409))
async def post_drop(name: FullName, body: PartitionSpecs, parts: PartsDep, notes: NotesDep) -> DroppedPartitions:
    """Drop all partitions that a spec matches, in one commit that touches no file.

    Staged batches stay staged, and their merge creates a dropped partition again. Older snapshots still have it.
    """
    dropped = await in_writers_thread(parts, drop_partitions, parts.database, name, body.specs)
    notes.add(partitions=len(dropped))  # the partitions themselves are values of rows
    return DroppedPartitions(dropped=[json.loads(text) for text in dropped])
