"""Columns get dictionaries, and other encodings, where that makes files smaller."""

from __future__ import annotations

import io
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.files.encodings import columns_with_dictionaries, encodings_of_own, encodings_of_shared

ROWS = 20_000


def of(*values: Any) -> list[Any]:
    return [values[number % len(values)] for number in range(ROWS)]


@pytest.mark.parametrize(
    ("values", "given"),
    [
        (pa.array(range(ROWS), pa.int64()), False),
        (pa.array(of(1, 2, 3), pa.int64()), True),
        (pa.array([number / 7 for number in range(ROWS)]), False),
        (pa.array([f"a name of its own: {number}" for number in range(ROWS)]), False),
        (pa.array(of("a name", "another name")), True),
        (pa.array(of(b"x", b"yy", None)), True),
        (pa.array(of(*(Decimal(number) for number in range(100))), pa.decimal128(38, 2)), True),
        (pa.array(of(True, False)), True),
        (pa.nulls(ROWS, pa.int64()), True),
        (pa.nulls(0, pa.string()), True),
    ],
    ids=["unique", "few", "fractions", "unique texts", "few texts", "bytes", "decimals", "booleans", "null", "empty"],
)
def test_a_column_has_one_where_its_values_come_again(values: pa.Array, given: bool) -> None:
    assert (columns_with_dictionaries(pa.table({"a": values})) == ["a"]) is given


def test_columns_are_reported_by_their_paths_and_the_file_is_smaller() -> None:
    unique = pa.array([number * 2**40 for number in range(ROWS)], pa.int64())
    rows = pa.table(
        {
            "a.b": unique,
            "a": pa.StructArray.from_arrays([unique, pa.array(of(1, 2))], names=["c", "d"]),
            "list": pa.array(of([2**50], [2**51, 1], [])),
            "few": pa.array(of(2**50, 2**51)),
        }
    )
    chosen = columns_with_dictionaries(rows)
    assert chosen == ["a.d", "list.list.element", "few"]
    sizes = []
    for dictionaries in (chosen, True, False):
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd", use_dictionary=dictionaries)
        sizes.append(sink.tell())
        group = pq.read_metadata(sink).row_group(0)
        if dictionaries is chosen:
            having = [group.column(place) for place in range(group.num_columns)]
            assert [one.path_in_schema for one in having if one.has_dictionary_page] == chosen
            assert pq.read_table(sink).equals(rows)
    assert sizes[0] < min(sizes[1:])


def test_numbers_and_times_of_our_own_files_are_smaller(rng: Random) -> None:
    columns = {
        "_kf_token": pa.array(sorted(rng.getrandbits(63) for _ in range(ROWS)), pa.int64()),
        "n": pa.array([rng.randrange(1_000_000) for _ in range(ROWS)], pa.int64()),
        "at": pa.array([1_700_000_000_000_000 + rng.getrandbits(40) for _ in range(ROWS)], pa.timestamp("us")),
    }
    for name, values in columns.items():
        rows = pa.table({name: values})
        assert size(rows, encodings_of_own(rows.schema)) < 0.9 * size(rows, {}), name


def test_what_cannot_be_split_is_written_as_it_is() -> None:
    """A column whose name has a point would be taken for what is in another one."""
    inner = pa.struct([pa.field("b", pa.string())])
    fields = [("a", inner), ("a.b", pa.int64()), ("small", pa.int8()), ("few", pa.int64()), ("n", pa.int32())]
    rows = pa.schema([pa.field("_kf_token", pa.int64()), *(pa.field(*field) for field in fields)]).empty_table()
    encodings = encodings_of_own(rows.schema, ["few"])
    assert encodings == {"_kf_token": "DELTA_BINARY_PACKED", "n": "BYTE_STREAM_SPLIT"}
    assert size(rows, encodings) > 0


def test_tokens_with_a_dictionary_keep_it() -> None:
    assert encodings_of_shared(["_kf_token"]) == {}


def size(rows: pa.Table, encodings: dict[str, str]) -> int:
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", use_dictionary=False, column_encoding=encodings or None)
    assert pq.read_table(io.BytesIO(sink.getvalue())).equals(rows)
    return len(sink.getvalue())


@pytest.fixture
def rng() -> Random:
    return Random(1)
