"""A service: its databases and tables."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from keyfold_client.errors import Conflict
from keyfold_client.names import CATALOG, named, path_of_database
from keyfold_client.sync.table import Table
from keyfold_client.sync.transport import PATIENCE_SECONDS, Paused, Transport, log_pause


class Client:
    """The service at ``url``, such as ``http://127.0.0.1:8080``. ``token`` is one that ``keyfold token create`` wrote.

    Temporary failures (a restart, a full staging area) are retried for ``patience_seconds``. ``paused`` is called
    before each pause, which is logged by default. Every error is a ``KeyfoldError``.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        paused: Paused = log_pause,
    ) -> None:
        """Open no connection yet. Raise ``Misuse`` for a malformed URL or token."""
        self.transport = Transport(url, token, patience_seconds=patience_seconds, paused=paused)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def table(self, name: str) -> Table:
        """Return the table ``db.table``; nothing is sent yet. Raise ``Misuse`` if the name is malformed."""
        return Table(self.transport, *named(name))

    def databases(self) -> list[str]:
        """Return the names of the databases."""
        return [name for name in self.transport.listed(CATALOG, "databases")]

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Make a database. Raise ``Conflict`` where it is there."""
        try:
            self.transport.ask("POST", CATALOG, json={"name": name, "options": {}})
        except Conflict as error:
            if not (if_not_exists and error.code == "database_already_exists"):
                raise

    def tables(self, database: str) -> list[str]:
        """Return the names of the database's tables."""
        return [name for name in self.transport.listed(path_of_database(database, "/tables"), "tables")]

    def create_tables(self, database: str, ddl: str, *, dialect: str | None = None) -> list[Table]:
        """Make the tables of CREATE TABLE statements, all or none, and return them. Raise ``Refused``."""
        body: dict[str, Any] = {"ddl": ddl, **({"dialect": dialect} if dialect else {})}
        answer = self.transport.json("POST", path_of_database(database, "/tables:fromDdl"), json=body)
        return [Table(self.transport, one["database"], one["name"]) for one in answer["tables"]]
