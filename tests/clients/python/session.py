"""A day in the life of the generated client: every answer is read by its type."""

from __future__ import annotations

import json
import sys
import time
from typing import TypeVar

from keyfold_api import AuthenticatedClient, Client
from keyfold_api.api.batches import post_batch
from keyfold_api.api.databases import create_database, drop_database, list_databases
from keyfold_api.api.merges import get_merge, post_merge
from keyfold_api.api.rows import batch_get_rows, get_row, patch_row, put_row, scan_rows
from keyfold_api.api.tables import (
    alter_table,
    create_table,
    create_tables_from_ddl,
    drop_table,
    get_table,
    validate_ddl,
)
from keyfold_api.api.tokens import create_token
from keyfold_api.models import (
    AddColumn,
    AlterTable,
    Batch,
    BatchState,
    Columns,
    DatabaseDetails,
    ErrorCode,
    FaultCode,
    Identifier,
    Key,
    KeyList,
    MadeToken,
    Merge,
    NewDatabase,
    NewDataField,
    NewSchema,
    NewTable,
    NewTables,
    NewToken,
    Problem,
    Record,
    RecordList,
    Role,
    Row,
    RowAnswers,
    StoredTable,
    TablesOfDdl,
    TaskState,
    Validated,
)

T = TypeVar("T")
DATABASE, ORDERS = "python", "orders"
LARGE = 2**53 + 1
DDL = """CREATE TABLE orders (
  id BIGINT NOT NULL, edited TIMESTAMP(3), status STRING, total BIGINT, PRIMARY KEY (id) NOT ENFORCED
) WITH ('merge-engine' = 'partial-update', 'fields.edited.sequence-group' = 'status',
        'record.absent-columns' = 'unchanged', 'merge.max-staleness' = '1 d')"""


def reported(kind: type[T], answer: object) -> T:
    """The answer, of its type."""
    assert isinstance(answer, kind), answer
    return answer


def record(**columns: object) -> Record:
    """A record of some columns."""
    return Record.from_dict(columns)


def session(url: str, token: str) -> None:
    """From the first token to the last table."""
    wish = NewToken(name=DATABASE, role=Role.ADMIN, on=["*"])
    made = reported(MadeToken, create_token.sync(client=AuthenticatedClient(base_url=url, token=token), body=wish))
    stranger = reported(Problem, list_databases.sync(client=Client(base_url=url)))
    assert stranger.status == 401
    client = AuthenticatedClient(base_url=url, token=made.token)
    declare(client)
    write(client)
    read(client)
    refuse(client)
    change(client)


def declare(client: AuthenticatedClient) -> None:
    """Tables from JSON and from SQL."""
    reported(DatabaseDetails, create_database.sync(client=client, body=NewDatabase(name=DATABASE)))
    schema = NewSchema(fields=[NewDataField(name="id", type_="BIGINT NOT NULL")], primary_keys=["id"])
    new = NewTable(identifier=Identifier(database=DATABASE, object_="plain"), schema=schema)
    plain = reported(StoredTable, create_table.sync(DATABASE, client=client, body=new))
    assert plain.schema.primary_keys == ["id"]
    assert reported(Validated, validate_ddl.sync(DATABASE, client=client, body=NewTables(ddl=DDL))).violations == []
    declared = reported(TablesOfDdl, create_tables_from_ddl.sync(DATABASE, client=client, body=NewTables(ddl=DDL)))
    assert [table.name for table in declared.tables] == [ORDERS]


def write(client: AuthenticatedClient) -> None:
    """Upserts, and a merge."""
    records = [
        record(id=LARGE, edited="2026-03-01T10:00:00", status="new", total=LARGE),
        record(id=8, edited="2026-03-01T10:00:00", status="new"),
        record(_kind="+I", id=LARGE, edited="2026-03-01T09:00:00", status="late"),
    ]
    body = RecordList(records=records)
    batch = reported(Batch, post_batch.sync(DATABASE, ORDERS, client=client, body=body, idempotency_key="first"))
    assert (batch.state, batch.records) == (BatchState.STAGED, 3)
    patch = Columns.from_dict({"edited": "2026-03-01T11:00:00", "status": "packed"})
    reported(Batch, patch_row.sync(DATABASE, ORDERS, client=client, key=["8"], body=patch))
    merge = reported(Merge, post_merge.sync(DATABASE, ORDERS, client=client))
    while merge.state in (TaskState.PENDING, TaskState.RUNNING):
        time.sleep(0.1)
        merge = reported(Merge, get_merge.sync(DATABASE, ORDERS, merge.id, client=client))
    assert merge.state is TaskState.SUCCEEDED, merge.error


def read(client: AuthenticatedClient) -> None:
    """Rows by key and by scan; 304."""
    found = get_row.sync_detailed(DATABASE, ORDERS, client=client, key=[str(LARGE)])
    row = reported(Row, found.parsed)
    assert row.to_dict() == {"id": LARGE, "edited": "2026-03-01T10:00:00", "status": "new", "total": LARGE}
    text = reported(Row, get_row.sync(DATABASE, ORDERS, client=client, key=[str(LARGE)], prefer="integers=text"))
    assert text["id"] == str(LARGE)
    reported(Batch, put_row.sync(DATABASE, ORDERS, client=client, key=["8"], body=Columns.from_dict({"total": 5})))
    keys = KeyList(keys=[Key.from_dict({"id": LARGE}), Key.from_dict({"id": 9})])
    many = reported(RowAnswers, batch_get_rows.sync(DATABASE, ORDERS, client=client, body=keys))
    assert [(row.key["id"], row.found) for row in many.rows] == [(LARGE, True), (9, False)]
    scanned = scan_rows.sync_detailed(DATABASE, ORDERS, client=client, filter_=["status.eq.packed"])
    assert [json.loads(line)["id"] for line in scanned.content.splitlines()] == [8]
    etag = found.headers["etag"]
    same = get_row.sync_detailed(DATABASE, ORDERS, client=client, key=[str(LARGE)], if_none_match=etag)
    assert (same.status_code, same.parsed) == (304, None)


def refuse(client: AuthenticatedClient) -> None:
    """A typed 404, and a batch with each of its faults."""
    missing = reported(Problem, get_row.sync(DATABASE, ORDERS, client=client, key=["404"]))
    assert (missing.status, missing.error_code) == (404, ErrorCode.ROW_NOT_FOUND)
    body = RecordList(records=[record(id="x"), record(id=1, nope=1)])
    bad = reported(Problem, post_batch.sync(DATABASE, ORDERS, client=client, body=body))
    assert [(error.pointer, error.code) for error in bad.errors] == [
        ("/records/0/id", FaultCode.WRONG_TYPE),
        ("/records/1/nope", FaultCode.UNKNOWN_COLUMN),
    ]


def change(client: AuthenticatedClient) -> None:
    """Alter and drop."""
    add = AddColumn(action="addColumn", field_names=["note"], data_type="STRING")
    altered = reported(StoredTable, alter_table.sync(DATABASE, ORDERS, client=client, body=AlterTable(changes=[add])))
    assert altered.schema.fields[-1].name == "note"
    for table in (ORDERS, "plain"):
        assert drop_table.sync_detailed(DATABASE, table, client=client).status_code == 200
    gone = reported(Problem, get_table.sync(DATABASE, ORDERS, client=client))
    assert gone.error_code is ErrorCode.TABLE_NOT_FOUND
    assert drop_database.sync_detailed(DATABASE, client=client).status_code == 200


if __name__ == "__main__":
    session(sys.argv[1], sys.argv[2])
    sys.stdout.write("done\n")
