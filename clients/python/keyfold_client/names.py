"""Names of tables, and the paths that they stand in."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from keyfold_client.errors import Misuse

CATALOG: Final = "/v1/catalog/databases"
_NAME: Final = re.compile(r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[\w-]+))")


def named(table: str) -> tuple[str, str]:
    """Return the database and the table that ``db.table`` names; what is not plain stands in backticks.

    Raise ``Misuse``.
    """
    database = _NAME.match(table)
    name = _NAME.fullmatch(table, database.end() + 1) if database else None
    if database is None or name is None or table[database.end()] != ".":
        how = "what has more than letters, digits, _ and - stands in backticks"
        raise Misuse(f"{table[:100]!r}: a table's name is DATABASE.TABLE; {how}")
    return _text(database), _text(name)


def _text(found: re.Match[str]) -> str:
    return found["plain"] or found["quoted"].replace("``", "`")


def path_of_database(database: str, rest: str = "") -> str:
    """Return the path of a database and what is below it."""
    return f"{CATALOG}/{quote(database, safe='')}{rest}"


def path_of_table(database: str, table: str, rest: str = "") -> str:
    """Return the path of a table and what is below it."""
    return path_of_database(database, f"/tables/{quote(table, safe='')}{rest}")
