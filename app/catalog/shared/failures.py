"""Translates errors of database drivers into the core's kinds, without their SQL, values or URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from app.catalog.shared.models import metadata
from app.core.errors import DamagedCatalog, Invalid, KeyfoldError, Unavailable

_SQLITE_UNIQUE = re.compile(r"UNIQUE constraint failed: (.*)")
_SQLITE_REASONS = {
    "SQLITE_FULL": "its disk is full",
    "SQLITE_READONLY": "its file is read-only",
    "SQLITE_CANTOPEN": "its file cannot be opened",
    "SQLITE_IOERR": "its disk reports an error of input or output",
    "SQLITE_BUSY": "another process holds its file",
}
# By SQLSTATE; its own texts may name hosts and users.
_POSTGRES_REASONS = {
    "53100": "its disk is full",
    "25006": "it takes no writes: it is read-only, or a standby",
}
# Poolers use one SQLSTATE or none, so these are matched by text: only refusals that a setting, not time, will end.
_POOLERS_TEXTS = {
    "statement pooling mode": "the pooler before it runs in statement mode, which has no transactions: set its"
    " pool_mode to transaction or session",
    "query_wait_timeout": "the pooler before it had no free connection for too long: raise its pool size",
    "max_client_conn": "the pooler before it takes no more clients: raise its max_client_conn",
}
_NOT_MIGRATED = re.compile(r"no such (table|column)|has no column named|(relation|column) .* does not exist")


@contextmanager
def translated() -> Iterator[None]:
    """Raise ``Unavailable`` for a database that does not answer, ``Invalid`` for a value that it cannot store,
    ``DamagedCatalog`` for a file that SQLite cannot read.
    """
    try:
        yield
    except exc.TimeoutError as error:
        raise Unavailable("all connections to the catalog are in use; retry later") from error
    except (exc.DataError, UnicodeEncodeError) as error:
        raise Invalid("a name or value holds text that the catalog cannot store, such as U+0000") from error
    except (exc.OperationalError, exc.InterfaceError, exc.ProgrammingError) as error:
        if _NOT_MIGRATED.search(str(error.orig)):
            raise Unavailable("the catalog is not migrated to this version: run `keyfold migrate`") from error
        if isinstance(error, exc.ProgrammingError):
            raise  # SQL that the database refuses is a bug of the program
        raise Unavailable(f"the catalog does not answer now{_reason(error)}; retry later") from error
    except exc.DBAPIError as error:
        if _reason(error):  # PostgreSQL calls read-only an internal error
            raise Unavailable(f"the catalog does not answer now{_reason(error)}; retry later") from error
        if error.connection_invalidated:
            raise Unavailable("the connection to the catalog was lost; retry later") from error
        if type(error) is exc.DatabaseError:  # how SQLite calls a damaged file, and a file of another kind
            raise DamagedCatalog("its file cannot be read, or is no SQLite database") from error
        raise


def _reason(error: exc.DBAPIError) -> str:
    """Return the operator's explanation of a database error, if it is a known one."""
    name = getattr(error.orig, "sqlite_errorname", "")
    state = getattr(error.orig, "sqlstate", None) or ""
    known = [reason for begin, reason in _SQLITE_REASONS.items() if name.startswith(begin)]
    known += [reason for code, reason in _POSTGRES_REASONS.items() if code == state]
    known += [reason for text, reason in _POOLERS_TEXTS.items() if text in str(error.orig)]
    return f" ({known[0]})" if known else ""


@contextmanager
def refusing(connection: sa.Connection, refusals: Mapping[str, KeyfoldError]) -> Iterator[None]:
    """Raise the error in ``refusals`` for the constraint that the statements inside violate.

    They run in a savepoint, so that the caller may catch the error and go on in the same transaction.
    """
    try:
        with connection.begin_nested():
            yield
    except exc.IntegrityError as error:
        refusal = refusals.get(violated_constraint(error) or "")
        if refusal is None:
            raise
        raise refusal from error


def violated_constraint(error: exc.IntegrityError) -> str | None:
    """Return the name of the unique constraint that ``error`` is about, or None for other errors."""
    diagnosis = getattr(error.orig, "diag", None)
    if diagnosis is not None:  # psycopg
        name: str | None = diagnosis.constraint_name
        return name
    match = _SQLITE_UNIQUE.search(str(error.orig))
    return _constraint_on(match.group(1).split(", ")) if match else None


def _constraint_on(qualified: list[str]) -> str | None:
    """Return the constraint on the columns that SQLite names (``tables.database_id, tables.name``): SQLite does not
    name the constraint.
    """
    table = metadata.tables[qualified[0].partition(".")[0]]
    columns = {name.partition(".")[2] for name in qualified}
    for constraint in table.constraints:
        if not isinstance(constraint, sa.UniqueConstraint | sa.PrimaryKeyConstraint):
            continue
        if {column.name for column in constraint.columns} == columns:
            return str(constraint.name)
    return None
