"""Names of tables, and the paths that they stand in."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

from keyfold_client.errors import Misuse

CATALOG: Final = "/v1/catalog/databases"
QUOTED: Final = "what has more than letters, digits, _ and - stands in backticks"
_NAME: Final = re.compile(r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[\w-]+))")


def named(table: str) -> tuple[str, str]:
    """Return the database and the table that ``db.table`` names; names that are not plain need backticks.

    Raise ``Misuse``.
    """
    names, rest = leading_names(table)
    if len(names) != 2 or rest:
        raise Misuse(f"{table[:100]!r}: a table's name is DATABASE.TABLE; {QUOTED}")
    return names[0], names[1]


def leading_names(text: str) -> tuple[list[str], str]:
    """Return the names, with dots between them, that ``text`` begins with, and what follows them."""
    names, end = [], 0
    while name := _NAME.match(text, end):
        names.append(name["plain"] or name["quoted"].replace("``", "`"))
        end = name.end()
        if not text.startswith(".", end) or _NAME.match(text, end + 1) is None:
            break
        end += 1
    return names, text[end:]


def check_url(url: str) -> None:
    """Raise ``Misuse`` if this is no URL of a service."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname is not None and parts.port != 0
    except ValueError:  # [ without ], or a port beyond 65535
        usable = False
    if not usable:
        raise Misuse(f"{url!r} is no URL of a service; write http://host:port or https://host")


def segment(name: str) -> str:
    """Return a name as a segment of a path. Raise ``Misuse`` for a name that would lead to another path."""
    # A URL reads them as the folder itself and the one above: DELETE …/tags/.. would drop the table.
    if name in ("", ".", ".."):
        raise Misuse(f"{name!r} cannot be a segment of a URL path, so nothing has this name")
    return quote(name, safe="")


def path_of_database(database: str, rest: str = "") -> str:
    """Return the path of a database and what is below it. Raise ``Misuse``."""
    return f"{CATALOG}/{segment(database)}{rest}"


def path_of_table(database: str, table: str, rest: str = "") -> str:
    """Return the path of a table and what is below it. Raise ``Misuse``."""
    return path_of_database(database, f"/tables/{segment(table)}{rest}")
