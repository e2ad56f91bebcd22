"""What Spark reads of published tables with Delta's and Iceberg's packages, and through the client's data source: a
Spark beside the service's.

The packages come from Maven Central. Where they cannot be had, the tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from app.core.table.published import Format
from app.core.table.schema import TableSchema
from bench.peers.spark_environment import NO_JAVA, NO_PACKAGES, SPARK_VERSION, has_java, lacks_packages, variables
from tests.acceptance.test_published import ASSEMBLED, KEYS, created, published, record, state_of
from tests.acceptance.test_restart import until
from tests.delta_readers import Rows, as_answered, plain
from tests.environments import made_by_make
from tests.service import Client, TableClient
from tests.services.publishing.test_published_histories import TYPES

ROOT = Path(__file__).parents[2]
READ = Path(__file__).parent / "spark_readers" / "read.py"
pytestmark = pytest.mark.slow(reason="starts a Spark beside the service's")


class SparkReader:
    """A process with Spark that reads what it is asked for."""

    def __init__(self, python: Path, service: str, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "spark.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [python, READ, service],
                cwd=folder,
                env={
                    **variables(),
                    "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "clients" / "python"))),
                    "PYSPARK_PYTHON": str(python),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # Spark says where it gets its packages from, too
                answer: dict[str, Any] = json.loads(line)
                return answer
        return {"error": self.log.read_text()}

    def rows(self, form: Format, table: TableClient, as_of: int | None = None) -> Rows:
        earlier = {} if as_of is None else {"asOf": as_of}
        return self.read({"format": form, "path": state_of(table)["path"], "table": table.name, **earlier})

    def read(self, asked: Mapping[str, Any]) -> Rows:
        assert self.process.stdin is not None
        to = self.folder / "rows.arrow"
        print(json.dumps({**asked, "to": str(to)}), file=self.process.stdin, flush=True)
        answer = self.answer()
        assert "error" not in answer, answer["error"]
        with pa.OSFile(str(to)) as source, pa.ipc.open_stream(source) as stream:
            return plain(stream.read_all())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def spark(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkReader]:
    if not has_java():
        pytest.skip(NO_JAVA)
    folder = tmp_path_factory.mktemp("spark")
    python = made_by_make(".venv-spark-readers/.installed").parent / "bin" / "python"
    reader = SparkReader(python, str(client.base_url).rstrip("/"), folder)
    try:
        answer = reader.answer()
        if lacks_packages(answer.get("error", "")):
            pytest.skip(NO_PACKAGES)
        assert answer.get("ready") == SPARK_VERSION, answer
        yield reader
    finally:
        reader.close()


def lookups(table: TableClient, keys: int, schema: Mapping[str, Any]) -> list[Any]:
    found = table.batch_get([{"id": key} for key in range(keys)], consistency="merged")
    return in_order(row for row in found if row is not None)


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def read(spark: SparkReader, form: Format, table: TableClient, schema: Mapping[str, Any]) -> list[Any]:
    answered = as_answered(TableSchema.from_json(dict(schema)), spark.rows(form, table))
    return in_order(json.loads(row) for row in answered)


def test_spark_reads_what_lookups_answer_of_deleted_rows_every_type_and_after_an_alter(
    spark: SparkReader, client: Client
) -> None:
    table, random = created(client, "read_by_spark", ASSEMBLED), Random(7)
    for _ in range(2):
        table.post_batch([record(random) for _ in range(60)], wait=60).raise_for_status()
        assert table.finished(client.post(f"{table.path}/compact").json())["state"] == "succeeded"
    until(lambda: published(table), "the publication")
    wanted = lookups(table, KEYS, ASSEMBLED)
    for form in Format:
        assert read(spark, form, table, ASSEMBLED) == wanted, form
    earlier = {form: state_of(table, form)[("version", "snapshotId")[form is Format.ICEBERG]] for form in Format}

    added = {"action": "addColumn", "fieldNames": ["more"], "dataType": "DOUBLE"}
    client.post(table.path, json={"changes": [added]}).raise_for_status()
    table.post_batch([{"id": 0, "at": "2027-01-01T00:00:00", "status": "late", "more": 0.5}], wait=60)
    assert table.finished(client.post(f"{table.path}/compact").json())["state"] == "succeeded"
    until(lambda: published(table), "the publication")
    altered = {**ASSEMBLED, "fields": [*ASSEMBLED["fields"], {"name": "more", "type": "DOUBLE"}]}
    now = lookups(table, KEYS, altered)
    for form in Format:
        assert read(spark, form, table, altered) == now, form
        # The ALTER gave the snapshot the new column, as a version of Delta, and as the same snapshot of Iceberg.
        rows = spark.rows(form, table, earlier[form])
        assert {row.pop("more", None) for row in rows} == {None}
        before = as_answered(TableSchema.from_json(dict(ASSEMBLED)), rows)
        assert in_order(json.loads(row) for row in before) == wanted, form

    fields = [{"name": "id", "type": "BIGINT"}, *({"name": f"c{n}", "type": kind} for n, kind in enumerate(TYPES))]
    schema = {"fields": fields, "primaryKeys": ["id"], "options": {one.publish: "true" for one in Format}}
    typed = created(client, "typed_for_spark", schema)
    row = {"id": 1, **{f"c{n}": value for n, value in enumerate(TYPES.values())}}
    assert typed.post_batch([row, {"id": 2}], wait=60).raise_for_status().json()["state"] == "merged"
    until(lambda: published(typed), "the publication")
    for form in Format:
        assert read(spark, form, typed, schema) == lookups(typed, 3, schema), form


def test_spark_reads_every_merge_of_a_table_whose_changes_are_looked_up(spark: SparkReader, client: Client) -> None:
    options = {**ASSEMBLED["options"], "changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "99"}
    options |= {one.interval: "1 s" for one in Format}
    schema = {**ASSEMBLED, "options": options}
    table, random = created(client, "followed_by_spark", schema), Random(8)
    for _ in range(2):
        table.post_batch([record(random) for _ in range(60)], wait=60).raise_for_status()
        until(lambda: published(table), "the publication")
        wanted = lookups(table, KEYS, schema)
        for form in Format:
            assert read(spark, form, table, schema) == wanted, form
    added = {"action": "addColumn", "fieldNames": ["more"], "dataType": "DOUBLE"}
    client.post(table.path, json={"changes": [added]}).raise_for_status()
    table.post_batch([{"id": 0, "at": "2027-01-01T00:00:00", "status": "late", "more": 0.5}], wait=60)
    until(lambda: published(table), "the publication")
    altered = {**schema, "fields": [*schema["fields"], {"name": "more", "type": "DOUBLE"}]}
    for form in Format:
        assert read(spark, form, table, altered) == lookups(table, KEYS, altered), form
    kinds = [snapshot["kind"] for snapshot in client.get(f"{table.path}/snapshots").json()["snapshots"]]
    assert set(kinds) == {"merge"}


def test_the_data_source_reads_and_writes_in_the_oldest_spark_that_it_takes(spark: SparkReader, client: Client) -> None:
    fields = [{"name": "id", "type": "BIGINT"}, *({"name": f"c{n}", "type": kind} for n, kind in enumerate(TYPES))]
    schema = {"fields": fields, "primaryKeys": ["id"], "options": {}}
    table, copy = created(client, "read_by_source", schema), created(client, "written_by_source", schema)
    row = {"id": 1, **{f"c{n}": value for n, value in enumerate(TYPES.values())}}
    table.post_batch([row, {"id": 2}], wait=60).raise_for_status()
    asked = {"format": "keyfold", "table": table.name, "into": copy.name}
    found = as_answered(TableSchema.from_json(schema), spark.read(asked))
    wanted = lookups(table, 3, schema)
    assert in_order(json.loads(row) for row in found) == wanted
    rows = copy.batch_get([{"id": key} for key in range(3)])
    assert in_order(row for row in rows if row is not None) == wanted
