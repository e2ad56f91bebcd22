"""The token that Python computes for a key is the one that Spark computes from what was staged, for every key type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.keys import token_of
from app.core.table.records import POSITION_COLUMN
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse, staging_file
from app.storage.staging.staging import write_batch
from spark_jobs.session import SparkConnection
from tests.kernel.test_tokens import COMPOSITE, NAMES, RANDOM, ROWS, VALUES, keyed_by, padded


def quote(name: str) -> str:
    return f"`{name}`"


def staged(folder: Path, schema: TableSchema, columns: dict[str, list[Any]]) -> str:
    """The URI of a staging file of these columns."""
    warehouse = Warehouse(str(folder))
    rows = len(next(iter(columns.values())))
    name, _ = write_batch(warehouse, "t", "b", schema, DecodedRecords(columns, [0] * rows, list(range(rows))))
    return warehouse.uri(*staging_file("t", name))


def test_tokens_are_spark_s_for_every_key_type_alone_and_together(spark: SparkConnection, tmp_path: Path) -> None:
    columns = padded()
    uri = staged(tmp_path, keyed_by(["INT"]), columns)
    keys = [*[(sql,) for sql in VALUES], *COMPOSITE]
    hashes = [f"xxhash64({', '.join(quote(NAMES[sql]) for sql in types)}) AS h{at}" for at, types in enumerate(keys)]
    with spark.job("tokens") as session:
        found = session.read.parquet(uri).selectExpr(POSITION_COLUMN, *hashes).orderBy(POSITION_COLUMN).collect()
    assert len(found) == ROWS
    different = []
    for at, types in enumerate(keys):
        schema = keyed_by(types)
        for row in found:
            key = tuple(columns[NAMES[sql]][row[POSITION_COLUMN]] for sql in types)
            if token_of(schema, key) != row[f"h{at}"]:
                different.append((types, key))
    assert different == []


def test_tokens_of_random_composite_keys_are_spark_s(spark: SparkConnection, tmp_path: Path) -> None:
    types = ("DECIMAL(38, 0)", "STRING", "TIMESTAMP(6)", "BYTES", "BIGINT", "DOUBLE")
    schema = keyed_by(types)
    rows = 500
    columns = {NAMES[sql]: [RANDOM.choice([None, *found]) for _ in range(rows)] for sql, found in VALUES.items()}
    uri = staged(tmp_path, schema, columns)
    hashed = f"xxhash64({', '.join(quote(NAMES[sql]) for sql in types)}) AS token"
    with spark.job("tokens") as session:
        found = session.read.parquet(uri).selectExpr(POSITION_COLUMN, hashed).orderBy(POSITION_COLUMN).collect()
    keys = zip(*(columns[NAMES[sql]] for sql in types), strict=True)
    assert [row["token"] for row in found] == [token_of(schema, key) for key in keys]
