"""Spark sorts and negates as Python does, up to the last digit of every type (merge-semantics §3, §5.1)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.core.plan.record_decoder import DecodedRecords
from app.core.rules.accumulators import Sum
from app.core.rules.order import Floor, Order, OrderField
from app.core.rules.participation import accumulated_records
from app.core.rules.spark_sql import struct_sql
from app.core.table.records import POSITION_COLUMN, Record, RowKind
from app.core.table.schema import TableSchema
from app.storage.layout import Warehouse, staging_file
from app.storage.staging import write_batch
from spark_jobs.expressions import record_schema
from spark_jobs.session import SparkConnection
from tests.core.rules.test_order import SORTED
from tests.core.tables import table

EXACT_NEIGHBOURS = [Decimal("-" + "9" * 38), Decimal("-" + "9" * 37 + "8"), Decimal("9" * 37 + "8"), Decimal("9" * 38)]
ORDERED: dict[str, list[Any]] = SORTED | {
    "DECIMAL(38, 0)": EXACT_NEIGHBOURS,
    "DECIMAL(18, 3)": [Decimal("-999999999999999.999"), Decimal("0.000"), Decimal("999999999999999.999")],
}
PADDED = {
    "DOUBLE": [-1e300, -1e19, -1.5, -0.5, 0.0, 0.5, 1.5, 2.0**63, 1e19, 1e300],
    "FLOAT": [-(2.0**100), -1.5, 0.0, 2.0**63, 2.0**100],
    "DECIMAL(38, 2)": SORTED["DECIMAL(38, 2)"],
    "STRING": ["-" + "9" * 37, "-10", "-9", "0", "+7", "007", "10", "9" * 36 + "8", "9" * 37],
    "INT": SORTED["INT"],
    "TIMESTAMP(6)": SORTED["TIMESTAMP(6)"],
    "TIMESTAMP_LTZ(6)": SORTED["TIMESTAMP_LTZ(6)"],
}


def staged(folder: Path, schema: TableSchema, columns: dict[str, list[Any]], kinds: list[int]) -> str:
    """The URI of a staging file of these columns."""
    warehouse = Warehouse(str(folder))
    name, _ = write_batch(warehouse, "t", "b", schema, DecodedRecords(columns, kinds, list(range(len(kinds)))))
    return warehouse.uri(*staging_file("t", name))


def check(spark: SparkConnection, folder: Path, kind: str, given: list[Any], settings: list[dict[str, Any]]) -> None:
    """Sorts the values and a null on Spark and in Python, ascending and descending, by every one of the settings."""
    values = [*given, None]
    schema = table(None, {"k": "INT", "s": kind})
    uri = staged(folder, schema, {"k": list(range(len(values))), "s": values}, [0] * len(values))
    different = []
    with spark.job("order") as session:
        frame = session.read.schema(record_schema(schema)).parquet(uri)
        for setting in (one | {"descending": down} for one in settings for down in (False, True)):
            order = Order((OrderField(schema.by_name["s"], **setting),))
            wanted = sorted(range(len(values)), key=lambda at, by=order: (by.rank({"s": values[at]}, add=True), at))
            key = struct_sql([*order.sql({"s": "s"}, "TRUE"), POSITION_COLUMN])
            found = [row[0] for row in frame.selectExpr(POSITION_COLUMN, f"{key} AS o").orderBy("o").collect()]
            if found != wanted:
                different.append((setting, [values[at] for at in found]))
    assert different == []


@pytest.mark.parametrize("kind", ORDERED)
def test_spark_orders_values_as_python_does(spark: SparkConnection, tmp_path: Path, kind: str) -> None:
    check(spark, tmp_path, kind, ORDERED[kind], [{}])


@pytest.mark.parametrize("kind", PADDED)
def test_spark_orders_padded_sequences_as_python_does(spark: SparkConnection, tmp_path: Path, kind: str) -> None:
    floors = [{"integral": True, "floor": floor} for floor in (None, *Floor)]
    check(spark, tmp_path, kind, PADDED[kind], floors if "TIMESTAMP" in kind else floors[:1])


@pytest.mark.parametrize("kind", ["DECIMAL(38, 0)", "BIGINT", "TINYINT", "DOUBLE"])
def test_spark_subtracts_a_retract_to_the_last_digit(spark: SparkConnection, tmp_path: Path, kind: str) -> None:
    values = {
        "DECIMAL(38, 0)": EXACT_NEIGHBOURS,
        "BIGINT": [2**63 - 1, -(2**63), 2**53 + 1],
        "TINYINT": [-128, 127],
        "DOUBLE": [0.1, -1e308],
    }[kind]
    schema = table(None, {"k": "INT", "v": kind})
    column = schema.by_name["v"]
    rule = Sum(column, accumulated_records(column))
    kinds = [int(RowKind.DELETE)] * len(values)
    uri = staged(tmp_path, schema, {"k": list(range(len(values))), "v": values}, kinds)
    outputs = [f"{sql} AS `{name}`" for name, sql in rule.lift_sql().items()]
    with spark.job("sum") as session:
        frame = session.read.schema(record_schema(schema)).parquet(uri).alias("r")
        found = [row.asDict() for row in frame.orderBy(POSITION_COLUMN).selectExpr(*outputs).collect()]
    assert found == [rule.lift(Record(RowKind.DELETE, {"k": at, "v": value})) for at, value in enumerate(values)]
