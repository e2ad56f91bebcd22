"""Entries of large images are compressed, each alone (decision 17)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.records import Record, RowKind
from app.files.layout import Warehouse
from app.storage.images import Images
from app.storage.images.container import Container, Damaged
from app.storage.images.packing import LEAST_BYTES, dictionary_of, packing, unpacking
from app.storage.images.read_bytes import ReadBytes, TooMuchAtOnce
from tests.storage.images.imaged import PLAN, answered, built, files_of, remove_parquet, run_of

ROWS = 4000
LONG = "what stands in each of the rows, and makes them as long as rows of a dozen columns are; " * 6


def entries_like(row: Callable[[int], bytes], count: int = ROWS) -> list[bytes]:
    entries = [row(number) for number in range(count)]
    assert sum(map(len, entries)) >= LEAST_BYTES
    return entries


DRAW = Random(1)
KINDS = {
    "rows of a table": entries_like(lambda number: b'[%d]R{"id":%d,"n":"%s"}' % (number, number, LONG.encode())),
    "nothing in common": entries_like(lambda _: DRAW.randbytes(600)),
    "all the same": entries_like(lambda _: b"x" * 600),
    "few and large": entries_like(lambda number: b"[%d]R" % number * 200_000, 3),
}


@pytest.fixture
def images(images: Images) -> Images:
    """Which no process makes beside the test."""
    images.asking.builds = False
    return images


@pytest.mark.parametrize("kind", KINDS)
def test_entries_come_back_as_they_were(kind: str) -> None:
    dictionary = dictionary_of(KINDS[kind], len(KINDS[kind]))
    assert dictionary
    pack, unpack = packing(dictionary), unpacking(dictionary)
    assert all(unpack(pack(entry)) == entry for entry in KINDS[kind])


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_so_do_those_that_are_like_no_sample(entries: list[bytes]) -> None:
    dictionary = dictionary_of(KINDS["rows of a table"], ROWS)
    pack, unpack = packing(dictionary), unpacking(dictionary)
    assert [unpack(pack(entry)) for entry in entries] == entries


def test_a_few_rows_have_no_dictionary() -> None:
    assert dictionary_of(KINDS["rows of a table"][:100], 100) == dictionary_of([], 0) == b""
    assert packing(b"")(b"entry") == unpacking(b"")(b"entry") == b"entry"


def test_what_counts_is_the_file_not_its_first_rows(images: Images, warehouse: Warehouse) -> None:
    """A batch of narrow rows is below the bound, the file is not."""
    records = [Record(RowKind.INSERT, {"id": number, "n": f"number {number} of so many"}) for number in range(60_000)]
    [stored] = [path for path in built(images, run_of(warehouse, records)) if ".states." not in path.name]
    entries = sum(len(f'[{number}]R{{"id":{number},"n":"number {number} of so many"}}') for number in range(60_000))
    assert entries * 16_384 / 60_000 < LEAST_BYTES < entries  # a batch is of so many rows
    assert stored.stat().st_size - 16 * 60_000 < entries / 2


def test_threads_share_what_unpacks() -> None:
    entries = KINDS["rows of a table"]
    dictionary = dictionary_of(entries, ROWS)
    pack, unpack = packing(dictionary), unpacking(dictionary)
    packed = [pack(entry) for entry in entries] * 10
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(unpack, packed, chunksize=100)) == entries * 10


def large(images: Images, warehouse: Warehouse) -> tuple[list[Path], Callable[[int], object]]:
    """The images of a run whose answers are compressed, and what they answer for a key."""
    records = [Record(RowKind.INSERT, {"id": number, "n": f"{LONG}{number}"}) for number in range(ROWS)]
    run = run_of(warehouse, records)
    paths = built(images, run)
    remove_parquet(warehouse, run)
    return paths, lambda key: answered(images, run, key)


def test_a_large_image_is_compressed_and_answers_every_row(images: Images, warehouse: Warehouse) -> None:
    paths, answer = large(images, warehouse)
    [stored] = [path for path in paths if ".states." not in path.name]
    assert stored.stat().st_size < ROWS * len(LONG) / 4
    for key in range(ROWS):
        assert answer(key) == (b'{"id":%d,"n":"%s%d"}' % (key, LONG.encode(), key), True)
    assert answer(ROWS) == (None, False)


def test_many_rows_of_it_count_as_what_they_unfold_to(images: Images, warehouse: Warehouse) -> None:
    paths, _ = large(images, warehouse)
    [image] = [Container(path) for path in paths if ".states." not in path.name]
    rows = np.arange(100)
    heads = [image.entry(row).partition(b"{")[0] for row in rows.tolist()]
    assert image.behind(rows, heads) == [image.entry(row)[len(heads[row]) :] for row in rows.tolist()]
    with pytest.raises(TooMuchAtOnce):
        image.behind(rows, heads, ReadBytes(50 * len(LONG)))


def test_a_compressed_entry_that_is_damaged_is_noticed(images: Images, warehouse: Warehouse) -> None:
    paths, answer = large(images, warehouse)
    [stored] = [path for path in paths if ".states." not in path.name]
    content = bytearray(stored.read_bytes())
    content[10] ^= 1
    stored.write_bytes(content)
    with pytest.raises(Damaged):
        Container(stored).entry(0)
    assert None in [answer(key) for key in range(ROWS)]
    assert stored not in files_of(images)


def test_an_image_of_an_earlier_release_is_made_again_without_a_warning(
    images: Images, warehouse: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of(warehouse, [Record(RowKind.INSERT, {"id": 1, "n": "one"})])
    [stored] = [path for path in built(images, run) if ".states." not in path.name]
    stored.write_bytes(stored.read_bytes()[:-8] + b"KFIMAGE1")
    opened = Images(images.folder, warehouse)
    opened.asking.builds = False
    assert answered(opened, run, 1) is None
    assert not caplog.records
    built(opened, run, PLAN)
    assert answered(opened, run, 1) == (b'{"id":1,"n":"one"}', True)
