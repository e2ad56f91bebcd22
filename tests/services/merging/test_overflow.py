"""Merges of totals that leave their column's type: the merge fails, names the key, and keeps its batches staged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.core.table.history import BatchState, Table, TaskState
from app.files.layout import data_file
from app.kernel.tasks import Job, Progress, Result, Work
from app.services.rows.lookups import Consistency, Images, get_row
from app.services.shared.executor import MergeSite
from tests.catalog.builders import CATALOGS
from tests.core.rules.test_replayed_totals import GROUP, PRODUCT, SEQUENCE
from tests.services.builders import SUM, back_to, batches_of, create_table, merge, post, snapshot_of
from tests.services.executor import InterruptedExecutor, PythonExecutor
from tests.services.one_catalog import catalog_kind

__all__ = ["catalog_kind"]


def create(database: CatalogDatabase, options: Mapping[str, str]) -> Table:
    """``shop.wide`` with a key, a sequence ``g`` and a TINYINT ``n``."""
    return create_table(database, options, columns=(("id", "BIGINT"), ("g", "INT"), ("n", "TINYINT")))


def number(site: MergeSite, images: Images, consistency: Consistency = Consistency.MERGED) -> Any:
    """The column ``n`` of the row 7."""
    with site.database.reading() as repository:
        found = get_row(repository, images, repository.tables.get("shop", "wide"), ["7"], consistency)
    return (found.row or {})["n"]


@pytest.mark.parametrize("options", [SUM, GROUP, SEQUENCE, PRODUCT], ids=["sum", "group", "sequence", "product"])
def test_a_total_that_leaves_its_column_fails_the_merge_and_names_the_key(
    site: MergeSite, images: Images, options: dict[str, str]
) -> None:
    table = create(site.database, options)
    assert merge(site, table, {"id": 7, "g": 1, "n": 100}, {"id": 8, "g": 1, "n": 1}).state is TaskState.SUCCEEDED
    too_much = post(site.database, site.warehouse, {"id": 8, "g": 2, "n": 2}, {"id": 7, "g": 2, "n": 100})
    failed = merge(site, table)
    assert failed.state is TaskState.FAILED
    assert "column 'n' of key {'id': 7}: its total is out of range for TINYINT" in (failed.error or "")
    assert number(site, images) == 100
    assert [batch.state for batch in batches_of(site.database, table)] == [BatchState.MERGED, BatchState.STAGED]
    with site.database.transaction() as repository:
        repository.batches.delete_staged(table.id, too_much.id)
    assert merge(site, table, {"id": 7, "g": 3, "n": 1}).state is TaskState.SUCCEEDED


def test_a_quotient_without_end_says_so(site: MergeSite) -> None:
    removed = {"sequence.field": "g", "aggregation.remove-record-on-delete": "true"}
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "product", **removed}
    table = create_table(site.database, options, columns=(("id", "BIGINT"), ("g", "INT"), ("n", "DECIMAL(6, 2)")))
    error = merge(site, table, {"id": 7, "g": 1, "n": 2}, {"id": 7, "g": 2, "n": 3, "_kind": "-U"}).error or ""
    assert "column 'n' of key {'id': 7}" in error
    assert "quotient without end" in error
    assert "out of range" not in error


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_merge_reads_no_footer_of_a_run_whose_ranges_the_catalog_has(site: MergeSite, catalog_url: str) -> None:
    table = create_table(site.database)
    for number in (5, -7):
        assert merge(site, table, {"id": 7, "n": number}).state is TaskState.SUCCEEDED
    again = replace(site, database=CatalogDatabase(catalog_url))
    snapshot = snapshot_of(again.database, table)
    assert [run.totals for run in snapshot.runs] == [{"n": ["0", "5"]}, {"n": ["-7", "0"]}]
    for run in snapshot.runs:
        Path(site.warehouse.path(*data_file(table.id, run.id, run.files[0].name))).unlink()
    assert merge(again, table, {"id": 7, "n": 1}).state is TaskState.SUCCEEDED
    again.database.close()


@pytest.mark.parametrize("catalog_kind", CATALOGS)
@pytest.mark.parametrize(("second", "state"), [(27, TaskState.SUCCEEDED), (28, TaskState.FAILED)])
def test_footers_have_the_ranges_of_older_runs(
    site: MergeSite, catalog_url: str, second: int, state: TaskState
) -> None:
    table = create(site.database, SUM)
    merge(site, table, {"id": 7, "n": 100})
    with site.database.transaction() as repository:
        repository.transaction.execute(sa.text("UPDATE runs SET totals = NULL, checksum = NULL"))
    again = replace(site, database=CatalogDatabase(catalog_url))
    assert merge(again, table, {"id": 7, "n": second}).state is state
    again.database.close()


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_a_rollback_beside_a_merge_lets_no_total_leave_its_column(
    site: MergeSite, images: Images, producer: str
) -> None:
    table = create(site.database, SUM | {"changelog-producer": producer})
    merge(site, table, {"id": 7, "n": 100})
    merge(site, table, {"id": 7, "n": -100})
    interrupted = replace(site, executor=InterruptedExecutor(lambda: back_to(site, table, 1)))
    failed = merge(interrupted, table, {"id": 7, "n": 100})
    assert failed.state is TaskState.FAILED
    assert "column 'n' of key {'id': 7}: its total is out of range for TINYINT" in (failed.error or "")
    assert number(site, images) == 100


def test_a_rollback_after_the_check_of_totals_is_noticed(site: MergeSite, images: Images) -> None:
    """The rows that were checked are not the rows below the merge."""
    table = create(site.database, SEQUENCE)  # each merge looks at the older rows of its keys
    merge(site, table, {"id": 7, "g": 1, "n": 100})
    merge(site, table, {"id": 7, "g": 2, "n": -100})
    executor = PythonExecutor()
    run = executor.run

    def checked(tag: str, job: Job, report: Progress) -> list[Result]:
        results = run(tag, job, report)
        if {task.work for task in job.tasks} == {Work.OVERFLOW}:
            back_to(site, table, 1)
        return results

    executor.run = checked  # type: ignore[method-assign]
    assert merge(replace(site, executor=executor), table, {"id": 7, "g": 3, "n": 100}).state is TaskState.FAILED
    assert number(site, images) == 100
    assert "out of range" in (merge(site, table).error or "")
