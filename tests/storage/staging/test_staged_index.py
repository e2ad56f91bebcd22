"""The staged index gives what reading the files gives, whichever batches have come and gone."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.keys import Key, token_of
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.storage.staging.staged_index import StagedBatch, StagedIndex, load_batch, load_bounded_batch
from app.storage.staging.staging import read_key_records
from tests.services.builders import schema
from tests.storage.staged import batch_in
from tests.storage.staging.test_staging import stage

NUMBERS = schema(("id", "BIGINT"), ("n", "BIGINT"))
TEXTS = schema(("id", "STRING"), ("n", "BIGINT"))
COMPOSED = schema(("a", "INT"), ("id", "DOUBLE"), ("n", "BIGINT"), key=("id", "a"))


def load(warehouse: Warehouse, of: TableSchema, number: int, file: str) -> StagedBatch:
    return load_batch(warehouse, batch_in(warehouse, file, number), of)


def test_a_batch_that_takes_more_memory_than_its_file_is_not_decoded_whole(warehouse: Warehouse) -> None:
    of = schema(("id", "BIGINT"), ("note", "STRING"))
    staged = stage(warehouse, of, *({"id": number, "note": "x" * 10_000} for number in range(3000)))
    batch = replace(batch_in(warehouse, staged.name, 1), records=3000)
    assert staged.stat().st_size < 2**20
    assert load_bounded_batch(warehouse, batch, of, 16 * 2**20) is None
    loaded = load_bounded_batch(warehouse, batch, of, 64 * 2**20)
    assert loaded.rows == load_batch(warehouse, batch, of).rows


records = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["+I", "-D", "+U"])), max_size=4)
steps = st.lists(st.one_of(records, st.sets(st.integers(1, 8), max_size=4)), max_size=8)


@pytest.mark.parametrize("of", [NUMBERS, TEXTS, COMPOSED], ids=["numbers", "texts", "composed"])
@given(history=steps)
def test_the_index_is_what_the_files_say(of: TableSchema, history: list[list[tuple[int, str]] | set[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Warehouse(folder)
        index, files, number = StagedIndex(), dict[int, str](), 0
        for step in history:
            if isinstance(step, set):
                index = index.without(step)
                files = {one: file for one, file in files.items() if one not in step}
                continue
            number += 1
            posted = [
                {name: str(key) if of is TEXTS else key for name in of.primary_key} | {"n": place, "_kind": kind}
                for place, (key, kind) in enumerate(step)
            ]
            files[number] = stage(warehouse, of, *posted, batch=f"b{number}").name
            index = index.extended(load(warehouse, of, number, files[number]))
        for value in range(4):
            key: Key = tuple(str(value) if of is TEXTS else value for _ in of.primary_key)
            read = [
                one
                for batch, file in files.items()
                for one in read_key_records(warehouse, batch_in(warehouse, file, batch), of, key)
            ]
            found = sorted((one for _, one in index.records(token_of(of, key), key)), key=lambda one: one.arrival)
            assert found == read
        assert index.batches.keys() == files.keys()


def test_who_holds_an_index_goes_on_with_what_it_was(warehouse: Warehouse) -> None:
    first = stage(warehouse, NUMBERS, {"id": 1, "n": 1}, batch="b1").name
    second = stage(warehouse, NUMBERS, {"id": 1, "n": 2}, batch="b2").name
    held = StagedIndex().extended(load(warehouse, NUMBERS, 1, first))
    later = held.without([1]).extended(load(warehouse, NUMBERS, 2, second))
    token = token_of(NUMBERS, (1,))
    assert [record.values["n"] for _, record in held.records(token, (1,))] == [1]
    assert [record.values["n"] for _, record in later.records(token, (1,))] == [2]


def test_segments_stay_few(warehouse: Warehouse) -> None:
    file = stage(warehouse, NUMBERS, {"id": 1, "n": 1}).name
    index = StagedIndex()
    for number in range(1, 200):
        index = index.extended(load(warehouse, NUMBERS, number, file))
    assert len(index.segments) <= 8
    assert [len(segment) for segment in index.without(range(3, 200)).segments] == [2]
