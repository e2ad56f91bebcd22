"""A cache of schemas, by text, not by id: the id of a rolled-back ALTER is used again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from app.core.table.schema import TableSchema

MOST_COLUMNS = 100_000  # columns of all cached schemas; with all derived values about 3.5 KB each
_TEXT_OF_A_COLUMN = 1000  # characters of a schema's JSON, comments for instance, that count as one column more


class SchemaCache:
    """The least recently used cache of schemas, with at most ``most_columns`` columns and fields together. A schema
    that alone has more is parsed each time. Safe to share between threads.
    """

    def __init__(self, read: Callable[[str], TableSchema], most_columns: int = MOST_COLUMNS) -> None:
        self.most_columns = most_columns
        self._read = read
        self._kept: OrderedDict[str, tuple[TableSchema, int]] = OrderedDict()
        self._columns = 0
        self._lock = threading.Lock()

    def schema(self, text: str) -> TableSchema:
        """Return the schema of ``text``, its JSON."""
        with self._lock:
            entry = self._kept.get(text)
            if entry is not None:
                self._kept.move_to_end(text)
                return entry[0]
        schema = self._read(text)
        return self._keep(text, schema, len(schema.declared_names) + len(text) // _TEXT_OF_A_COLUMN)

    def _keep(self, text: str, schema: TableSchema, weight: int) -> TableSchema:
        """Cache the schema and return it, or the one that another thread has cached meanwhile, with the values derived
        from it.
        """
        with self._lock:
            if text in self._kept:
                return self._kept[text][0]
            if weight <= self.most_columns:
                self._kept[text] = schema, weight
                self._columns += weight
            while self._columns > self.most_columns:
                self._columns -= self._kept.popitem(last=False)[1][1]
        return schema
