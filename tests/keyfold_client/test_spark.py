"""``format("keyfold")`` in a real Spark: through Spark Connect, and in a session of its own whose tasks are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, IsNull

from keyfold_client import Client, Table
from keyfold_client.spark import KeyfoldSource, _text_of
from spark_jobs.java import find_java
from tests.keyfold_client.conftest import MakeTable

TYPES = """
  id BIGINT PRIMARY KEY NOT ENFORCED, b BOOLEAN, d DOUBLE, de DECIMAL(38, 10), s STRING, raw BYTES, day DATE,
  hour TIME(3), ts TIMESTAMP(6), at TIMESTAMP_LTZ(6), a ARRAY<DECIMAL(5, 2)>, m MAP<INT, DATE>,
  r ROW<x BIGINT, y DECIMAL(4, 1)>, hours ARRAY<ROW<h TIME(0), m MAP<INT, TIME(3)>>>
"""
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


@pytest.fixture(scope="module")
def spark(spark_remote: str) -> Iterator[SparkSession]:
    session = SparkSession.builder.remote(spark_remote).create()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.dataSource.register(KeyfoldSource)
    yield session
    session.stop()


def read(spark: SparkSession, url: str, table: Table, **options: str) -> Any:
    return spark.read.format("keyfold").options(url=url, **options).load(f"shop.{table.name}")


def test_a_table_of_every_type_is_read_as_it_is(spark: SparkSession, url: str, table: MakeTable) -> None:
    every = table(TYPES)
    full = {
        "id": 2**62 + 1,
        "b": True,
        "d": 0.5,
        "de": Decimal("1234567890123456789012345678.0123456789"),
        "s": "Zoë",
        "raw": b"\x00\xff",
        "day": date(2026, 2, 28),
        "ts": datetime(2026, 1, 2, 3, 4, 5, 1),
        "a": [Decimal("1.50"), None],
        "m": {1: date(1, 1, 1)},
        "r": {"x": 2**62 + 3, "y": Decimal("-0.5")},
    }
    hours = {"hour": "10:00:00.123", "hours": [{"h": "00:00:01", "m": {"7": "00:00:00.002"}}]}
    every.upsert([{**full, **hours, "at": "2026-01-02T03:04:05Z"}, {"id": 2}])
    assert read(spark, url, every).collect() == []  # nothing is merged
    every.merge()
    rows = {row["id"]: row.asDict(recursive=True) for row in read(spark, url, every).collect()}
    found = rows[full["id"]]
    assert found.pop("hour") == 36_000_123  # milliseconds of the day, as in files
    assert found.pop("hours") == [{"h": 1000, "m": {7: 2}}]
    assert found.pop("at").astimezone(UTC) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    found["raw"] = bytes(found["raw"])
    assert found == full
    assert {value for name, value in rows[2].items() if name != "id"} == {None}


def test_shares_are_the_whole_table_of_one_snapshot(spark: SparkSession, url: str, table: MakeTable) -> None:
    one = table()
    one.upsert([{"id": number, "word": f"w{number % 3}", "n": number} for number in range(1000)])
    first = one.merge()["snapshotId"]
    one.upsert([{"id": 5000}])
    one.merge()
    frame = read(spark, url, one, partitions="7", asOf=str(first))
    assert frame.count() == 1000
    assert frame.selectExpr("count(distinct id)", "sum(n)").collect()[0][:] == (1000, 499_500)
    assert len(frame.selectExpr("spark_partition_id() as p").distinct().collect()) == 7
    some = read(spark, url, one, columns="n,id", filter="word.eq.w1\nid.lt.10")
    assert some.columns == ["n", "id"]
    assert sorted(row.id for row in some.collect()) == [1, 4, 7]
    assert read(spark, url, one).count() == 1001


QUERIES = [
    *("n > 990", "n >= 990 and word = 'w1'", "day = date'2026-01-05' or n < 3", "day = date'2026-01-05'"),
    *("word is null", "word = 'é \\'quoted\\', and.more'", "price <= 2.50 and n != 4"),
    "word > 'w1' and word is not null",
    "hour > 36000000",  # a TIME, a number for Spark alone
]


@pytest.mark.parametrize("query", QUERIES)
def test_filters_of_a_query_are_pushed_and_change_no_answer(
    spark: SparkSession, url: str, filtered: Table, query: str
) -> None:
    plain = read(spark, url, filtered).where(query)
    pushed = read(spark, url, filtered, pushFilters="true").where(query)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = sorted(row.id for row in pushed.collect())
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert found == sorted(row.id for row in plain.collect())
    assert found


@pytest.fixture(scope="module")
def filtered(client: Client) -> Table:
    columns = "id BIGINT PRIMARY KEY NOT ENFORCED, word STRING, n BIGINT, day DATE, price DECIMAL(6, 2), hour TIME(3)"
    [one] = client.create_tables("shop", f"CREATE TABLE filtered ({columns})")
    days = [date(2026, 1, 1 + number % 28) for number in range(1000)]
    words = {3: None, 7: "é 'quoted', and.more"}
    one.upsert(
        {
            "id": n,
            "word": words.get(n, f"w{n % 3}"),
            "n": n,
            "day": days[n],
            "price": Decimal(n) / 100,
            "hour": time(n % 24),
        }
        for n in range(1000)
    )
    one.merge()
    return one


def test_spark_says_which_setting_pushing_needs(spark: SparkSession, url: str, filtered: Table) -> None:
    with pytest.raises(Exception, match="filterPushdown"):
        read(spark, url, filtered, pushFilters="true").where("n > 5").collect()


def test_what_is_pushed_is_what_the_service_sees_as_spark_does() -> None:
    kinds = {"word": "STRING", "n": "BIGINT", "b": "BOOLEAN", "d": "DOUBLE", "hour": "TIME"}
    asked = [EqualTo(("word",), "w1"), GreaterThan(("n",), 5), IsNull(("word",)), EqualTo(("r", "x"), 1)]
    assert [_text_of(one, kinds) for one in asked] == ["word.eq.w1", "n.gt.5", "word.is.null", None]
    others = [GreaterThan(("word",), "a"), EqualTo(("b",), True), EqualTo(("d",), 0.5), EqualTo(("hour",), 1)]
    assert {_text_of(other, kinds) for other in others} == {None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "n"}, "unknown options: colums"),
        ({"partitions": "0"}, "partitions"),
        ({"columns": "x"}, "x"),
        ({"since": "1"}, "unknown options: since"),
        ({"pushFilters": "yes"}, "true or false"),
        ({"idempotencyKey": "a"}, "unknown options: idempotencykey"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, url: str, filtered: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, url, filtered, **options).collect()


def test_rows_are_appended_with_their_kinds(spark: SparkSession, url: str, table: MakeTable) -> None:
    one = table(**SUMS)
    frame = spark.range(60_000).selectExpr("id % 100 as id", "'x' as word", "1L as n").repartition(3)
    writer = frame.write.format("keyfold").option("url", url).mode("append")
    writer.option("idempotencyKey", "job-1").save(f"shop.{one.name}")
    writer.option("idempotencyKey", "job-1").save(f"shop.{one.name}")  # the same job again counts once
    backwards = frame.sortWithinPartitions("id", ascending=False)  # the same rows in another order, too
    again = backwards.write.format("keyfold").options(url=url, idempotencyKey="job-1").mode("append")
    again.save(f"shop.{one.name}")
    other = spark.sql("select 7L id, 'y' word, 1000L n").write.format("keyfold").mode("append")
    other.options(url=url, idempotencyKey="job-1").save(f"shop.{one.name}")  # other rows are not lost
    rows = table()
    rows.upsert([{"id": 5}, {"id": 6}])
    removed = spark.sql("select 5L id, '-D' _kind").write.format("keyfold").option("url", url)
    removed.mode("append").save(f"shop.{rows.name}")
    assert [row is None for row in rows.get_many([5, 6])] == [True, False]
    one.merge()
    assert {row["id"]: row["n"] for row in one.scan(["id", "n"])} == {**dict.fromkeys(range(100), 600), 7: 1600}
    with pytest.raises(Exception, match="append"):
        frame.write.format("keyfold").option("url", url).mode("overwrite").save(f"shop.{one.name}")


def test_a_stream_writes_each_epoch_once_and_reads_changes(
    spark: SparkSession, url: str, table: MakeTable, tmp_path: Path
) -> None:
    source = table("id BIGINT PRIMARY KEY NOT ENFORCED, n BIGINT", **{"changelog-producer": "lookup"})
    columns = "id BIGINT, snapshot BIGINT, kind STRING, n BIGINT, PRIMARY KEY (id, snapshot, kind) NOT ENFORCED"
    copy = table(columns, **SUMS)  # what came twice would be seen
    options = {"url": url, "changes": "true", "since": "1"}

    def run() -> None:
        changes = spark.readStream.format("keyfold").options(**options).load(f"shop.{source.name}")
        rows = changes.selectExpr("id", "_snapshot as snapshot", "`_kind` as kind", "n")
        query = (
            rows.writeStream.format("keyfold")
            .options(url=url, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start(path=f"shop.{copy.name}")
        )
        assert query.awaitTermination(120)

    for n in (5, 4):
        source.upsert([{"id": 1, "n": n}], wait=60)
    run()
    source.upsert([{"id": 1, "n": 3}], wait=60)
    run()  # goes on where it was
    for name in ("1", ".1.crc"):
        (tmp_path / "commits" / name).unlink()
    run()  # as after a crash between the last write and its commit: the epoch is run again
    copy.merge()
    assert sorted((row["snapshot"], row["kind"], row["n"]) for row in copy.scan()) == [
        (1, "+I", 5),
        (2, "+U", 4),
        (2, "-U", 5),
        (3, "+U", 3),
        (3, "-U", 4),
    ]


PROGRAM = """
import os, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from keyfold_client import spark as source

class Dying(source._Writer):
    def write(self, iterator):
        told = super().write(iterator)
        if TaskContext.get().attemptNumber() == 0:
            os._exit(9)  # stored, and Spark never hears of it
        return told

class Source(source.KeyfoldSource):
    def writer(self, schema, overwrite):
        made = super().writer(schema, overwrite)
        return Dying(made._settings, made._job)

session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
session.dataSource.register(Source)
frame = session.range(60_000).selectExpr("id % 100 as id", "1L as n").repartition(2)
frame.write.format("keyfold").option("url", sys.argv[1]).mode("append").save(sys.argv[2])
session.stop()
"""


def test_a_task_that_is_killed_when_its_rows_are_stored_counts_once(
    client: Client, url: str, table: MakeTable, tmp_path: Path
) -> None:
    one = table(**SUMS)
    own = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}  # of Spark Connect
    environment = {**own, "JAVA_HOME": str(find_java().parent.parent), "PYSPARK_PYTHON": sys.executable}
    program = [sys.executable, "-c", PROGRAM, url, f"shop.{one.name}"]
    run: dict[str, Any] = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(program, check=False, timeout=300, **run)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Lost task" in done.stderr
    one.merge()
    assert [row["n"] for row in one.scan(["n"])] == [600] * 100
