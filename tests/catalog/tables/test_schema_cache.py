"""Schemas that a process has read are kept within a bound, each once."""

from __future__ import annotations

import pytest

from app.catalog.tables.schema_cache import SchemaCache
from app.core.table.schema import TableSchema


class Reader:
    """Reads a schema of as many columns as the text says."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, text: str) -> TableSchema:
        self.read.append(text)
        fields = [{"name": f"c{number}", "type": "INT"} for number in range(int(text.split(maxsplit=1)[0]))]
        return TableSchema.from_json({"fields": fields, "primaryKeys": ["c0"]})


def test_a_schema_is_read_once_and_is_the_same_value() -> None:
    reader = Reader()
    cache = SchemaCache(reader)
    assert cache.schema("2") is cache.schema("2")
    assert reader.read == ["2"]


@pytest.mark.parametrize(("most", "read_again"), [(10, []), (9, ["5 a"])])
def test_what_was_used_longest_ago_makes_room(most: int, read_again: list[str]) -> None:
    reader = Reader()
    cache = SchemaCache(reader, most_columns=most)
    for text in ("5 a", "5 b", "5 b", "5 a"):
        cache.schema(text)
    assert reader.read == ["5 a", "5 b", *read_again]


def test_long_texts_count_too() -> None:
    reader = Reader()
    cache = SchemaCache(reader, most_columns=10)
    for text in ("2 " + "x" * 9000, "2", "2 " + "x" * 9000):
        cache.schema(text)
    assert len(reader.read) == 3


def test_a_schema_that_alone_is_too_large_is_read_each_time() -> None:
    reader = Reader()
    cache = SchemaCache(reader, most_columns=4)
    assert [len(cache.schema(text).columns) for text in ("2", "5", "5", "2")] == [2, 5, 5, 2]
    assert reader.read == ["2", "5", "5"]
