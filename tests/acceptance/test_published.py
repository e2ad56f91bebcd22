"""What tables publish that real Spark merges and compacts, read by other engines; ``kill -9`` at any moment."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import polars
import pytest
from pyiceberg.catalog import load_catalog

from app.core.table.published import Format
from app.core.table.schema import TableSchema
from tests.acceptance.test_restart import SETTINGS, api, until
from tests.delta_readers import READERS, as_answered
from tests.iceberg_readers import OVER_HTTP, duckdb_extensions
from tests.service import Client, TableClient, serving
from tests.services.publishing.test_published_histories import TYPES

KEYS = 40
COLUMNS = {
    "id": "BIGINT",
    "at": "TIMESTAMP(3)",
    "booked": "TIMESTAMP(3)",
    "status": "STRING",
    "paid": "DECIMAL(10, 2)",
    "tags": "ARRAY<STRING>",
    "last": "ROW<a INT, b MAP<STRING, DATE>>",
}
ASSEMBLED: Mapping[str, Any] = {
    "fields": [{"name": name, "type": kind} for name, kind in COLUMNS.items()],
    "primaryKeys": ["id"],
    "options": {
        "merge-engine": "partial-update",
        "fields.at.sequence-group": "status,last",
        "fields.booked.sequence-group": "paid,tags",
        "fields.paid.aggregate-function": "sum",
        "fields.tags.aggregate-function": "collect",
        "fields.tags.ignore-retract": "true",
        "partial-update.remove-record-on-sequence-group": "at",
        "record.absent-columns": "unchanged",
        "num-sorted-run.compaction-trigger": "99",
        "delta.publish": "true",
        "iceberg.publish": "true",
    },
}
SUM: Mapping[str, Any] = {
    "fields": [{"name": "id", "type": "BIGINT"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "merge.max-staleness": "100 ms",
        "delta.publish": "true",
        "delta.publish.interval": "1 s",
        "iceberg.publish": "true",
        "iceberg.publish.interval": "1 s",
    },
}


def created(client: Client, name: str, schema: Mapping[str, Any]) -> TableClient:
    client.post("/v1/catalog/databases", json={"name": "lake"})
    client.create_table("lake", name, schema).raise_for_status()
    return TableClient(client, "lake", name)


def state_of(table: TableClient, form: str = "delta") -> dict[str, Any]:
    answer: dict[str, Any] = table.client.get(f"{table.path}/{form}").raise_for_status().json()
    return answer


def published(table: TableClient) -> bool:
    return all(state_of(table, form)["waiting"] is None for form in Format)


def check(table: TableClient, schema: Mapping[str, Any]) -> None:
    """All engines read what all lookups answer."""
    found = table.batch_get([{"id": key} for key in range(KEYS)], consistency="merged")
    wanted = sorted(json.dumps(row, sort_keys=True) for row in found if row is not None)
    of_table = TableSchema.from_json(dict(schema))
    folder = unquote(urlsplit(state_of(table)["path"]).path)
    service = str(table.client.base_url).rstrip("/")
    found_by = {f"delta {name}": reader(folder) for name, reader in READERS.items()}
    found_by |= {f"iceberg {name}": reader(service, table.name) for name, reader in OVER_HTTP.items()}
    for name, rows in found_by.items():
        read = as_answered(of_table, rows)
        assert sorted(json.dumps(json.loads(row), sort_keys=True) for row in read) == wanted, name


def record(random: Random) -> dict[str, Any]:
    one: dict[str, Any] = {"_kind": random.choice(("+I", "+I", "+U", "-D")), "id": random.randrange(KEYS)}
    return one | {
        "at": f"2026-01-{random.randint(1, 28):02}T10:00:00",
        "booked": f"2026-01-{random.randint(1, 28):02}T11:00:00",
        "status": random.choice((None, "", "new", "ä𝄞")),
        "last": random.choice((None, {"a": 1, "b": [["x", "2026-01-01"], ["y", None]]})),
        "paid": random.choice(("1.25", "-3.00")),
        "tags": random.choice((["a"], ["b", None], [])),
    }


@pytest.mark.slow(reason="merges and compacts on Spark")
def test_engines_read_what_lookups_answer_after_each_compaction(client: Client) -> None:
    table, random = created(client, "assembled", ASSEMBLED), Random(5)
    for turn in range(2):
        for _ in range(random.randint(1, 3)):
            table.post_batch([record(random) for _ in range(60)], wait=60).raise_for_status()
        assert table.finished(client.post(f"{table.path}/compact").json())["state"] == "succeeded"
        until(lambda: published(table), "the publication")
        for form in Format:
            assert (state_of(table, form)["behindBatches"], state_of(table, form)["version"] >= turn) == (0, True)
        check(table, ASSEMBLED)


@pytest.mark.slow(reason="merges on Spark")
def test_every_type_is_read_as_spark_writes_it(client: Client) -> None:
    fields = [{"name": "id", "type": "BIGINT"}, *({"name": f"c{n}", "type": kind} for n, kind in enumerate(TYPES))]
    schema = {"fields": fields, "primaryKeys": ["id"], "options": {one.publish: "true" for one in Format}}
    table = created(client, "typed", schema)
    row = {"id": 1, **{f"c{n}": value for n, value in enumerate(TYPES.values())}}
    assert table.post_batch([row, {"id": 2}], wait=60).raise_for_status().json()["state"] == "merged"
    until(lambda: published(table), "the publication")
    check(table, schema)


@pytest.mark.slow(reason="merges on Spark")
@pytest.mark.parametrize("name", ["orders", "it's", 'a "b" c', "ä🙂", "a.b", "100%", "a+b"])
def test_the_lines_of_iceberg_can_be_pasted_whatever_the_table_is_called(client: Client, name: str) -> None:
    schema = {**SUM, "options": {**SUM["options"], "merge.max-staleness": "1 d"}}
    table = created(client, name, schema)
    assert table.post_batch([{"id": 1, "n": 5}], wait=60).raise_for_status().json()["state"] == "merged"
    until(lambda: published(table), "the publication")
    lines = state_of(table, "iceberg")["readBy"]
    known = {"load_catalog": load_catalog, "polars": polars}
    assert eval(lines["pyiceberg"], known).to_pylist() == [{"id": 1, "n": 5}]  # noqa: S307  # our own line
    assert eval(lines["polars"], known).rows() == [(1, 5)]  # noqa: S307  # the same
    query = lines["duckdb"].removeprefix("INSTALL iceberg; LOAD iceberg; ")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for extension in duckdb_extensions():  # there is no internet here: the wheels' own
            connection.load_extension(extension)
        assert connection.sql(query).fetchall() == [(1, 5)]


@pytest.mark.slow(reason="starts a service twice")
def test_what_a_process_had_committed_when_it_was_killed_is_published_by_the_next(
    tmp_path: Path, spark_remote: str
) -> None:
    with serving(tmp_path, **SETTINGS, spark_remote=spark_remote) as (service, client):
        table = created(client, "summed", SUM)
        log = Path(unquote(urlsplit(state_of(table)["path"]).path), "_delta_log")
        log.parent.mkdir()
        log.write_text("a file where the folder should be: nothing can be written after the commit")
        assert table.post_batch([{"id": 1, "n": 5}], wait=60).json()["state"] == "merged"
        state = state_of(table)
        assert (state["version"], state["behindBatches"]) == (None, 1)
        assert "about to write version 0" in state["waiting"]
        service.kill()
    log.unlink()
    with api(tmp_path, spark_remote) as (_, client):
        table = TableClient(client, "lake", "summed")
        until(lambda: state_of(table)["version"] == 0, "the publication")
        check(table, SUM)


@pytest.mark.slow(reason="starts a service several times")
def test_the_log_is_whole_whenever_processes_are_killed(tmp_path: Path, spark_remote: str) -> None:
    random, before = Random(3), None
    for turn in range(4):
        with api(tmp_path, spark_remote) as (service, client):
            if not turn:
                created(client, "summed", SUM)
            before = _published_anew(TableClient(client, "lake", "summed"), random, before)
            time.sleep(random.uniform(0, 1))
            service.kill()
    with api(tmp_path, spark_remote) as (_, client):
        table = TableClient(client, "lake", "summed")
        until(lambda: published(table), "the publication")
        check(table, SUM)
        folder = Path(unquote(urlsplit(state_of(table)["path"]).path), "_delta_log")
        numbers = sorted(int(path.stem) for path in folder.glob("*.json"))
        assert numbers == list(range(state_of(table)["version"] + 1))
        assert len(numbers) > 3


def _published_anew(table: TableClient, random: Random, before: int | None) -> int:
    """Post until a version comes after ``before``; its number."""

    def posted() -> bool:
        table.post_batch([{"id": random.randrange(KEYS), "n": 1} for _ in range(20)]).raise_for_status()
        return bool(state_of(table)["version"] != before)

    until(posted, "a publication")
    return int(state_of(table)["version"])
