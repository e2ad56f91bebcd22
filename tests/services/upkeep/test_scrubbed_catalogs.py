"""Scrubs of the catalog itself: rows and footers that do not match are reported, and keep no other table unchecked."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.shared import checksums
from app.catalog.shared.models import data_files, runs
from app.core.errors import DamagedCatalog
from app.core.table.history import Run, Table
from app.files.layout import Warehouse
from app.services.shared.executor import MergeSite
from app.services.upkeep.scrubs import FIRST_SECONDS, ROUND_SECONDS, Finding, scrub, verify
from app.telemetry.entries import Counted
from tests.services.builders import QUIET, SUM, create_table, merge_staged, post, snapshot_of
from tests.services.upkeep.test_scrubs import Watch

OPTIONS = SUM | QUIET


@pytest.fixture
def table(database: CatalogDatabase, warehouse: Warehouse) -> Table:
    """A table with two merges and a batch that waits, and another one like it."""
    made = [create_table(database, OPTIONS, name=name) for name in ("wide", "other")]
    for one in made:
        for number in range(2):
            post(database, warehouse, {"id": number, "n": 1}, {"id": 7, "n": 1}, name=one.name)
            merge_staged(database, warehouse, one.id)
        post(database, warehouse, {"id": 2, "n": 1}, name=one.name)
    return made[0]


def change(database: CatalogDatabase, statement: str, table: Table) -> None:
    with database.transaction() as repository:
        repository.transaction.execute(sa.text(statement), {"table": table.id})


def said_of(findings: list[Finding]) -> list[str]:
    return [finding.damage.message for finding in findings if isinstance(finding.damage, DamagedCatalog)]


def first_run(database: CatalogDatabase, table: Table) -> Run:
    return snapshot_of(database, table).runs[0]


ROWS = [
    ("UPDATE data_files SET max_token = max_token - 1 WHERE table_id = :table", 2, "run .* is not what was stored"),
    ("UPDATE runs SET live_rows = live_rows + 1 WHERE table_id = :table", 2, "run .* is not what was stored"),
    ("UPDATE runs SET totals = '{}' WHERE table_id = :table", 2, "run .* is not what was stored"),
    ("UPDATE snapshots SET schema_id = 1 WHERE table_id = :table AND id = 1", 1, "list of runs of snapshot 1 of"),
    ("DELETE FROM snapshot_runs WHERE table_id = :table AND snapshot_id = 1", 1, "list of runs of snapshot 1 of"),
    ("UPDATE batches SET records = 9 WHERE table_id = :table AND state = 'merged'", 2, "batch .* is not what"),
    ("UPDATE table_schemas SET body = replace(body, 'BIGINT', 'INT') WHERE table_id = :table", 1, "schema 0 of table"),
]


@pytest.mark.parametrize(("statement", "count", "reported"), ROWS)
def test_a_changed_row_is_reported_and_the_other_table_is_read(
    site: MergeSite, table: Table, statement: str, count: int, reported: str
) -> None:
    assert said_of([*verify(site.database, site.warehouse)]) == []
    first_run(site.database, table)  # what a process has loaded is compared as well
    change(site.database, statement, table)
    found = [*verify(site.database, site.warehouse)]
    messages = said_of(found)
    assert len(messages) == count
    for message in messages:
        assert "docs/damage.md#a-damaged-catalog" in message
        assert table.id in message
        assert re.search(reported, message)
    read = {one.file.table_id for one in found if one.file is not None}
    assert len(read) == 1
    assert table.id not in read


@pytest.mark.parametrize("column", ["rows", "min_token", "max_token"])
def test_what_only_the_footer_can_tell_is_reported(
    site: MergeSite, catalog_url: str, table: Table, column: str
) -> None:
    run = first_run(site.database, table)
    with site.database.transaction() as repository:
        execute = repository.transaction.execute
        flipped = {column: data_files.c[column] + 1}
        execute(data_files.update().where(data_files.c.run_id == run.id).values(flipped))
        execute(runs.update().where(runs.c.id == run.id).values(checksum=None))
    again = CatalogDatabase(catalog_url)
    with again.reading() as repository:
        [changed] = [one for one in repository.snapshots.every_run(table.id) if one.id == run.id]
    with again.transaction() as repository:
        values = {"checksum": checksums.of_run(table.id, changed)}
        repository.transaction.execute(runs.update().where(runs.c.id == run.id).values(values))
    again.close()
    found = [*verify(site.database, site.warehouse)]
    [message] = said_of(found)
    assert f"{table.id}/runs/{run.id}/{run.files[0].name}" in message
    assert f"but the file has {run.files[0].rows} with tokens from {run.files[0].min_token} to" in message
    assert len([one for one in found if one.damage is None]) == 9


@pytest.mark.parametrize(
    ("of", "whole", "reported"),
    [
        ("batches", True, ["its file cannot be read", "the rows of table shop.wide cannot be read"]),
        ("ix_batches_staged", False, ["SQLite says: row 1 missing from index ix_batches_staged"]),
    ],
)
def test_a_page_of_the_file_that_was_overwritten_is_reported(
    tmp_path: Path, sqlite_template: Path, of: str, whole: bool, reported: list[str]
) -> None:
    shutil.copy(sqlite_template, tmp_path / "catalog.db")
    database, warehouse = CatalogDatabase(f"sqlite:///{tmp_path}/catalog.db"), Warehouse(str(tmp_path / "warehouse"))
    made = create_table(database, OPTIONS)
    for number in range(2):
        post(database, warehouse, {"id": number, "n": 1})
    with database.reading() as repository:
        page_of = sa.text("SELECT rootpage FROM sqlite_master WHERE name = :of")
        page = repository.transaction.execute(page_of, {"of": of}).scalar_one()
        size = repository.transaction.execute(sa.text("PRAGMA page_size")).scalar_one()
    assert said_of([*verify(database, warehouse)]) == []
    database.close()
    content = bytearray((tmp_path / "catalog.db").read_bytes())
    place = slice((page - 1) * size, page * size)
    entry = made.id.encode()
    content[place] = b"\xa5" * size if whole else content[place].replace(entry, b"x" + entry[1:])
    (tmp_path / "catalog.db").write_bytes(content)
    messages = said_of([*verify(database, warehouse)])
    for one in reported:
        assert [message for message in messages if one in message]
    assert all("restore the catalog from a backup" in message for message in messages)
    database.close()


def test_faults_are_logged_and_counted_until_the_catalog_is_well(
    site: MergeSite, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    counted = []
    changes = iter(["UPDATE runs SET live_rows = live_rows + 1", "UPDATE runs SET live_rows = live_rows - 1"])
    watch = Watch(ends_after=FIRST_SECONDS + 3 * ROUND_SECONDS)

    def wait(seconds: float) -> bool:
        if seconds in (FIRST_SECONDS, ROUND_SECONDS):
            [value] = site.database.metrics.totals()[Counted.CATALOG_FAULTS, ()]
            counted.append(value)
            if statement := next(changes, ""):
                change(site.database, f"{statement} WHERE table_id = :table", table)
        return watch.wait(seconds)

    scrub(site.database, site.warehouse, 10**9, wait, lambda: watch.now)
    assert counted == [0, 2, 0, 0]
    reported = [record for record in caplog.records if "the catalog is damaged" in record.getMessage()]
    assert [(one.levelname, one.exc_info) for one in reported] == [("ERROR", None)] * 2
