"""Addresses of a table and of its rows, for the pages of its tabs and for their parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from app.console.parts.curl import table_path
from app.console.parts.words import segment
from app.console.site.visits import Visit


def address_of_table(visit: Visit, rest: str = "") -> str:
    """Return the path of a console page of the visited table; ``rest`` is the part after the table's name."""
    return f"/console/tables/{segment(visit.names['database'])}/{segment(visit.names['table'])}{rest}"


def of_table(visit: Visit) -> dict[str, Any]:
    """Return the values for the templates of a table, and for its fragments that are requested separately."""
    name = visit.names["database"], visit.names["table"]
    return {"name": name, "api": table_path(*name), "base": address_of_table(visit)}


def row_link(key: Iterable[Any]) -> str:
    """Return the query string of a row's page, below the table's address; it has the values of ``key`` as JSON."""
    return "row?" + urlencode([("key", text) for text in key_texts(key)])


def key_texts(key: Iterable[Any]) -> list[str]:
    """Return the values of a key as addresses have them."""
    return [value if isinstance(value, str) else json.dumps(value) for value in key]
