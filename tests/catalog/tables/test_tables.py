"""Tables of the catalog and their schemas."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.shared.models import metadata, published_versions, tags
from app.core.errors import AlreadyExists, Conflict, ErrorCode, NotFound
from app.core.plan.records.faulty_events import FaultyEvent
from app.core.table.history import ChangelogFile, HistoryExtent, HistoryFile, SnapshotKind, Table
from app.core.table.published import Format, PublishedVersion
from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind, NamedFile
from tests.catalog.builders import add_batch, commit, create_table, new_batch, post, request_and_claim, run, schema


def test_a_created_table_is_read_back_by_name_and_by_id(database: CatalogDatabase, table: Table) -> None:
    with database.reading() as repository:
        assert repository.tables.get("shop", "wide") == table
        assert repository.tables.find(table.id) == table
        assert repository.tables.find("another") is None
        assert repository.tables.schema_at(table.id, 0) == schema()
    assert (table.schema_id, table.snapshot_id, table.full_name) == (0, None, "shop.wide")


def test_a_missing_table_is_distinguished_from_a_missing_database(database: CatalogDatabase) -> None:
    create_table(database)
    with pytest.raises(NotFound) as missing, database.reading() as repository:
        repository.tables.get("shop", "none")
    assert missing.value.code is ErrorCode.TABLE_NOT_FOUND
    assert (missing.value.resource_type, missing.value.resource_name) == ("TABLE", "none")


def test_a_second_table_of_one_name_is_refused_in_its_database_only(database: CatalogDatabase) -> None:
    create_table(database)
    with database.transaction() as repository:
        repository.databases.create("other", {})
        repository.tables.create("other", "wide", schema())
        with pytest.raises(AlreadyExists) as refused:
            repository.tables.create("shop", "wide", schema())
    assert refused.value.code is ErrorCode.TABLE_ALREADY_EXISTS
    assert (refused.value.resource_type, refused.value.resource_name) == ("TABLE", "wide")


def test_pages_of_tables_stay_in_their_database_and_take_a_pattern(database: CatalogDatabase) -> None:
    for name in ("c", "a", "b", "ab"):
        create_table(database, name)
    with database.transaction() as repository:
        repository.databases.create("other", {})
        repository.tables.create("other", "a", schema())
        assert [each.name for each in repository.tables.page("shop", after="a", limit=2)] == ["ab", "b"]
        assert [each.name for each in repository.tables.page("shop", limit=9, like="a%")] == ["a", "ab"]


def test_a_renamed_table_keeps_its_id_and_its_batches(database: CatalogDatabase, table: Table) -> None:
    batch = post(database, table)
    with database.transaction() as repository:
        repository.databases.create("other", {})
        renamed = repository.tables.rename("shop", "wide", "other", "narrow")
        assert (renamed.id, renamed.full_name) == (table.id, "other.narrow")
        assert repository.tables.get("other", "narrow") == renamed
        assert repository.batches.staged(renamed.id) == [batch]
        with pytest.raises(NotFound):
            repository.tables.get("shop", "wide")


def test_a_table_cannot_be_renamed_onto_another_or_into_nowhere(database: CatalogDatabase) -> None:
    create_table(database, "a")
    create_table(database, "b")
    with database.transaction() as repository:
        with pytest.raises(AlreadyExists):
            repository.tables.rename("shop", "a", "shop", "b")
        with pytest.raises(NotFound) as missing:
            repository.tables.rename("shop", "a", "none", "b")
        assert missing.value.code is ErrorCode.DATABASE_NOT_FOUND
        assert repository.tables.get("shop", "a").name == "a"


def test_every_schema_that_a_table_had_stays_readable(database: CatalogDatabase, table: Table) -> None:
    with database.transaction() as repository:
        altered = repository.tables.alter(table.id, 0, schema("value", "more"))
        assert (altered.schema_id, altered.schema) == (1, schema("value", "more"))
        assert repository.tables.get("shop", "wide") == altered
        assert repository.tables.schema_at(table.id, 0) == schema()
        with pytest.raises(NotFound):
            repository.tables.schema_at(table.id, 2)


def test_an_alter_on_top_of_another_ones_schema_is_refused(database: CatalogDatabase, table: Table) -> None:
    with database.transaction() as repository:
        repository.tables.alter(table.id, 0, schema("first"))
        with pytest.raises(Conflict):
            repository.tables.alter(table.id, 0, schema("second"))
        assert repository.tables.schema_at(table.id, 1) == schema("first")


def test_an_alter_that_was_rolled_back_is_forgotten(database: CatalogDatabase, table: Table) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as repository:
        assert repository.tables.alter(table.id, 0, schema("first")).schema == schema("first")
        raise ZeroDivisionError
    with database.transaction() as repository:
        assert repository.tables.get("shop", "wide").schema == schema()
        assert repository.tables.alter(table.id, 0, schema("second")).schema == schema("second")


def test_dropping_a_table_leaves_nothing_of_it_and_all_of_its_neighbour(database: CatalogDatabase) -> None:
    dropped, kept = create_table(database, "dropped"), create_table(database, "kept")
    for table in (dropped, kept):
        post(database, table)
        commit(database, request_and_claim(database, table), [run("r")])
        post(database, table)
        request_and_claim(database, table)
        with database.transaction() as repository:
            changed = [ChangelogFile("c/0.parquet", 1, 10)]
            runs = [run("r")]
            made = repository.snapshots.commit(table.id, 1, runs, SnapshotKind.ROLLBACK, changelog=changed)
            repository.rewrites.add(made, restored_from=1)
            tag = tags.insert().values(table_id=table.id, name="kept", snapshot_id=1, created_at=repository.now())
            repository.transaction.execute(tag)
            version = PublishedVersion(
                table.id, Format.DELTA, 0, snapshot_id=1, base_id=1, as_of=1, schema_id=0, committed_at=repository.now()
            )
            repository.transaction.execute(published_versions.insert().values(**vars(version)))
            repository.history.begin_after(table.id, 1, [1])
            repository.history.file(table.id, HistoryExtent(1, 1), 2, [HistoryFile("h.parquet", 0, 2, 2, 1, 10)])
            file = NamedFile(FileKind.RUN, table.id, f"{table.id}/runs/r/0.parquet", 10, run_id="r")
            repository.set_aside_events.add(table.id, "b", "", [FaultyEvent(0, "debezium-json", "", "{}", [])])
            repository.forgettings.add(table.id, "5a17", [], "", None)
            repository.damage.note([DamagedFile(file, DamageReason.MISSING, "nothing is there")])
    with database.transaction() as repository:
        assert repository.tables.drop("shop", "dropped").id == dropped.id
        of_tables = [each for each in metadata.sorted_tables if "table_id" in each.c]
        assert len(of_tables) == 17
        for each in of_tables:
            left = repository.transaction.execute(sa.select(each.c.table_id).distinct()).scalars().all()
            assert left == [kept.id], each.name
        with pytest.raises(NotFound) as gone:
            add_batch(repository, dropped.id, new_batch())
        assert gone.value.code is ErrorCode.TABLE_NOT_FOUND
