"""Records of merged batches are kept for a while, and no longer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.table.history import Table
from app.services.explaining.history import KeptRecord, kept_since
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import sweep
from tests.catalog.builders import CATALOGS
from tests.services.builders import (
    NO_HISTORY,
    QUIET,
    SUM,
    back_to,
    batches_of,
    compact,
    create_table,
    merge,
    post,
    set_options,
)
from tests.services.clocks import SetClock, clock, database
from tests.services.kept import kept_of
from tests.services.upkeep.test_sweeps import age

__all__ = ["clock", "database"]

CALM = SUM | QUIET | {"num-sorted-run.compaction-trigger": "100"}


def swept(site: MergeSite) -> None:
    """After two hours in which nobody wrote a file."""
    age(site)
    sweep(site.database, site.warehouse)


def kept(site: MergeSite, table: Table, key: int, after: int = 0) -> Sequence[KeptRecord]:
    return kept_of(site.database, site.warehouse, table, key, after).records


def reported(site: MergeSite, table: Table, key: int, after: int = 0) -> list[tuple[int, int | None, Any]]:
    """The batch's number, its snapshot and the value ``n`` of each record that is kept."""
    found = kept(site, table, key, after)
    return [(one.batch.number, one.batch.snapshot_id, one.record.values["n"]) for one in found]


def begins(site: MergeSite, table: Table) -> int:
    with site.database.reading() as repository:
        return kept_since(repository, repository.tables.find(table.id) or table)


def test_merged_records_are_kept_in_merge_order_and_found_by_key(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 3})
    post(site.database, site.warehouse, {"id": 1, "n": 4})
    merge(site, table, {"id": 1, "n": 5}, {"id": 3, "n": 6})
    post(site.database, site.warehouse, {"id": 1, "n": 7})
    for _ in range(2):
        assert reported(site, table, 1) == [(1, 1, 1), (1, 1, 3), (2, 2, 4), (3, 2, 5)]
        assert reported(site, table, 1, 1) == [(2, 2, 4), (3, 2, 5)]
        assert reported(site, table, 1, 2) == []
        assert reported(site, table, 3) == [(3, 2, 6)]
        assert reported(site, table, 9) == []
        swept(site)
    assert begins(site, table) == 0


def test_a_table_without_history_keeps_no_record_and_no_file_for_it(site: MergeSite) -> None:
    table = create_table(site.database, CALM | NO_HISTORY)
    merge(site, table, {"id": 1, "n": 1})
    assert reported(site, table, 1) == []
    assert begins(site, table) == 1
    swept(site)
    assert not list(Path(site.warehouse.path(table.id, "staging")).iterdir())
    assert not Path(site.warehouse.path(table.id, "history")).exists()
    with site.database.reading() as repository:
        assert repository.history.bases(table.id) == []


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_history_that_is_turned_off_goes_with_the_next_sweep(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    swept(site)
    assert reported(site, table, 1)
    set_options(site.database, table, NO_HISTORY)
    swept(site)
    assert reported(site, table, 1) == []
    assert not [one for one in Path(site.warehouse.path(table.id)).rglob("*.parquet") if "runs" not in one.parts]


@pytest.mark.slow(reason="merges and sweeps thirty times")
def test_records_are_kept_for_their_time_and_can_be_explained_from_a_snapshot_that_is_kept(
    site: MergeSite, clock: SetClock
) -> None:
    table = create_table(site.database, CALM | {"history.time-retained": "1 d", "snapshot.num-retained.min": "1"})
    clock.move(hours=2)
    for number in range(1, 31):
        merge(site, table, {"id": 1, "n": number})
        swept(site)
        since = begins(site, table)
        assert [value for _, _, value in reported(site, table, 1)] == list(range(since + 1, number + 1))
        assert number - since >= min(12, number)
        with site.database.reading() as repository:
            assert not since or repository.snapshots.find(table.id, since) is not None
            assert len(repository.snapshots.page(table.id, limit=100)) <= 2 + 3
        clock.move(hours=2)
    assert number - since <= 19


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_what_history_takes_is_counted(site: MergeSite, clock: SetClock) -> None:
    options = {"history.time-retained": "2 h", "snapshot.num-retained.min": "1", "snapshot.time-retained": "1 s"}
    table = create_table(site.database, CALM | options)
    for number in range(1, 5):
        merge(site, table, {"id": 1, "n": number}, {"id": 2, "n": number})
        clock.move(hours=1)
        swept(site)
    merge(site, table, {"id": 1, "n": 5})
    compact(site, table)
    clock.move(seconds=30)
    swept(site)
    with site.database.reading() as repository:
        counted = repository.history.totals(table.id)
        bases = [repository.snapshots.get(table.id, base.snapshot_id) for base in repository.history.bases(table.id)]
    assert counted.since == bases[0].id
    assert (counted.batches, counted.records) == (5 - counted.since, 9 - 2 * counted.since)
    assert counted.bases == len(bases) > 1
    assert bases[-1].id == 6, "the current one, which is there anyway; its run has all rows of the others'"
    assert counted.base_bytes == bases[-2].size_bytes
    on_disk = list(Path(site.warehouse.path(table.id, "history")).iterdir())
    assert counted.files <= len(on_disk)
    assert 0 < counted.size_bytes <= sum(path.stat().st_size for path in on_disk)


@pytest.mark.slow(reason="merges thousands of records")
def test_the_oldest_records_go_where_there_are_more_than_may_be_kept(site: MergeSite) -> None:
    table = create_table(site.database, CALM | {"history.max-size": "20 kb"})
    drawn = random.Random(7)
    for number in range(1, 13):
        merge(site, table, {"id": 1, "n": number}, *({"id": 2, "n": drawn.randrange(2**40)} for _ in range(300)))
        swept(site)
    values = [value for _, _, value in reported(site, table, 1)]
    assert 0 < len(values) < 12
    assert values == list(range(13 - len(values), 13))


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_batches_are_not_forgotten_while_their_records_are_kept(site: MergeSite, clock: SetClock) -> None:
    options = {"catalog.history-retained": "1 h", "history.time-retained": "2 d"}
    table = create_table(site.database, CALM | options)
    merge(site, table, {"id": 1, "n": 1})
    clock.move(days=1)
    sweep(site.database, site.warehouse)
    assert reported(site, table, 1) == [(1, 1, 1)]
    merge(site, table, {"id": 1, "n": 2})
    for _ in range(3):
        clock.move(days=1)
        sweep(site.database, site.warehouse)
    assert batches_of(site.database, table) == []


@pytest.mark.slow(reason="merges and sweeps ten times")
def test_a_rollback_to_before_all_that_is_kept_is_kept_to_explain_from(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, CALM | {"history.time-retained": "2 h", "snapshot.time-retained": "1 d"})
    for number in range(1, 11):
        merge(site, table, {"id": 1, "n": number})
        clock.move(hours=1)
        sweep(site.database, site.warehouse)
    assert begins(site, table) > 2
    number = back_to(site, table, 2).made.snapshot.id
    merge(site, table, {"id": 1, "n": 11})
    sweep(site.database, site.warehouse)
    with site.database.reading() as repository:
        assert number in [base.snapshot_id for base in repository.history.bases(table.id)]
