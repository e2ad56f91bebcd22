"""Keys are taken out of what Spark has written, and Spark goes on with what is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.core.table.keys import key_from_json
from app.core.table.schema import TableSchema
from app.core.table.upkeep.forgetting import ForgettingState
from app.files.layout import Warehouse
from app.services.rows.lookups import Consistency, Images, get_rows
from app.services.shared.executor import MergeSite
from app.services.upkeep.forgettings import ask_to_forget
from spark_jobs.executor import SparkJobs
from tests.services.builders import compact, snapshot_of
from tests.services.upkeep.forgetting import forget, gone, known, merged, traces

FIELDS = (
    ("day", "DATE"),
    ("flag", "BOOLEAN"),
    ("amount", "DECIMAL(38, 2)"),
    ("real", "DOUBLE"),
    ("zoned", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("bytes", "VARBINARY(20)"),
    ("name", "STRING"),
    ("total", "DECIMAL(10, 2)"),
    ("words", "ARRAY<STRING>"),
    ("about", "ROW<street STRING, seen TIMESTAMP(6)>"),
    ("counts", "MAP<STRING, INT>"),
)
STREET = "Lovelace Lane"


@pytest.fixture
def site(spark_remote: str, tmp_path: Path, sqlite_template: Path) -> Iterator[MergeSite]:
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    database = CatalogDatabase(f"sqlite:///{tmp_path}/catalog.sqlite")
    jobs = SparkJobs(spark_remote)
    yield MergeSite(database, Warehouse(str(tmp_path / "warehouse")), jobs, 600)
    jobs.close()
    database.close()


def record(number: int, turn: int = 0) -> dict[str, Any]:
    secret = STREET if number == 3 else "elsewhere"
    return {
        "day": "2026-03-01",
        "flag": bool(number % 2),
        "amount": f"{number}.50",
        "real": -0.0 if number % 2 else 1e300,
        "zoned": "2026-03-01T10:00:00.001Z",
        "bytes": "AAEC",
        "name": f"ä𝄞/{number}",
        "total": f"{turn}.25",
        "words": [secret, None],
        "about": {"street": f"{secret} {turn}", "seen": "2026-03-01T10:00:00.000001"},
        "counts": {secret: number},
    }


def test_rows_that_spark_wrote_are_left_out_and_the_rest_is_merged_and_compacted(
    site: MergeSite, tmp_path: Path
) -> None:
    options = {
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
        "num-sorted-run.compaction-trigger": "99",
        "merge.max-staleness": "1 d",
    }
    keys = [name for name, _ in FIELDS[:7]]
    declared = {"fields": [{"name": name, "type": kind} for name, kind in FIELDS], "primaryKeys": keys}
    schema = TableSchema.from_json({**declared, "partitionKeys": ["day"], "options": options})
    with site.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "people", schema)
    images = Images(tmp_path / "images", site.warehouse)
    every = [{name: record(number)[name] for name in keys} for number in range(40)]

    def rows(latest: Table = table) -> list[Any]:
        with site.database.reading() as repository:
            wanted = [key_from_json(latest.schema, key, "") for key in every]
            now = repository.tables.existing(latest.id)
            return [row.body for row in get_rows(repository, images, now, wanted, Consistency.MERGED)]

    merged(site, table, *(record(number) for number in range(40)))
    merged(site, table, *(record(number, 1) for number in range(20)))
    before = rows()
    with site.database.transaction() as repository:
        one = ask_to_forget(repository, repository.tables.existing(table.id), [every[3]], "officer")
    assert forget(site) == 1
    assert rows() == [*before[:3], None, *before[4:]]
    compact(site, table)
    assert rows() == [*before[:3], None, *before[4:]]
    current = snapshot_of(site.database, table)
    assert current is not None
    assert (current.rows, current.stored_rows) == (39, 39)
    assert known(site, one).state is ForgettingState.FORGOTTEN
    assert gone(site, one).state is ForgettingState.GONE
    assert traces(tmp_path / "warehouse", f"{STREET} 0", f"{STREET} 1") == []
    images.close()
