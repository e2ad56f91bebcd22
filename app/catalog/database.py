"""The catalog's database: connections, transactions and migrations, on SQLite or PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from app.catalog.connections.migrations import migration_of, newest_migration, upgrade
from app.catalog.connections.notifications import Notifications, notify
from app.catalog.connections.postgresql import CONNECTIONS, postgresql_engine
from app.catalog.connections.sqlite import sqlite_engine
from app.catalog.connections.writers import LOOK_SECONDS, Writers
from app.catalog.repository import Repository
from app.catalog.shared.failures import translated
from app.catalog.shared.marks import Marks
from app.catalog.shared.snapshot_cache import SnapshotCache
from app.catalog.shared.transaction import Touched, Transaction
from app.core.errors import Invalid, Unavailable
from app.core.table.history import Snapshot
from app.telemetry.entries import Access, Counted
from app.telemetry.metrics import Metrics

BUSY_SECONDS = 30  # how long a transaction waits for another one's lock
# Between two polls for commits of other processes, and the longer pause after some time without any.
_LOOK_SECONDS = 0.05
_QUIET_LOOK_SECONDS, _QUIET_AFTER_SECONDS = 0.25, 10.0
# At most this many faults of a damaged file are reported: one is enough to restore it.
_MOST_FAULTS = 10
_MIGRATION_LOCK = 0x6B6579666F6C64  # "keyfold": the key of PostgreSQL's advisory lock


class CatalogDatabase:
    """The catalog at ``url`` (``sqlite:///path`` or ``postgresql+psycopg://…``); connects on first use.

    Every method raises ``Unavailable`` if the database does not answer, ``DamagedCatalog`` for a file that SQLite
    cannot read. Safe to share between threads, not across fork.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], datetime] | None = None,
        folder: Path | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """``clock`` replaces the database's clock (tests). ``folder`` has the marks of this machine's processes for a
        catalog on PostgreSQL; on SQLite they are next to the file. ``metrics`` counts waiting times, and the work of
        services.

        Raise ``Invalid`` for a URL of another kind of database; messages never show it, since it may contain a
        password.
        """
        self.metrics = metrics or Metrics()
        self._clock = clock
        self._url = _parsed(url)
        self._sqlite = self._url.get_backend_name() == "sqlite"
        connected = sqlite_engine if self._sqlite else postgresql_engine
        self._engine = connected(self._url, BUSY_SECONDS)
        # Separate connections: writers that wait for each other's locks must not keep readers out.
        self._writing_engine = self._engine if self._sqlite else connected(self._url, BUSY_SECONDS)
        self.marks = Marks(_marks_file(self._url, folder))
        # SQLite has one writer at a time, for which the others poll; this queue avoids the polling.
        self._turns = threading.Semaphore(1 if self._sqlite else CONNECTIONS)
        self.writers = Writers(self.metrics)
        self._loaded = SnapshotCache()
        self._commits = 0
        self._committed = threading.Condition()
        self._commit_at = time.monotonic()  # when one was last waited for
        self._somebody_looks = False

    def __repr__(self) -> str:
        shown = self._url.set(query={})  # libpq takes a password as query parameter, too
        return f"CatalogDatabase({shown.render_as_string(hide_password=True)!r})"

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        """Yield a repository that may write. Commit when the block ends, roll back when it raises.

        Without ``wakes`` no waiter for commits is woken: for commits without new work or rows, such as a renewed
        lease.
        """
        touched = Touched()
        try:
            with translated(), self._writing() as connection:
                yield Repository.over(Transaction(connection, self._loaded, self._clock, touched))
                if touched.changes and not self._sqlite:
                    notify(connection, touched, self.marks.identity)
        finally:  # a commit whose answer was lost may have happened
            self._mark(touched)
        if wakes:
            self.wake()

    def _mark(self, touched: Touched) -> None:
        if touched.everything:
            self.marks.change_all()
        elif touched.changes:
            self.marks.change(touched.locked)

    @property
    def commits(self) -> tuple[int, int]:
        """Return two counters: of commits of this process, and of commits of all processes that share its marks."""
        return self._commits, self.marks.last

    def wake(self) -> None:
        """End all waiting for commits."""
        self.marks.change(())
        with self._committed:
            self._commits += 1
            self._committed.notify_all()

    def wait_for_commit(self, seen: tuple[int, int], timeout_seconds: float) -> None:
        """Wait until ``commits`` differs from ``seen``, at most for the time. Commits of other processes are seen 50
        ms late, or 250 ms after a while without any.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._committed:
            while self.commits == seen and (left := deadline - time.monotonic()) > 0:
                if self._somebody_looks:
                    self._committed.wait(left)
                else:
                    quiet = time.monotonic() - self._commit_at > _QUIET_AFTER_SECONDS
                    self._look(seen[1], min(left, _QUIET_LOOK_SECONDS if quiet else _LOOK_SECONDS))
            if self.commits != seen:
                self._commit_at = time.monotonic()
            if not self._somebody_looks:  # a thread that keeps waiting polls from now on
                self._committed.notify()

    def _look(self, seen: int, seconds: float) -> None:
        """Wait, and poll for commits of other processes on behalf of all waiting threads."""
        self._somebody_looks = True
        try:
            self._committed.wait(seconds)
        finally:
            self._somebody_looks = False
        if self.marks.last != seen:
            self._committed.notify_all()

    @contextmanager
    def reading(self, *, afresh: bool = False) -> Iterator[Repository]:
        """Yield a repository whose queries see one consistent state; it must not write. ``afresh``: it loads again
        what the process has loaded before.
        """
        with translated(), self._reading() as connection:
            loaded = SnapshotCache() if afresh else self._loaded
            yield Repository.over(Transaction(connection, loaded, self._clock))

    def check_integrity(self) -> list[str]:
        """Return the first few faults that SQLite's integrity check finds in the file; PostgreSQL has no such check."""
        if not self._sqlite:
            return []
        with translated(), self._reading() as connection:
            lines = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST_FAULTS})").scalars()
            return [" ".join(line.split()) for line in lines if line != "ok"]

    def remember(self, committed: Iterable[Snapshot]) -> None:
        """Cache the snapshots of a committed transaction, so that they need not be loaded."""
        for snapshot in committed:
            self._loaded.keep(snapshot)

    @property
    def kind(self) -> str:
        """The kind of database: sqlite or postgresql."""
        return self._url.get_backend_name()

    @property
    def embedded(self) -> bool:
        """Whether it is SQLite, which only processes of this machine can use."""
        return self._sqlite

    def notifications(self) -> Notifications | None:
        """Return the notifications of commits on other machines. None on SQLite, which has one machine, and behind a
        pooler, which may not pass notifications on. Raise ``Unavailable``.
        """
        if self._sqlite:
            return None
        with translated():
            return Notifications.listening(self._engine, self.marks.identity)

    def ping(self) -> None:
        """Run one query. Raise ``Unavailable`` if the database does not answer."""
        with translated(), self._reading() as connection:
            connection.execute(sa.select(1))

    def revision(self) -> str | None:
        """Return the migration that the catalog is at, or None when it is empty."""
        if self._sqlite and not Path(self._url.database or "").exists():
            return None
        with translated(), self._reading() as connection:
            return migration_of(connection)

    def is_current(self) -> bool:
        """Return whether the catalog is at this program's newest migration."""
        return self.revision() == newest_migration()

    @staticmethod
    def revision_in(repository: Repository) -> str:
        """Return the migration that the catalog is at, in the transaction of ``repository``."""
        return migration_of(repository.transaction.connection) or ""

    def migrate(self, revision: str = "head") -> None:
        """Create or upgrade the catalog's tables, all or nothing, up to ``revision``. Any number of processes may do
        so at once.

        An up-to-date catalog is only read. Raise ``Unavailable`` if a newer program has migrated it already.
        """
        if self.is_current():
            return
        self._create_folder()
        with translated(), self._writing() as connection:
            if not self._sqlite:  # SQLite's write transaction is the lock
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            upgrade(connection, revision)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        self._writing_engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with ExitStack() as stack:
            with self.metrics.timed(Counted.CATALOG_WAIT, Access.WRITE), self.writers.waiting() as check:
                self._take_turn(check)
                stack.callback(self._turns.release)
                connection = stack.enter_context(self._writing_engine.connect())
                connection.execution_options(writes=True)
                stack.enter_context(connection.begin())
            yield connection

    def _take_turn(self, check: Callable[[], None]) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while not self._turns.acquire(timeout=LOOK_SECONDS):
            check()
            if time.monotonic() > deadline:
                raise Unavailable("the catalog is busy with other changes; retry later")

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with ExitStack() as stack:
            with self.metrics.timed(Counted.CATALOG_WAIT, Access.READ):
                connection = stack.enter_context(self._engine.connect())
                if not self._sqlite:
                    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                stack.enter_context(connection.begin())
            yield connection

    def _create_folder(self) -> None:
        if self._sqlite:
            try:
                Path(self._url.database or "").parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Unavailable(f"the catalog's folder cannot be created: {error}") from error


def _parsed(url: str) -> sa.URL:
    """Return ``url`` with the name of its driver. Raise ``Invalid`` without a cause: the parser's message may quote a
    password.
    """
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise Invalid("the catalog's URL cannot be read; is a special character in its password %-escaped?") from None
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if parsed.database in (None, "", ":memory:"):
            raise Invalid("a catalog in memory would lose accepted batches; use sqlite:///path/to/file.db")
        return parsed
    raise Invalid(f"a catalog on {parsed.drivername!r} is not possible; use sqlite:///… or postgresql+psycopg://…")


def _marks_file(url: sa.URL, folder: Path | None) -> Path | None:
    if url.get_backend_name() == "sqlite":
        return Path(f"{url.database}-marks")
    return None if folder is None else folder / "catalog-marks"
