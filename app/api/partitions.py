"""``T/partitions``: listed and dropped (paths and members of Paimon's REST catalog)."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from app.api.deps import DatabaseDep, Reading
from app.api.paging import PageSize, PageToken
from app.api.paths import TABLE_PATH, FullName, ReadTable
from app.api.payloads import Payload, epoch_millis
from app.api.problems import PROBLEM_RESPONSES
from app.services.partitions import Partition, drop_partitions, list_partitions

router = APIRouter(prefix=f"{TABLE_PATH}/partitions", tags=["partitions"], responses=PROBLEM_RESPONSES)


class PartitionBody(Payload):
    """One partition: the values of its columns, and what it holds; ``recordCount`` counts state rows, deleted keys that
    must be remembered included.
    """

    spec: dict[str, Any]
    record_count: int
    file_size_in_bytes: int
    file_count: int
    runs: int
    last_file_creation_time: int | None

    @classmethod
    def of(cls, partition: Partition) -> PartitionBody:
        """The partition as the API shows it."""
        return cls(
            spec=dict(partition.spec),
            record_count=partition.rows,
            file_size_in_bytes=partition.size_bytes,
            file_count=partition.files,
            runs=partition.runs,
            last_file_creation_time=None if partition.changed_at is None else epoch_millis(partition.changed_at),
        )


class PartitionList(Payload):
    """One page of a table's partitions."""

    partitions: list[PartitionBody]
    next_page_token: str | None


class PartitionSpecs(Payload):
    """Partitions by the values of some or all partition columns, as JSON or as text."""

    specs: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]


class DroppedPartitions(Payload):
    """What was dropped: the values of each partition."""

    dropped: list[dict[str, Any]]


@router.get("", operation_id="listPartitions")
def get_partitions(
    table: ReadTable,
    repository: Reading,
    size: PageSize,
    page_token: PageToken = None,
) -> PartitionList:
    """The partitions of the current snapshot; none of a table without ``partitionKeys``."""
    page, token = list_partitions(repository, table, page_token, size)
    return PartitionList(partitions=[PartitionBody.of(one) for one in page], next_page_token=token)


@router.post("/drop", operation_id="dropPartitions")
def post_drop(name: FullName, body: PartitionSpecs, catalog: DatabaseDep) -> DroppedPartitions:
    """Drop all partitions that a spec matches, in one commit that touches no file.

    Staged batches stay staged: what they hold of a dropped partition makes it anew. Older snapshots still have it.
    """
    dropped = drop_partitions(catalog, name, body.specs)
    return DroppedPartitions(dropped=[json.loads(one) for one in dropped])
