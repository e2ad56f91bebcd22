"""The client of one table: its columns are members."""

from __future__ import annotations

import sys
from typing import TypeVar

from orders_client import AuthenticatedClient
from orders_client.api.batches import post_batch
from orders_client.api.rows import batch_get_rows, get_row, patch_row_by_path
from orders_client.models import (
    Batch,
    Columns,
    ErrorCode,
    FaultCode,
    Key,
    KeyList,
    Problem,
    Record,
    RecordKind,
    RecordList,
    Row,
    RowAnswers,
)

T = TypeVar("T")
LARGE = 2**53 + 1


def reported(kind: type[T], answer: object) -> T:
    """The answer, of its type."""
    assert isinstance(answer, kind), answer
    return answer


def table(url: str, token: str) -> None:
    """RecordList, rows, and what is refused."""
    client = AuthenticatedClient(base_url=url, token=token)
    one = Record(id=LARGE, field_kind=RecordKind.INSERT, edited="2026-03-01T10:00:00", status="new", total=LARGE)
    assert reported(Batch, post_batch.sync(client=client, body=RecordList(records=[one]))).records == 1
    found = get_row.sync_detailed(client=client, key=[str(LARGE)])
    row = reported(Row, found.parsed)
    assert (row.id, row.status, row.total) == (LARGE, "new", LARGE)
    change = Columns(edited="2026-03-01T11:00:00", status="packed")
    reported(Batch, patch_row_by_path.sync(str(LARGE), client=client, body=change))
    many = reported(RowAnswers, batch_get_rows.sync(client=client, body=KeyList(keys=[Key(id=LARGE)])))
    assert [reported(Row, answer.row).status for answer in many.rows] == ["packed"]
    etag = found.headers["etag"]
    assert get_row.sync_detailed(client=client, key=[str(LARGE)], if_none_match=etag).status_code == 200
    missing = reported(Problem, get_row.sync(client=client, key=["404"]))
    assert missing.error_code is ErrorCode.ROW_NOT_FOUND
    bad = reported(Problem, post_batch.sync(client=client, body=RecordList(records=[Record(id=1, edited="yesterday")])))
    assert [fault.code for fault in bad.errors] == [FaultCode.BAD_TIMESTAMP]


if __name__ == "__main__":
    table(sys.argv[1], sys.argv[2])
    sys.stdout.write("done\n")
