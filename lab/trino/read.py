"""Trino's own client: it answers each line of JSON, the text of a query, with a file of pickled rows.

A row is a mapping of columns to Python's values: a ROW is a mapping too, a MAP a list of pairs. The answer is a line
with the count of rows, or with Trino's error.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import trino


def plain(value: Any) -> Any:
    if isinstance(value, trino.types.NamedRowTuple):
        return {name: plain(one) for name, one in zip(value.__annotations__["names"], value, strict=True)}
    if isinstance(value, dict):
        return [(plain(key), plain(one)) for key, one in value.items()]
    return [plain(one) for one in value] if isinstance(value, list) else value


def main() -> None:
    port, to = int(sys.argv[1]), Path(sys.argv[2])
    cursor = trino.dbapi.connect(host="127.0.0.1", port=port, user="keyfold", timezone="UTC").cursor()
    for line in sys.stdin:
        try:
            cursor.execute(json.loads(line))
            names = [column.name for column in cursor.description or ()]
            rows = [dict(zip(names, map(plain, row), strict=True)) for row in cursor.fetchall()]
            to.write_bytes(pickle.dumps(rows))
            answer: dict[str, Any] = {"rows": len(rows)}
        except trino.exceptions.Error as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201


main()
