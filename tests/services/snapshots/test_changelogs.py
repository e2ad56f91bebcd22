"""Changelogs as their readers see them: what each producer gives, in pages, across ALTERs, while it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.core.errors import Conflict, ErrorCode, NotFound
from app.core.table.history import SnapshotKind, Table, TaskState
from app.core.table.upkeep.damage import NamedFile
from app.files.layout import Warehouse
from app.files.named_files import file_of_changelog
from app.services.shared.executor import MergeSite
from app.services.snapshots.changelogs import Changes, Page, Position, changes_from, follow_from, read_page
from app.services.tables.tables import alter_table
from app.services.upkeep.forgettings import ask_to_forget
from app.services.upkeep.sweeps import sweep
from tests.catalog.builders import CATALOGS
from tests.services import builders
from tests.services.builders import SUM, compact, create_table, set_options, snapshot_of
from tests.services.executor import InterruptedExecutor
from tests.services.one_catalog import catalog_kind
from tests.services.tables.test_altered_tables import alter
from tests.services.upkeep.forgetting import forget

__all__ = ["catalog_kind"]

LOOKUP = {"changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "50"}
FULL = LOOKUP | {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "100"}


def merge(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> TaskState:
    return builders.merge(site, table, *records).state


def page(
    site: MergeSite, table: Table, start: Position | int | None = None, last: int | None = None, limit: int = 1000
) -> Page:
    place = Position(start) if isinstance(start, int) else start
    return read_page(site.database, site.warehouse, (table.database, table.name), place, last, limit, one_schema=False)


def reported(changes: Sequence[Changes]) -> list[str]:
    """``5 +U 1=2``: snapshot, kind, key and the number ``n``."""
    return [
        f"{one.start.snapshot} {kind.text} {row['id']}={row['n']}"
        for one in changes
        for kind, row in sorted(one.rows, key=lambda change: (change[1]["id"], change[0]))
    ]


def changelog(site: MergeSite, table: Table, *args: Any) -> list[str]:
    return reported(page(site, table, *args).changes)


def test_lookup_tells_every_change_at_the_merge_that_makes_it(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP)
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 1}, {"id": 2, "n": 5})
    merge(site, table, {"id": 1, "n": 3}, {"id": 2, "n": 0}, {"id": 3, "n": 1})
    compact(site, table)
    merge(site, table, {"id": 3, "n": 1})
    assert changelog(site, table) == [
        *("1 +I 1=2", "1 +I 2=5"),
        *("2 -U 1=2", "2 +U 1=5", "2 -U 2=5", "2 +U 2=5", "2 +I 3=1"),
        *("4 -U 3=1", "4 +U 3=2"),
    ]
    assert changelog(site, table, 2, 3) == ["2 -U 1=2", "2 +U 1=5", "2 -U 2=5", "2 +U 2=5", "2 +I 3=1"]
    assert changelog(site, table, 3, 3) == []


def test_rows_that_stay_equal_are_left_out_with_row_deduplicate(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP | {"changelog-producer.row-deduplicate": "true"})
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 5})
    merge(site, table, {"id": 1, "n": 0}, {"id": 2, "n": 1})
    assert changelog(site, table, 2) == ["2 -U 2=5", "2 +U 2=6"]


def test_full_compactions_tell_what_changed_since_the_last_one(site: MergeSite) -> None:
    table = create_table(site.database, SUM | FULL)
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 1})
    assert changelog(site, table) == []
    compact(site, table)
    merge(site, table, {"id": 2, "n": 1})
    merge(site, table, {"id": 2, "n": 1})
    compact(site, table)
    assert changelog(site, table) == ["3 +I 1=2", "3 +I 2=1", "6 -U 2=1", "6 +U 2=3"]


def test_input_is_what_was_posted_by_key_and_merge_order(site: MergeSite) -> None:
    table = create_table(site.database, {"changelog-producer": "input", "sequence.field": "n"})
    merge(site, table, {"id": 1, "n": 5}, {"id": 1, "n": 3, "_kind": "-U"}, {"id": 1, "n": 4, "_kind": "+U"})
    [only] = page(site, table).changes
    assert [(kind.text, row["n"]) for kind, row in only.rows] == [("-U", 3), ("+U", 4), ("+I", 5)]


def test_without_a_producer_deduplicate_tells_the_last_record_of_each_key_in_a_merge(site: MergeSite) -> None:
    table = create_table(site.database, {})
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 2}, {"id": 2, "n": 1})
    merge(site, table, {"id": 1, "n": 3}, {"id": 2, "n": 4, "_kind": "-D"})
    compact(site, table)
    assert changelog(site, table) == ["1 +I 1=2", "1 +I 2=1", "2 +I 1=3", "2 -D 2=4"]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_other_engines_need_a_producer(engine: str, site: MergeSite) -> None:
    table = create_table(site.database, {"merge-engine": engine})
    merge(site, table, {"id": 1, "n": 1})
    with pytest.raises(Conflict) as refused:
        page(site, table)
    assert refused.value.code is ErrorCode.CHANGELOG_NOT_KEPT
    assert "set changelog-producer to lookup" in refused.value.message


PAGE_SIZES = [1, 2, 3, 4, 7, 8]


def test_pages_of_any_size_are_the_whole(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP)
    for _ in range(2):
        merge(site, table, *({"id": number, "n": 1} for number in range(4)))
        compact(site, table)
    whole = page(site, table)
    ordered = [change for one in whole.changes for change in one.rows]
    assert len(ordered) == 4 + 8
    for limit in PAGE_SIZES:
        place: Position | None = Position(1)
        found = []
        while place is not None:
            part = page(site, table, place, None, limit)
            rows = [change for one in part.changes for change in one.rows]
            assert len(rows) == limit or part.rest is None
            found += rows
            place = part.rest
        assert found == ordered, limit


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_range_that_is_not_kept_is_refused_and_says_what_is(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP)
    with pytest.raises(NotFound, match=r"snapshot 1 of shop\.wide does not exist yet: nothing was merged yet"):
        page(site, table, 1)
    assert page(site, table).changes == []
    for _ in range(5):
        merge(site, table, {"id": 1, "n": 1})
    with site.database.transaction() as repository:
        repository.tags.create(table.id, "kept", 1, None)
        repository.snapshots.expire(table.id, [3, 4, 5])
    for start in (1, 2):
        with pytest.raises(NotFound, match=f"snapshot {start} .* has expired: the changelog has snapshots 3 to 5"):
            page(site, table, start)
    for start, last in ((6, None), (None, 6)):
        with pytest.raises(NotFound, match=r"snapshot 6 .* does not exist yet") as missing:
            page(site, table, start, last)
        assert missing.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
    assert changelog(site, table) == changelog(site, table, 3)
    name = (table.database, table.name)
    assert follow_from(site.database, name, None)[1] == Position(6)
    assert follow_from(site.database, name, Position(6))[1] == Position(6)
    for start in (2, 7):
        with pytest.raises(NotFound):
            follow_from(site.database, name, Position(start))


def test_changes_are_read_under_the_schema_of_their_snapshot(site: MergeSite) -> None:
    table = create_table(site.database, LOOKUP)
    merge(site, table, {"id": 1, "n": 1})
    alter(site, table, (1, "m"), (2, "n"), options=LOOKUP)
    merge(site, table, {"id": 1, "n": 5, "m": 2})
    found = page(site, table)
    assert [row for change in found.changes for _, row in change.rows] == [
        {"id": 1, "n": 1},
        {"id": 1, "m": 1, "n": None},
        {"id": 1, "m": 2, "n": 5},
    ]
    first = read_page(site.database, site.warehouse, (table.database, table.name), None, None, 10, one_schema=True)
    assert [row for change in first.changes for _, row in change.rows] == [{"id": 1, "n": 1}]
    assert first.rest == Position(2)


def test_defaults_are_shown_as_rows_show_them(site: MergeSite) -> None:
    table = create_table(site.database, LOOKUP | {"merge-engine": "partial-update", "fields.n.default-value": "9"})
    merge(site, table, {"id": 1})
    merge(site, table, {"id": 1, "n": 2})
    assert changelog(site, table) == ["1 +I 1=9", "2 -U 1=9", "2 +U 1=2"]


@pytest.mark.parametrize("kind", [SnapshotKind.ROLLBACK, SnapshotKind.PARTITION_DROP])
def test_rollbacks_and_partition_drops_have_no_changes(kind: SnapshotKind, site: MergeSite) -> None:
    for name, options in (("kept", LOOKUP), ("none", {})):
        table = create_table(site.database, options, name)
        merge(site, table, {"id": 1, "n": 1})
        merge(site, table, {"id": 1, "n": 2})
        with site.database.transaction() as repository:
            repository.snapshots.commit(table.id, 2, repository.snapshots.get(table.id, 1).runs, kind)
        assert changelog(site, table, 3) == []
        assert len(changelog(site, table)) == (3 if name == "kept" else 2)


def interrupted(site: MergeSite, meanwhile: Callable[[], object]) -> MergeSite:
    return replace(site, executor=InterruptedExecutor(meanwhile))


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_merge_whose_rows_were_rolled_back_meanwhile_is_tried_again(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP)
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 1})

    def roll_back() -> None:
        with site.database.transaction() as repository:
            repository.snapshots.commit(table.id, 2, repository.snapshots.get(table.id, 1).runs, SnapshotKind.ROLLBACK)

    executor = InterruptedExecutor(lambda: None)
    write_changes = executor.write_changes

    def after_changes(*args: Any) -> None:
        write_changes(*args)
        roll_back()

    executor.write_changes = after_changes  # type: ignore[method-assign]
    assert merge(replace(site, executor=executor), table, {"id": 1, "n": 5}) is TaskState.FAILED
    assert merge(site, table) is TaskState.SUCCEEDED
    assert changelog(site, table, 3) == ["4 -U 1=1", "4 +U 1=6"]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_merge_beside_which_a_compaction_committed_keeps_its_changes(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP)
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 1})
    assert merge(interrupted(site, lambda: compact(site, table)), table, {"id": 1, "n": 5}) is TaskState.SUCCEEDED
    assert changelog(site, table, 3) == ["4 -U 1=2", "4 +U 1=7"]


def test_a_merge_during_which_the_producer_was_altered_is_tried_again(site: MergeSite) -> None:
    table = create_table(site.database, SUM | FULL)
    change = interrupted(site, lambda: alter(site, table, (1, "n"), options=SUM | LOOKUP))
    assert merge(change, table, {"id": 1, "n": 5}) is TaskState.FAILED
    assert merge(site, table) is TaskState.SUCCEEDED
    assert changelog(site, table) == ["1 +I 1=5"]


def test_a_compaction_during_which_the_producer_was_altered_tells_no_old_changes_after_newer_ones(
    site: MergeSite,
) -> None:
    table = create_table(site.database, FULL)
    merge(site, table, {"id": 1, "n": 1})

    def meanwhile() -> None:
        set_options(site.database, table, {"changelog-producer": "input"})
        merge(site, table, {"id": 1, "n": 2})

    executor = InterruptedExecutor(meanwhile, in_compaction=True)
    assert compact(replace(site, executor=executor), table).state is TaskState.FAILED
    assert compact(site, table).state is TaskState.SUCCEEDED
    assert changelog(site, table) == ["2 +I 1=2"]


def test_changes_of_a_compaction_that_leaves_no_row_are_read_under_its_schema(site: MergeSite) -> None:
    columns = (("p", "STRING"), ("id", "BIGINT"), ("n", "ROW<a INT>"))
    table = create_table(site.database, FULL, columns=columns, key=("p", "id"), partitions=("p",))
    merge(site, table, {"p": "older", "id": 1, "n": {"a": 1}})
    compact(site, table)
    rename = [{"action": "renameColumn", "fieldNames": ["n", "a"], "newName": "c"}]
    alter_table(site.database, ("shop", table.name), rename)
    for record in ({"n": {"c": 5}}, {"_kind": "-D"}):
        merge(site, table, {"p": "newer", "id": 2, **record})
        compact(site, table)
    assert changelog(site, table, 4) == ["4 +I 2={'c': 5}", "6 -D 2={'c': 5}"]


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_changes_of_a_merge_during_which_a_field_was_renamed_have_its_values(producer: str, site: MergeSite) -> None:
    columns = (("id", "BIGINT"), ("n", "ROW<a INT, b STRING>"))
    table = create_table(site.database, {"changelog-producer": producer}, columns=columns)
    renames = [
        {"action": "renameColumn", "fieldNames": ["n", old], "newName": new} for old, new in (("a", "c"), ("b", "a"))
    ]
    rename = interrupted(site, lambda: alter_table(site.database, ("shop", table.name), renames))
    assert merge(rename, table, {"id": 1, "n": {"a": 5, "b": "x"}}) is TaskState.SUCCEEDED
    assert changelog(site, table) == ["1 +I 1={'c': 5, 'a': 'x'}"]


def test_changes_of_a_compaction_during_which_a_field_was_renamed_keep_it_when_keys_are_forgotten(
    site: MergeSite,
) -> None:
    table = create_table(site.database, FULL, columns=(("id", "BIGINT"), ("n", "ROW<a INT, b STRING>")))
    merge(site, table, {"id": 1, "n": {"a": 5, "b": "x"}}, {"id": 2, "n": {"a": 6, "b": "y"}})
    renames = [
        {"action": "renameColumn", "fieldNames": ["n", old], "newName": new} for old, new in (("a", "c"), ("b", "a"))
    ]
    renaming = InterruptedExecutor(
        lambda: alter_table(site.database, ("shop", table.name), renames), in_compaction=True
    )
    assert compact(replace(site, executor=renaming), table).state is TaskState.SUCCEEDED
    forget_row(site, table, 2)
    assert changelog(site, table) == ["2 +I 1={'c': 5, 'a': 'x'}"]


def forget_row(site: MergeSite, table: Table, key: int) -> None:
    with site.database.transaction() as repository:
        ask_to_forget(repository, repository.tables.existing(table.id), [{"id": key}], "officer", None)
    assert forget(site) == 1


def begun(site: MergeSite, table: Table) -> Iterator[Changes]:
    """The changes of two partitions, each a file; the first file is read."""
    merge(site, table, {"p": "a", "id": 1, "n": 1}, {"p": "b", "id": 2, "n": 2}, {"p": "b", "id": 3, "n": 3})
    read = changes_from(site.database, site.warehouse, table, Position(1), 1)
    assert not next(read).last
    return read


def swept(site: MergeSite) -> None:
    sweep(site.database, site.warehouse, grace=timedelta(hours=-1))


PARTED = {"columns": (("p", "STRING"), ("id", "BIGINT"), ("n", "BIGINT")), "key": ("id", "p"), "partitions": ("p",)}


def test_a_reader_inside_a_snapshot_that_expires_is_told_so(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP, **PARTED)
    read = begun(site, table)
    merge(site, table, {"p": "a", "id": 1, "n": 1})
    with site.database.transaction() as repository:
        repository.snapshots.expire(table.id, [2])
    swept(site)
    with pytest.raises(NotFound, match=r"snapshot 1 .* has expired: .*; read the table at one of them \(rows:scan"):
        next(read)


def test_a_reader_inside_a_snapshot_of_which_a_key_is_forgotten_gets_its_changes_again(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP, **PARTED)
    read = begun(site, table)
    with site.database.transaction() as repository:
        keys = [{"id": 3, "p": "b"}]
        ask_to_forget(repository, repository.tables.existing(table.id), keys, "officer", None)
    assert forget(site) == 1
    swept(site)
    assert sorted(reported([*read])) == ["1 +I 1=1", "1 +I 2=2"]
    with site.database.reading() as repository:
        assert repository.damage.page(table.id, limit=10) == []


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_file_of_changes_that_lost_a_key_is_not_needed_any_more(site: MergeSite) -> None:
    table = create_table(site.database, SUM | LOOKUP)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 2})

    def needed() -> list[bool]:
        with site.database.reading() as repository:
            files[:] = files or [
                file_of_changelog(table.id, 1, file) for file in repository.changelogs.snapshot_files(table.id, 1)
            ]
            return [repository.damage.is_needed(file) for file in files]

    files: list[NamedFile] = []
    assert needed() == [True]
    forget_row(site, table, 2)
    assert needed() == [False]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_changes_of_partitions_are_looked_up_together(site: MergeSite, warehouse: Warehouse) -> None:
    columns = (("p", "STRING"), ("id", "BIGINT"), ("n", "BIGINT"))
    table = create_table(site.database, SUM | LOOKUP, columns=columns, key=("p", "id"), partitions=("p",))
    for number in range(1, 4):
        merge(site, table, *({"p": p, "id": 1, "n": 1} for p in "abc"[:number]))
    assert len(snapshot_of(site.database, table).runs) == 6
    assert sorted(changelog(site, table, 3)) == ["3 +I 1=1", "3 +U 1=2", "3 +U 1=3", "3 -U 1=1", "3 -U 1=2"]


@pytest.mark.parametrize("text", ["", "1", "0.1", "1.", ".1", "-1.1", "1.1.1.1", "a.b", "9999999999.1", "1.1\n"])
def test_what_is_no_position_is_none(text: str) -> None:
    assert Position.parse(text) is None


def test_a_position_is_its_text() -> None:
    assert Position.parse(Position(5, 120).text) == Position(5, 120)
