"""Whether a key comes twice in staged batches is seen by their keys alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import KeyfoldError
from app.core.table.damage import DamagedFile
from app.core.table.schema import TableSchema
from app.core.types.datatype import ENTRIES
from app.core.types.kinds import Kind
from app.storage.distinct_keys import keys_are_distinct
from app.storage.layout import Warehouse
from tests.services.builders import schema
from tests.storage.staged import batch_in
from tests.storage.test_staging import stage

# By kind of key: its type, and values that are all different keys.
KEYS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "SMALLINT": [-128, 0, 300],
    "INT": [-(2**31), 0, 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1, 2**31],
    "DECIMAL(38, 2)": ["1.00", "-1.00", "9" * 36 + ".99"],
    "CHAR(3)": ["abc", "ab", "ab "],
    "VARCHAR(9)": ["", "a", "A"],
    "STRING": ["", "\0", "\0\0", "ü"],
    "BINARY(2)": ["AP8=", "AAA="],
    "VARBINARY(9)": ["", "AA==", "AAA="],
    "BYTES": ["", "AA==", "AAA="],
    "DATE": ["0001-01-01", "2024-02-29"],
    "TIME(3)": ["00:00:00.001", "00:00:00.002"],
    "TIMESTAMP(6)": ["2024-01-01T00:00:00.000001", "2024-01-01T00:00:00.000002"],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000001Z"],
}
FLOATING = {Kind.FLOAT, Kind.DOUBLE}


def keyed(*kinds: str) -> TableSchema:
    columns = [(f"k{place}", kind) for place, kind in enumerate(kinds)]
    return schema(*columns, ("v", "INT"), key=[name for name, _ in columns])


def distinct(warehouse: Warehouse, of: TableSchema, *batches: Sequence[Sequence[Any]], most: int | None = None) -> bool:
    """Whether keys come once in the batches, of which each is a list of keys."""
    for number, keys in enumerate(batches):
        named = [{f"k{place}": value for place, value in enumerate(key)} for key in keys]
        stage(warehouse, of, *({**key, "v": place} for place, key in enumerate(named)), batch=f"b{number}")
    staged = [batch_in(warehouse, f"b{number}.parquet") for number in range(len(batches))]
    bound = {} if most is None else {"most_bytes": most}
    return keys_are_distinct(warehouse, staged, of, **bound)


def test_all_kinds_of_keys_are_tried() -> None:
    tried = {keyed(kind).key_columns[0].type.kind for kind in KEYS}
    assert tried | FLOATING == {kind for kind, entry in ENTRIES.items() if entry.hashed is not None}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_that_comes_twice_is_seen(warehouse: Warehouse, kind: str) -> None:
    of, keys = keyed(kind), [(value,) for value in KEYS[kind]]
    assert distinct(warehouse, of, keys)
    assert distinct(warehouse, of, keys[:1], keys[1:])
    assert not distinct(warehouse, of, [*keys, keys[0]])
    assert not distinct(warehouse, of, keys, keys[-1:]), "one in each of two batches"


def test_keys_of_several_columns_are_compared_as_a_whole(warehouse: Warehouse) -> None:
    of = keyed("STRING", "INT")
    assert distinct(warehouse, of, [("a", 1), ("a", 2), ("b", 1)], [("b", 2)])
    assert not distinct(warehouse, of, [("a", 1), ("a", 2), ("b", 1)], [("a", 2)])


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_keys_that_are_equal_in_two_forms_are_not_compared(warehouse: Warehouse, kind: str) -> None:
    assert not distinct(warehouse, keyed(kind), [(0.0,), (-0.0,)])
    assert not distinct(warehouse, keyed("INT", kind), [(1, 0.5), (2, 0.5)])


def test_more_keys_than_are_compared_at_once_are_taken_for_repeated(warehouse: Warehouse) -> None:
    keys = [(number,) for number in range(1000)]
    assert distinct(warehouse, keyed("BIGINT"), keys, most=20_000)
    assert not distinct(warehouse, keyed("BIGINT"), keys, most=7_000)


def test_names_with_dots_are_names(warehouse: Warehouse) -> None:
    columns = (("a", "INT"), ("a.b", "INT"), ("b", "ROW<c INT>"))
    for keys, found in ((["a"], False), (["a.b"], True), (["a", "a.b"], True)):
        of = schema(*columns, key=keys)
        records = [{"a": 1, "a.b": number, "b": {"c": 1}} for number in range(3)]
        stage(warehouse, of, *records)
        assert keys_are_distinct(warehouse, [batch_in(warehouse, "b1.parquet")], of) is found


def test_a_file_that_is_gone_or_another_is_damage(warehouse: Warehouse) -> None:
    of = keyed("INT")
    path = stage(warehouse, of, {"k0": 1, "v": 1})
    batch = batch_in(warehouse, "b1.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedFile):
        keys_are_distinct(warehouse, [batch], of)
    Path(path).unlink()
    with pytest.raises(KeyfoldError):
        keys_are_distinct(warehouse, [batch], of)
