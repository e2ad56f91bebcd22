"""Partitions: laid out by merges, compacted by themselves, dropped and expired by a commit that touches no file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.core.errors import Invalid
from app.core.table.history import Rewrite, SnapshotKind, Table, TaskState
from app.services.rows.lookups import Consistency, Images, get_rows
from app.services.shared.executor import MergeSite
from app.services.shared.pages import PageRequest
from app.services.tables.partitions import drop_partitions, expire_partitions, list_partitions
from tests.services import builders
from tests.services.builders import compact, create_table, run_next_compaction, snapshot_of

COLUMNS = (("day", "DATE"), ("shop", "STRING"), ("id", "BIGINT"), ("n", "BIGINT"))
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
FIRST, SECOND = "2024-05-01", "2024-05-02"


def partitioned(site: MergeSite, options: Mapping[str, str] = SUMS, by: tuple[str, ...] = ("day", "shop")) -> Table:
    return create_table(site.database, options, columns=COLUMNS, key=("day", "shop", "id"), partitions=by)


def merge(site: MergeSite, table: Table, *rows: tuple[str, str, int, int]) -> None:
    done = builders.merge(site, table, *(dict(zip(("day", "shop", "id", "n"), row, strict=True)) for row in rows))
    assert done.state is TaskState.SUCCEEDED


def numbers(site: MergeSite, images: Images, table: Table, *keys: tuple[str, str, int]) -> list[Any]:
    found_keys = [(datetime.fromisoformat(day).date(), shop, number) for day, shop, number in keys]
    with site.database.reading() as repository:
        current = repository.tables.find(table.id)
        assert current is not None
        found = get_rows(repository, images, current, found_keys, Consistency.MERGED)
    return [None if one.row is None else one.row["n"] for one in found]


def runs_by_partition(site: MergeSite, table: Table) -> dict[str, list[str]]:
    snapshot = snapshot_of(site.database, table)
    found: dict[str, list[str]] = {}
    for run in snapshot.runs if snapshot else ():
        found.setdefault(run.partition or "", []).append(run.id)
    return found


def test_a_merge_writes_a_run_in_each_partition_of_its_batch_and_leaves_the_others_alone(
    site: MergeSite, images: Images
) -> None:
    table = partitioned(site)
    merge(site, table, (FIRST, "a", 1, 1), (FIRST, "b", 1, 10), (SECOND, "a", 1, 100))
    before = runs_by_partition(site, table)
    assert sorted(before) == [
        '{"day":"2024-05-01","shop":"a"}',
        '{"day":"2024-05-01","shop":"b"}',
        '{"day":"2024-05-02","shop":"a"}',
    ]
    merge(site, table, (SECOND, "a", 1, 5))
    after = runs_by_partition(site, table)
    assert [len(runs) for _, runs in sorted(after.items())] == [1, 1, 2]
    assert all(after[name][:1] == runs for name, runs in before.items())
    keys = [(FIRST, "a", 1), (FIRST, "b", 1), (SECOND, "a", 1), (SECOND, "b", 1)]
    assert numbers(site, images, table, *keys) == [1, 10, 105, None]


def test_a_compaction_rewrites_only_the_partitions_that_need_it(site: MergeSite, images: Images) -> None:
    table = partitioned(site, SUMS | {"num-sorted-run.compaction-trigger": "3"}, by=("day",))
    merge(site, table, (FIRST, "a", 1, 1), (SECOND, "a", 1, 1))
    quiet = runs_by_partition(site, table)[f'{{"day":"{FIRST}"}}']
    for _ in range(2):
        merge(site, table, (SECOND, "a", 1, 1), (SECOND, "b", 1, 1))
    assert run_next_compaction(site, "compactor")
    after = runs_by_partition(site, table)
    assert after[f'{{"day":"{FIRST}"}}'] == quiet
    assert len(after[f'{{"day":"{SECOND}"}}']) == 1
    assert numbers(site, images, table, (FIRST, "a", 1), (SECOND, "a", 1), (SECOND, "b", 1)) == [1, 3, 2]


def test_a_dropped_partition_is_gone_at_once_and_can_come_again(site: MergeSite, images: Images) -> None:
    table = partitioned(site)
    merge(site, table, (FIRST, "a", 1, 1), (FIRST, "b", 1, 1), (SECOND, "a", 1, 1))
    assert drop_partitions(site.database, (table.database, table.name), [{"day": FIRST, "shop": "b"}]) == [
        '{"day":"2024-05-01","shop":"b"}'
    ]
    keys = [(FIRST, "a", 1), (FIRST, "b", 1), (SECOND, "a", 1)]
    assert numbers(site, images, table, *keys) == [1, None, 1]
    snapshot = snapshot_of(site.database, table)
    assert (snapshot.kind, snapshot.id) == (SnapshotKind.PARTITION_DROP, 2)
    with site.database.reading() as repository:
        [rewrite] = repository.rewrites.after(table.id)
    assert rewrite == Rewrite(2, snapshot.kind, snapshot.committed_at, None, ('{"day":"2024-05-01","shop":"b"}',))
    assert drop_partitions(site.database, (table.database, table.name), [{"day": FIRST, "shop": "b"}]) == []
    merge(site, table, (FIRST, "b", 1, 7))
    assert numbers(site, images, table, *keys) == [1, 7, 1]


def test_a_spec_of_some_columns_drops_all_that_match(site: MergeSite) -> None:
    table = partitioned(site)
    merge(site, table, (FIRST, "a", 1, 1), (FIRST, "b", 1, 1), (SECOND, "a", 1, 1), (SECOND, "c", 1, 1))
    assert len(drop_partitions(site.database, (table.database, table.name), [{"day": FIRST}, {"shop": "c"}])) == 3
    assert list(runs_by_partition(site, table)) == ['{"day":"2024-05-02","shop":"a"}']


def test_every_fault_of_the_specs_is_named(site: MergeSite) -> None:
    table = partitioned(site)
    with pytest.raises(Invalid) as refused:
        drop_partitions(site.database, (table.database, table.name), [{}, {"day": "yesterday"}, {"n": 1}])
    assert [(violation.pointer, violation.code) for violation in refused.value.violations] == [
        ("/specs/0", "missing"),
        ("/specs/1/day", "bad_date"),
        ("/specs/2/n", "unknown_column"),
    ]


def test_partitions_are_listed_in_pages(site: MergeSite) -> None:
    table = partitioned(site, by=("shop",))
    merge(site, table, *((FIRST, shop, number, 1) for shop in "abc" for number in range(3)))
    merge(site, table, (SECOND, "b", 1, 1))
    with site.database.reading() as repository:
        page = list_partitions(repository, table, PageRequest(2))
        rest = list_partitions(repository, table, PageRequest(2, page.next_token))
        named = [list_partitions(repository, table, PageRequest(1), f"{like}%").items for like in ("shop=b", "shop=_")]
    assert [[dict(one.spec) for one in found] for found in named] == [[{"shop": "b"}], [{"shop": "a"}]]
    assert [(dict(one.spec), one.rows, one.runs) for one in page.items] == [
        ({"shop": "a"}, 3, 1),
        ({"shop": "b"}, 4, 2),
    ]
    assert ([dict(one.spec) for one in rest.items], rest.next_token) == ([{"shop": "c"}], None)


EXPIRING = SUMS | {"partition.expiration-time": "7 d"}


@pytest.mark.parametrize(
    ("options", "expires"),
    [
        (EXPIRING, True),
        (EXPIRING | {"partition.timestamp-pattern": "$day", "partition.timestamp-formatter": "yyyy-MM-dd"}, True),
        (EXPIRING | {"partition.timestamp-pattern": "$shop"}, False),  # no time: kept
        (EXPIRING | {"partition.expiration-strategy": "update-time"}, False),  # merged a moment ago
        (SUMS, False),
    ],
)
def test_partitions_expire_by_the_time_that_their_values_say(
    site: MergeSite, options: Mapping[str, str], expires: bool
) -> None:
    table = partitioned(site, options)
    merge(site, table, (FIRST, "a", 1, 1), (SECOND, "a", 1, 1))
    first = datetime.fromisoformat(FIRST).replace(tzinfo=UTC)
    assert expire_partitions(site.database, table, first + timedelta(days=7)) == []
    left = expire_partitions(site.database, table, first + timedelta(days=7, seconds=1))
    assert left == (['{"day":"2024-05-01","shop":"a"}'] if expires else [])


def test_partitions_expire_by_their_last_merge(site: MergeSite) -> None:
    table = partitioned(site, EXPIRING | {"partition.expiration-strategy": "update-time"})
    merge(site, table, (FIRST, "a", 1, 1))
    now = datetime.now(UTC)
    assert expire_partitions(site.database, table, now + timedelta(days=6, hours=23)) == []
    compact(site, table)
    assert len(expire_partitions(site.database, table, now + timedelta(days=8))) == 1
