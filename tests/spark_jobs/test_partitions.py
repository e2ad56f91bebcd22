"""Partitions on Spark: one folder each, whatever their columns' types, and rows that stay in theirs."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from app.core.plan.jobs import CompactionJob, FileSizes, MergeJob, StoredRun
from app.core.plan.merge_plan import compile_plan
from app.core.plan.record_decoder import DecodedRecords
from app.core.table.history import Run
from app.core.table.keys import partition_of
from app.core.table.schema import TableSchema
from app.storage.layout import Warehouse, data_file, run_folder, staging_file
from app.storage.runs import read_runs, stored_files
from app.storage.staging import write_batch
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge
from spark_jobs.session import SparkConnection

VALUES: dict[str, tuple[str, list[Any]]] = {
    "a text": ("STRING", ["", "a/b=c%", "ä𝄞", "x" * 5000]),
    "day": ("DATE", [date(1969, 12, 31), date(2024, 2, 29)]),
    "amount": ("DECIMAL(38, 2)", [Decimal("-0.01"), Decimal("99999999999999999999.99")]),
    "moment": ("TIMESTAMP(6)", [datetime(2024, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1)]),
    "zoned": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [datetime(2024, 1, 1, tzinfo=UTC)]),
    "flag": ("BOOLEAN", [True, False]),
    "number": ("BIGINT", [-(2**63), 0, 2**63 - 1]),
    "real": ("DOUBLE", [0.0, 1e300]),
}


def schema(column: str, kind: str) -> TableSchema:
    fields = [{"name": column, "type": kind}, {"name": "id", "type": "INT"}, {"name": "n", "type": "BIGINT"}]
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    body = {"fields": fields, "primaryKeys": [column, "id"], "partitionKeys": [column], "options": options}
    return TableSchema.from_json(body)


class Site:
    """One partitioned table's files."""

    def __init__(self, spark: SparkConnection, folder: Path, declared: TableSchema) -> None:
        self.spark, self.schema, self.plan = spark, declared, compile_plan(declared)
        self.warehouse = Warehouse(str(folder))

    def merge(self, number: int, rows: list[tuple[Any, int, int]], sizes: FileSizes) -> tuple[Run, ...]:
        columns = {c.name: [row[i] for row in rows] for i, c in enumerate(self.schema.columns)}
        decoded = DecodedRecords(columns, [0] * len(rows), list(range(len(rows))))
        name, _ = write_batch(self.warehouse, "t", uuid.uuid4().hex, self.schema, decoded)
        folder = uuid.uuid4().hex
        batches = {self.warehouse.uri(*staging_file("t", name)): number}
        output = self.warehouse.uri(*run_folder("t", folder))
        with self.spark.job(folder) as session:
            run_merge(session, MergeJob(self.plan, batches, sizes, output, 0))
        return read_runs(self.warehouse, "t", folder, 0, self.schema)

    def compact(self, *ages: tuple[Run, ...]) -> tuple[Run, ...]:
        folder = uuid.uuid4().hex
        stored = [
            StoredRun(self.plan, tuple(file for run in runs for file in stored_files(self.warehouse, "t", run)))
            for runs in ages
        ]
        output = self.warehouse.uri(*run_folder("t", folder))
        sizes = FileSizes(10, 10, 10)
        with self.spark.job(folder) as session:
            run_compaction(session, CompactionJob(self.plan, tuple(stored), sizes, output, 0, oldest=True))
        return read_runs(self.warehouse, "t", folder, 0, self.schema)

    def rows(self, runs: tuple[Run, ...]) -> dict[str | None, list[tuple[Any, ...]]]:
        found: dict[str | None, list[tuple[Any, ...]]] = {}
        for run in runs:
            for file in run.files:
                path = self.warehouse.path(*data_file("t", run.id, file.name))
                names = [column.name for column in self.schema.columns]
                rows = pq.read_table(path, partitioning=None).to_pylist()
                found.setdefault(run.partition, []).extend(tuple(row[name] for name in names) for row in rows)
        return {partition: sorted(rows, key=str) for partition, rows in found.items()}


def test_partitions_of_every_kind_have_their_own_runs(spark: SparkConnection, tmp_path: Path) -> None:
    for number, (column, (kind, values)) in enumerate(VALUES.items()):
        site = Site(spark, tmp_path / f"{number} a=b %20 ä", schema(column, kind))
        older = site.merge(1, [(value, key, 1) for value in values for key in (1, 2)], FileSizes(9, 9, 9))
        newer = site.merge(2, [(value, 2, 10) for value in values[:1]], FileSizes(1, 9, 9))
        names = [partition_of(site.schema, (value, 1)) for value in values]
        assert sorted(site.rows(older)) == sorted(names)
        assert list(site.rows(newer)) == names[:1]
        assert site.rows(site.compact(older, newer)) == {
            name: sorted(((value, 1, 1), (value, 2, 11 if place == 0 else 1)), key=str)
            for place, (name, value) in enumerate(zip(names, values, strict=True))
        }, column


def test_a_partition_has_files_of_disjoint_token_ranges(spark: SparkConnection, tmp_path: Path) -> None:
    site = Site(spark, tmp_path, schema("day", "DATE"))
    days = [date(2024, 1, day) for day in (1, 2)]
    rows = [(day, key, 1) for day in days for key in range(200)]
    runs = site.merge(1, rows, FileSizes(len(rows), 4000, 1000))
    assert len(runs) == 2
    for run in runs:
        assert len(run.files) == 4
        ends = [(file.min_token, file.max_token) for file in run.files]
        assert all(one[1] < other[0] for one, other in pairwise(ends))
    assert {partition: len(found) for partition, found in site.rows(runs).items()} == {
        '{"day":"2024-01-01"}': 200,
        '{"day":"2024-01-02"}': 200,
    }
