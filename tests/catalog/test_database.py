"""Connections, transactions, failures and migrations of the catalog."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.shared.failures import refusing
from app.catalog.shared.models import metadata, tokens
from app.core.errors import DamagedCatalog, Invalid, KeyfoldError, Unavailable
from app.core.table.history import HistoryExtent, Table
from tests.catalog.builders import commit, create_table, post, request_and_claim, run

ROOT = Path(__file__).resolve().parents[2]


def test_a_new_catalog_is_empty_until_it_is_migrated(empty_catalog_url: str) -> None:
    database = CatalogDatabase(empty_catalog_url)
    assert (database.revision(), database.is_current()) == (None, False)
    with pytest.raises(Unavailable, match="keyfold migrate"), database.reading() as repository:
        repository.databases.page(limit=1)
    database.migrate()
    database.migrate()
    assert (database.revision(), database.is_current()) == ("0024", True)
    database.ping()
    database.close()


def test_models_and_migrations_agree(database: CatalogDatabase) -> None:
    with database.reading() as repository:
        context = MigrationContext.configure(repository.transaction.connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert _names_of(repository.transaction.connection) == {
            name for table in metadata.tables.values() for name in _names_in(table)
        }


def _names_in(table: sa.Table) -> set[str]:
    """The names of the constraints and indexes that a table has."""
    return {str(constraint.name) for constraint in table.constraints} | {str(index.name) for index in table.indexes}


def _names_of(connection: sa.Connection) -> set[str]:
    found = sa.MetaData()
    found.reflect(connection)
    found.remove(found.tables["alembic_version"])
    return {name for table in found.tables.values() for name in _names_in(table)}


def downgrade(repository: Repository, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["connection"] = repository.transaction.connection
    command.downgrade(config, revision)


def test_files_of_a_catalog_from_before_digests_have_none(database: CatalogDatabase, table: Table) -> None:
    batch = post(database, table)
    commit(database, request_and_claim(database, table), [run("r1")])
    with database.transaction() as repository:
        downgrade(repository, "0005")
    database.migrate()
    with database.reading() as repository:
        kept = repository.batches.get(table.id, batch.id)
        assert (kept.number, kept.file, kept.digest) == (batch.number, batch.file, None)
        assert repository.snapshots.get(table.id, 1).runs[0].files == run("r1").files
        assert repository.damage.paths() == {}


def test_runs_of_a_catalog_from_before_their_ranges_have_none(database: CatalogDatabase, table: Table) -> None:
    post(database, table)
    commit(database, request_and_claim(database, table), [replace(run("r1"), totals={"n": ("0", "5")})])
    with database.transaction() as repository:
        downgrade(repository, "0016")
    database.migrate()
    with database.reading() as repository:
        [kept] = repository.snapshots.get(table.id, 1).runs
    assert (kept, kept.totals) == (run("r1"), None)


def test_history_begins_after_what_was_merged_before_it_was_kept(database: CatalogDatabase) -> None:
    merged, new = create_table(database), create_table(database, "new")
    post(database, merged)
    commit(database, request_and_claim(database, merged), [run("r1")])
    with database.transaction() as repository:
        downgrade(repository, "0011")
    database.migrate()
    with database.reading() as repository:
        assert repository.history.extent(merged.id) == HistoryExtent(1, 1)
        assert repository.history.extent(new.id) == HistoryExtent(0, 0)
        assert repository.history.unfiled(merged.id) == []
        assert repository.batches.live_staging_files(merged.id) == set()


def test_a_migration_can_be_taken_back(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        downgrade(repository, "base")
        assert sa.inspect(repository.transaction.connection).get_table_names() == ["alembic_version"]
    database.migrate()
    create_table(database)


def test_a_catalog_of_a_newer_program_is_left_alone(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.transaction.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    assert database.is_current() is False
    with pytest.raises(Unavailable, match="9999"):
        database.migrate()
    assert database.revision() == "9999"


@pytest.mark.slow(reason="starts processes")
def test_many_processes_may_migrate_at_once(empty_catalog_url: str) -> None:
    program = "import sys; from app.catalog.database import CatalogDatabase; CatalogDatabase(sys.argv[1]).migrate()"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_catalog_url], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [(process.communicate()[1], process.returncode) for process in started] == [("", 0)] * 4
    database = CatalogDatabase(empty_catalog_url)
    assert database.is_current()
    database.close()


KILLED_AFTER_COMMIT = """
import os, signal, sys
from app.catalog.database import CatalogDatabase
database = CatalogDatabase(sys.argv[1])
with database.transaction() as repository:
    repository.databases.create("committed", {})
with database.transaction() as repository:
    repository.databases.create("not committed", {})
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow(reason="starts processes")
def test_what_is_committed_survives_a_kill_and_nothing_else_does(database: CatalogDatabase, catalog_url: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_AFTER_COMMIT, catalog_url], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    with database.transaction() as repository:
        assert [each.name for each in repository.databases.page(limit=9)] == ["committed"]
        repository.databases.create("not committed", {})


def test_a_block_that_raises_leaves_nothing(database: CatalogDatabase) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as repository:
        repository.databases.create("shop", {})
        raise ZeroDivisionError
    with database.reading() as repository:
        assert repository.databases.page(limit=9) == []


def test_a_reading_block_cannot_write(database: CatalogDatabase) -> None:
    with pytest.raises((KeyfoldError, sa.exc.DBAPIError)), database.reading() as repository:
        repository.databases.create("shop", {})
    with database.transaction() as repository:
        assert repository.databases.page(limit=9) == []
        repository.databases.create("shop", {})


def test_sqlite_commits_are_on_disk_when_they_return(tmp_path: Path) -> None:
    database = CatalogDatabase(f"sqlite:///{tmp_path}/deep/er/catalog.db")
    database.migrate()
    with database.transaction() as repository:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
            assert repository.transaction.connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    database.close()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_sqlite_file_that_is_gone_is_never_written_again_nor_made_again(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "catalog.sqlite"
    database = CatalogDatabase(f"sqlite:///{path}")
    database.migrate()
    database.close()  # all is in the file: whoever makes another one of its name takes the log beside it for its own
    with database.reading():  # one connection is open, and another would be
        aside = path.rename(tmp_path / "aside")
        if replaced:
            other = CatalogDatabase(f"sqlite:///{path}")
            other.migrate()
            other.close()
        for block in (database.transaction, database.reading):
            with pytest.raises(Unavailable, match="removed or replaced"), block() as repository:
                repository.databases.create("shop", {})
    assert path.exists() == replaced
    aside.rename(path)
    with database.transaction() as repository:
        repository.databases.create("shop", {})
    with database.reading() as repository:
        assert repository.databases.get("shop").name == "shop"
    database.close()


def test_a_sqlite_file_that_is_no_database_is_a_damaged_catalog(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(DamagedCatalog, match="restore the catalog from a backup") as failed:
        CatalogDatabase(f"sqlite:///{tmp_path}/catalog.db").ping()
    assert isinstance(failed.value.__cause__, sa.exc.DatabaseError)
    assert isinstance(failed.value.__cause__.orig, sqlite3.DatabaseError)


@pytest.mark.parametrize("place", ["keyfold:hunter2@127.0.0.1:1/x", "keyfold@127.0.0.1:1/x?password=hunter2"])
def test_a_server_that_does_not_answer_is_unavailable_and_the_password_stays_secret(place: str) -> None:
    database = CatalogDatabase(f"postgresql+psycopg://{place}")
    with pytest.raises(Unavailable) as failed:
        database.ping()
    reported = "".join(traceback.format_exception(failed.value))
    assert "hunter2" not in reported + repr(database)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret:5432@host:port/x",
        "secret",
        "mysql://user:secret@host/x",
        "oracle+secret://user:secret@host/x",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_a_url_that_cannot_be_a_catalog_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        CatalogDatabase(url)
    reported = "".join(traceback.format_exception(refused.value, chain=True))
    assert "user:secret" not in reported
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_means_the_same_driver(scheme: str) -> None:
    assert repr(CatalogDatabase(f"{scheme}://me:secret@host/x")) == (
        "CatalogDatabase('postgresql+psycopg://me:***@host/x')"
    )


def test_a_lost_connection_is_unavailable_and_the_next_transaction_gets_another(postgres: str) -> None:
    database = CatalogDatabase(postgres)
    with pytest.raises(Unavailable), database.transaction() as repository:
        mine = repository.transaction.execute(sa.select(sa.func.pg_backend_pid())).scalar_one()
        with database.transaction() as other:
            other.transaction.execute(sa.select(sa.func.pg_terminate_backend(mine)))
        repository.transaction.execute(sa.select(1))
    database.ping()
    database.close()


def test_a_folder_that_cannot_be_created_makes_the_catalog_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="folder"):
        CatalogDatabase(f"sqlite:///{tmp_path}/file/catalog.db").migrate()


def test_a_violation_that_nobody_expects_is_not_dressed_up(database: CatalogDatabase) -> None:
    nameless = tokens.insert().values(name="a", digest=None, created_at=datetime.now(UTC))
    with database.transaction() as repository:
        with (
            pytest.raises(sa.exc.IntegrityError),
            refusing(repository.transaction.connection, {"uq_tokens_digest": Invalid("the digest is in use")}),
        ):
            repository.transaction.execute(nameless)
        assert repository.tokens.exist() is False


def test_a_time_without_a_zone_is_refused(database: CatalogDatabase) -> None:
    zoneless_time = datetime.now(UTC).replace(tzinfo=None)
    zoneless = tokens.insert().values(name="a", digest="d", created_at=zoneless_time)
    with pytest.raises(sa.exc.StatementError, match="aware"), database.transaction() as repository:
        repository.transaction.execute(zoneless)


def test_who_waits_for_commits_hears_of_those_that_bring_something(database: CatalogDatabase) -> None:
    seen = database.commits
    with database.transaction(wakes=False) as repository:
        repository.databases.create("quiet", {})
    assert database.commits == seen
    with database.transaction() as repository:
        assert repository.databases.get("quiet").name == "quiet"
    assert database.commits != seen


@pytest.mark.parametrize("quiet_after", [10.0, 0.0])
def test_who_waits_for_commits_hears_of_those_of_other_processes(
    catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_after: float
) -> None:
    monkeypatch.setattr("app.catalog.database._QUIET_AFTER_SECONDS", quiet_after)
    mine, other = (CatalogDatabase(catalog_url, folder=tmp_path) for _ in range(2))
    seen, began = mine.commits, time.monotonic()
    waiting = threading.Thread(target=mine.wait_for_commit, args=(seen, 30))
    waiting.start()
    with other.transaction() as repository:
        repository.databases.create("heard", {})
    waiting.join(30)
    assert mine.commits != seen
    assert time.monotonic() - began < 20
    for database in (mine, other):
        database.close()


def test_all_who_wait_for_commits_hear_of_them_also_when_one_of_them_goes(catalog_url: str, tmp_path: Path) -> None:
    mine, other = (CatalogDatabase(catalog_url, folder=tmp_path) for _ in range(2))
    seen = mine.commits
    first = threading.Thread(target=mine.wait_for_commit, args=(seen, 0.2))
    others = [threading.Thread(target=mine.wait_for_commit, args=(seen, 60)) for _ in range(3)]
    for waiting in (first, *others):
        waiting.start()
    first.join(20)
    with other.transaction() as repository:
        repository.databases.create("heard", {})
    for waiting in others:
        waiting.join(20)
    assert not any(waiting.is_alive() for waiting in (first, *others))
    for database in (mine, other):
        database.close()
