"""Where no key comes twice in a merge, its job is told so; where nobody can be sure, it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from app.core.table.history import Table, TaskState
from app.services.executor import MergeSite
from app.services.lookups import Images
from app.services.merges import MOST_COMPARED_BATCHES
from tests.services.builders import SUM, create_table, post, schema, totals
from tests.services.damaged import files_in, flip
from tests.services.executor import PythonExecutor
from tests.services.test_altered_tables import alter
from tests.services.test_small_merges import merge

Batches = Sequence[Sequence[Mapping[str, Any]]]


def merged(site: MergeSite, table: Table, batches: Batches) -> None:
    for records in batches:
        post(site.database, site.warehouse, *records)
    assert merge(site, table).state is TaskState.SUCCEEDED


@pytest.mark.parametrize(
    ("batches", "lifted"),
    [
        ([[{"id": 1, "n": 1}, {"id": 2, "n": 2}]], 1),
        ([[{"id": 1, "n": 1}], [{"id": 2, "n": 2}]], 1),
        ([[{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 4}]], 0),
        ([[{"id": 1, "n": 1}], [{"id": 2, "n": 2}, {"id": 1, "n": 4}]], 0),
    ],
)
def test_keys_are_compared_across_the_batches_of_a_merge(
    batches: Batches, lifted: int, site: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = create_table(site.database)
    merged(site, table, batches)
    assert (executor.merges, executor.lifted) == (1, lifted)
    told = [record for records in batches for record in records]
    assert totals(site.database, images, table, [1, 2]) == [
        sum(record["n"] for record in told if record["id"] == key) for key in (1, 2)
    ]


def test_many_batches_are_not_opened_for_it(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    for batches, lifted in ((MOST_COMPARED_BATCHES, 1), (MOST_COMPARED_BATCHES + 1, 1)):
        merged(site, table, [[{"id": number, "n": 1}] for number in range(batches)])
        assert executor.lifted == lifted
    assert executor.merges == 2


def test_records_of_an_older_schema_are_not_compared(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    alter(site, table, (1, "n"), (2, "m"), options=dict(SUM))
    assert merge(site, table).state is TaskState.SUCCEEDED
    assert (executor.merges, executor.lifted) == (1, 0)


def test_values_that_a_fold_writes_anew_are_folded(site: MergeSite, executor: PythonExecutor) -> None:
    options = {"merge-engine": "aggregation", "fields.b.aggregate-function": "rbm32"}
    with site.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(("id", "INT"), ("b", "BYTES"), options=options))
    merged(site, table, [[{"id": 1, "b": None}]])
    assert (executor.merges, executor.lifted) == (1, 0)


def test_a_damaged_batch_is_told_as_before(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    [file] = files_in(site.warehouse, table.id, "staging")
    flip(file)
    task = merge(site, table)
    assert task.state is TaskState.FAILED
    assert "staging/" in str(task.error)
    assert executor.merges == 0
