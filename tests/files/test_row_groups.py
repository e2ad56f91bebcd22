"""Staging files have row groups by token; those of older releases, which have not, are read the same."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.table.history import Batch
from app.core.table.keys import token_of
from app.core.table.records import POSITION_COLUMN, TOKEN_COLUMN, Record
from app.core.table.schema import TableSchema
from app.core.table.upkeep.forgetting import SaltedPrints, Sought, prints_of
from app.files.layout import Warehouse, staging_file
from app.files.named_files import file_of_batch
from app.files.reading import LEAST_TOKEN, MOST_TOKEN, TokenRange
from app.files.row_groups import GATHERED_BYTES
from app.files.tokens import order_of, tokens_of
from app.kernel.run import run_tasks
from app.kernel.tasks import Rewrite, Task, Work, schema_text
from app.storage.history.history import Room, key_records, staged_key_records, write_history
from app.storage.staging.staged_index import StagedIndex, load_batch, load_bounded_batch
from app.storage.staging.staging import read_batch, read_key_records, staged_groups, write_pieces
from tests.histories import examples
from tests.services.builders import schema
from tests.storage.staged import batch_in, write_as_before

PLAIN = schema(("id", "BIGINT"), ("n", "BIGINT"))
TELLING = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
TEXTS = schema(("id", "STRING"), ("n", "BIGINT"), ("m", "STRING"), options=TELLING)


def columns(ids: Sequence[int], first: int = 0) -> DecodedRecords:
    """A piece of a body whose records are numbered from ``first`` on, as those have it that read whole columns."""
    places = pa.array(range(first, first + len(ids)), pa.int32())
    kinds = pa.array([0] * len(ids), pa.int8())
    return DecodedRecords({"id": pa.array(ids, pa.int64()), "n": places.cast(pa.int64())}, kinds, places)


def write(warehouse: Warehouse, of: TableSchema, *pieces: DecodedRecords) -> pq.ParquetFile:
    staged = write_pieces(warehouse, "t1", "b1", of, pieces)
    return pq.ParquetFile(warehouse.path(*staging_file("t1", staged.file)))


def without_keys(warehouse: Warehouse, batch: Batch, of: TableSchema, *ids: Any) -> Batch | None:
    """The batch without the keys ``ids``; None where it has none of them."""
    sought = Sought((SaltedPrints("00", tuple(prints_of(of, [(one,) for one in ids], "00"))),))
    rewrites = (Rewrite(file_of_batch(batch), staging_file("t1", "")[:-1]),)
    texts = {"0": schema_text(of)}
    task = Task(Work.REWRITE, "t1", texts, 0, output="", now=0, rewrites=rewrites, sought=sought)
    [result] = run_tasks(warehouse, [task])
    [new] = result.rewritten
    if new is None:
        return None
    return replace(batch, file=new.name, records=new.rows, size_bytes=new.size_bytes, digest=new.digest)


def check_groups(parquet: pq.ParquetFile, of: TableSchema) -> None:
    """Each row group is sorted by token, with the ends in its statistics, and positions rise within a token."""
    for group in range(parquet.num_row_groups):
        rows = parquet.read_row_group(group)
        tokens = rows.column(TOKEN_COLUMN).to_numpy()
        assert tokens.tolist() == tokens_of(of, rows).tolist()
        places = [*zip(tokens.tolist(), rows.column(POSITION_COLUMN).to_pylist(), strict=True)]
        assert places == sorted(places)
        known = parquet.metadata.row_group(group).column(0).statistics
        assert (known.min, known.max) == (tokens[0], tokens[-1])


def test_a_small_body_is_one_row_group_by_token(warehouse: Warehouse) -> None:
    for count in (1, 10, 40, 5000):
        parquet = write(warehouse, PLAIN, columns([number % 7 for number in range(count)]))
        assert parquet.num_row_groups == 1
        check_groups(parquet, PLAIN)


def test_of_a_large_body_only_the_row_groups_of_the_tokens_are_read(warehouse: Warehouse) -> None:
    pieces = [columns(range(first, first + 5000), first) for first in range(0, 40_000, 5000)]
    parquet = write(warehouse, PLAIN, *pieces)
    check_groups(parquet, PLAIN)
    assert parquet.num_row_groups == 8  # although no piece has enough records for two
    eighth = 2**61
    for place in range(8):
        first = LEAST_TOKEN + place * eighth
        assert staged_groups(parquet, TokenRange(first, first + eighth - 1)) == [place]
    assert staged_groups(parquet, TokenRange(LEAST_TOKEN, 0)) == [0, 1, 2, 3]
    assert staged_groups(parquet, TokenRange(1, MOST_TOKEN)) == [4, 5, 6, 7]
    assert len(staged_groups(parquet, TokenRange.from_token(token_of(PLAIN, (17,))))) == 1
    assert parquet.read().sort_by(POSITION_COLUMN).column("id").to_pylist() == [*range(40_000)]


def test_records_of_many_bytes_are_sorted_some_at_a_time(warehouse: Warehouse) -> None:
    """What is in memory does not follow the body; each part of it has row groups of its own."""
    of = schema(("id", "BIGINT"), ("n", "STRING"))
    count, size = 100, 3 * GATHERED_BYTES // 100
    pieces = []
    for first in range(0, count, 10):
        piece = columns(range(first, first + 10), first)
        pieces.append(replace(piece, columns={**piece.columns, "n": pa.array(["x" * size] * 10)}))
    parquet = write(warehouse, of, *pieces)
    check_groups(parquet, of)
    numbers = range(parquet.num_row_groups)
    groups = [parquet.read_row_group(number, [POSITION_COLUMN]).column(0).to_numpy() for number in numbers]
    assert all(group.max() - group.min() < 50 for group in groups)
    assert sorted(np.concatenate(groups).tolist()) == [*range(count)]


def test_many_records_of_one_key_stay_in_their_order(warehouse: Warehouse) -> None:
    parquet = write(warehouse, PLAIN, *(columns([5] * 10_000, first) for first in range(0, 40_000, 10_000)))
    assert parquet.num_row_groups == 1
    check_groups(parquet, PLAIN)


@given(st.lists(st.integers(-3, 3), max_size=40))
def test_equal_tokens_are_sorted_as_they_came(tokens: list[int]) -> None:
    given_tokens = np.array(tokens, np.int64)
    assert order_of(given_tokens).tolist() == np.argsort(given_tokens, kind="stable").tolist()


KEYS = ["", "a", "b", "ü", "c" * 40, "d", "e"]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[int]]:
    """Records of few keys, and where the body is cut into pieces; some leave columns out, some are sent many times."""
    values = st.fixed_dictionaries({"id": st.sampled_from(KEYS)}, optional={"n": st.integers(0, 9), "m": st.just("x")})
    records = draw(st.lists(values, min_size=1, max_size=30)) * draw(st.sampled_from([1, 1, 3]))
    numbered = [one | ({"n": place} if "n" in one else {}) for place, one in enumerate(records)]
    return numbered, sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))


def staged_in_both_ways(warehouse: Warehouse, records: list[dict[str, Any]], cuts: list[int]) -> None:
    decoder = RecordDecoder(compile_plan(TEXTS))
    numbered = [*enumerate(records)]
    pieces = [decoder.decode_at(numbered[start:end]) for start, end in pairwise([0, *cuts, len(records)])]
    write_pieces(warehouse, "t1", "new", TEXTS, pieces)
    write_as_before(warehouse, "t1", "old.parquet", TEXTS, pieces)


@settings(max_examples=examples(30))
@given(bodies())
def test_a_file_of_an_older_release_is_read_the_same(body: tuple[list[dict[str, Any]], list[int]]) -> None:
    records, cuts = body
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Warehouse(folder)
        staged_in_both_ways(warehouse, records, cuts)
        batches = [batch_in(warehouse, name, 7, len(records)) for name in ("new.parquet", "old.parquet")]
        found = [reading(warehouse, batch) for batch in batches]
    assert found[0] == found[1]
    posted = {key: [place for place, one in enumerate(records) if one["id"] == key] for key in KEYS}
    assert {key: [one.arrival & 0xFFFFFF for one in of] for key, of in found[0][0].items()} == posted


def reading(warehouse: Warehouse, batch: Any) -> tuple[dict[str, list[Record]], ...]:
    """The records of each key, as each reader of staging files finds them."""
    index = StagedIndex().extended(load_batch(warehouse, batch, TEXTS))
    bounded = load_bounded_batch(warehouse, batch, TEXTS, 2**20)
    assert bounded is not None
    others = StagedIndex().extended(bounded)
    filed = write_history(warehouse, "t1", [batch], TEXTS)
    left = without_keys(warehouse, batch, TEXTS, "a")
    ways = {
        "a file": lambda key: [*read_key_records(warehouse, batch, TEXTS, key)],
        "an index": lambda key: [one for _, one in index.records(token_of(TEXTS, key), key)],
        "a bounded index": lambda key: [one for _, one in others.records(token_of(TEXTS, key), key)],
        "newest first": lambda key: staged_key_records(warehouse, batch, TEXTS, key, Room(99, 2**20)).records[::-1],
        "history": lambda key: key_records(
            warehouse, "t1", [(one, TEXTS) for one in filed], key, lambda numbers: numbers, Room(99, 2**20)
        )[0].records[::-1],
    }
    found = [{key: [*way((key,))] for key in KEYS} for way in ways.values()]
    assert all(one == found[0] for one in found)
    without = {key: [*read_key_records(warehouse, left or batch, TEXTS, (key,))] for key in KEYS}
    assert without == found[0] | {"a": []}
    rows = read_batch(warehouse, batch, TEXTS)
    assert rows.tokens.tolist() == tokens_of(TEXTS, rows.rows).tolist()
    return tuple(found)


def test_a_file_without_forgotten_keys_has_its_row_groups_still(warehouse: Warehouse) -> None:
    write(warehouse, PLAIN, *(columns(range(first, first + 5000), first) for first in range(0, 40_000, 5000)))
    batch = batch_in(warehouse, "b1.parquet", 1, 40_000)
    left = without_keys(warehouse, batch, PLAIN, 17, 39_999)
    assert left.records == 39_998
    parquet = pq.ParquetFile(warehouse.path(*staging_file("t1", left.file)))
    check_groups(parquet, PLAIN)
    assert staged_groups(parquet, TokenRange(0, 2**61 - 1)) == [4]
