"""Files that the catalog names: a byte that is not what was written is noticed by whoever reads it."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind, NamedFile
from app.files.checksums import BLOCK_BYTES, SummedSink, Sums, checksums_of
from app.files.layout import Warehouse
from app.files.named_files import check_file, damaged_files, opened_parquet, read_whole
from tests.services.damaged import flip

Reader = Callable[[Warehouse, NamedFile], object]


def named(warehouse: Warehouse, path: str = "t1/file.parquet") -> NamedFile:
    found = checksums_of(warehouse, warehouse.path(path))
    return NamedFile(FileKind.RUN, "t1", path, found.size_bytes, found.digest, found.block_digests, run_id="r1")


def place_of(warehouse: Warehouse, file: NamedFile) -> Path:
    return Path(warehouse.path(file.path))


@pytest.fixture(scope="module")
def content() -> bytes:
    """A Parquet file of a few blocks and row groups."""
    drawn, sink = random.Random(7), pa.BufferOutputStream()
    table = pa.table({"n": range(60_000), "text": [drawn.randbytes(40) for _ in range(60_000)]})
    pq.write_table(table, sink, row_group_size=20_000, compression="none", write_page_checksum=True)
    written = sink.getvalue().to_pybytes()
    assert len(written) > 2 * BLOCK_BYTES
    return written


@pytest.fixture
def file(warehouse: Warehouse, content: bytes) -> NamedFile:
    """It, in the warehouse."""
    path = Path(warehouse.path("t1/file.parquet"))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return named(warehouse)


def damage(read: Reader, warehouse: Warehouse, file: NamedFile) -> DamagedFile:
    """What who reads the file is told."""
    with pytest.raises(DamagedFile) as found:
        read(warehouse, file)
    return found.value


def every_row(warehouse: Warehouse, file: NamedFile) -> int:
    with opened_parquet(warehouse, file) as parquet:
        return sum(batch.num_rows for batch in parquet.iter_batches())


READERS: dict[str, Reader] = {"check": check_file, "whole": read_whole, "parquet": every_row}


@given(pieces=st.lists(st.binary(max_size=50), max_size=6), blocks=st.integers(0, 2))
def test_sums_do_not_depend_on_how_the_bytes_come(pieces: list[bytes], blocks: int) -> None:
    pieces = [*pieces, b"x" * (blocks * BLOCK_BYTES)]
    sums, whole = Sums(), b"".join(pieces)
    for piece in pieces:
        sums.add(piece)
    found = sums.checksums
    assert (found.size_bytes, found.digest) == (len(whole), xxhash.xxh3_128_hexdigest(whole))
    starts = range(0, len(whole), BLOCK_BYTES)
    assert found.block_digests == b"".join(xxhash.xxh3_64_digest(whole[at : at + BLOCK_BYTES]) for at in starts)


def test_what_is_written_is_summed_up_as_what_is_read(warehouse: Warehouse, tmp_path: Path) -> None:
    table = pa.table({"n": range(100_000)})
    with open(tmp_path / "written", "wb") as opened:
        sink = SummedSink(opened)
        with pq.ParquetWriter(sink, table.schema) as writer:
            writer.write_table(table)
    assert sink.sums.checksums == checksums_of(warehouse, str(tmp_path / "written"))


def test_what_is_read_is_what_was_written(warehouse: Warehouse, file: NamedFile) -> None:
    assert every_row(warehouse, file) == 60_000
    assert read_whole(warehouse, file).to_pybytes() == place_of(warehouse, file).read_bytes()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", [0, 5, BLOCK_BYTES - 1, BLOCK_BYTES, 2_000_000, -1, -8, -300])
def test_a_flipped_bit_is_noticed_wherever_it_is(
    warehouse: Warehouse, file: NamedFile, reader: str, place: int
) -> None:
    every_row(warehouse, file)  # what was checked before does not count once the file has changed
    flip(place_of(warehouse, file), place)
    with pytest.raises(DamagedFile, match=r"t1/file\.parquet is damaged.*restore it.*xxh3-128 [0-9a-f]{32}") as found:
        READERS[reader](warehouse, file)
    assert found.value.reason is DamageReason.WRONG_CONTENT
    flip(place_of(warehouse, file), place)
    READERS[reader](warehouse, file)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("change", [-(10**9), -BLOCK_BYTES, -100, -1, 1])
def test_a_file_of_another_length_is_noticed(warehouse: Warehouse, file: NamedFile, reader: str, change: int) -> None:
    path = place_of(warehouse, file)
    os.truncate(path, max(0, file.size_bytes + change))
    found = damage(READERS[reader], warehouse, file)
    assert (found.reason, found.found) == (DamageReason.WRONG_SIZE, f"{path.stat().st_size} bytes")


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_gone_is_missing_and_a_folder_in_its_place_cannot_be_read(
    warehouse: Warehouse, file: NamedFile, reader: str
) -> None:
    path = place_of(warehouse, file)
    path.unlink()
    assert damage(READERS[reader], warehouse, file).missing
    path.mkdir()
    assert damage(READERS[reader], warehouse, file).reason is DamageReason.UNREADABLE


def test_rows_of_other_blocks_are_read_beside_damage(warehouse: Warehouse, file: NamedFile) -> None:
    flip(place_of(warehouse, file), 100)  # in the first row group, far from the footer
    with opened_parquet(warehouse, file) as parquet:
        assert parquet.read_row_group(2).num_rows == 20_000
    with pytest.raises(DamagedFile), opened_parquet(warehouse, file) as parquet:
        parquet.read_row_group(0)


def test_a_block_is_checked_once_as_long_as_the_file_does_not_change(warehouse: Warehouse, file: NamedFile) -> None:
    every_row(warehouse, file)
    other = replace(file, block_digests=b"\0" * len(file.block_digests or b""))  # another file's, at the same place
    with pytest.raises(DamagedFile):
        every_row(warehouse, other)
    path = place_of(warehouse, file)
    whole = path.read_bytes()
    os.utime(path)
    assert every_row(warehouse, file) == 60_000
    path.unlink()
    path.write_bytes(whole)  # restored
    assert every_row(warehouse, file) == 60_000


@pytest.mark.parametrize("reader", ["check", "parquet"])
def test_a_file_without_digests_is_checked_by_its_size_and_pages(
    warehouse: Warehouse, file: NamedFile, reader: str
) -> None:
    old = replace(file, digest=None, block_digests=None)
    READERS[reader](warehouse, old)
    path = place_of(warehouse, file)
    metadata = pq.read_metadata(path).row_group(1).column(1)
    flip(path, metadata.data_page_offset + 5_000)
    with pytest.raises(DamagedFile, match="CRC") as found:
        READERS[reader](warehouse, old)
    assert found.value.reason is DamageReason.UNREADABLE
    with open(path, "ab") as grown:
        grown.write(b"\0")
    assert damage(READERS[reader], warehouse, old).reason is DamageReason.WRONG_SIZE


def test_all_damaged_files_are_found_in_their_order(warehouse: Warehouse, file: NamedFile) -> None:
    whole = place_of(warehouse, file).read_bytes()
    files = []
    for number in range(8):
        one = replace(file, path=f"t1/{number}.parquet")
        place_of(warehouse, one).write_bytes(whole)
        files.append(one)
    assert damaged_files(warehouse, files) == []
    flip(place_of(warehouse, files[6]), 9)
    place_of(warehouse, files[2]).unlink()
    assert [one.file for one in damaged_files(warehouse, files)] == [files[2], files[6]]
    assert damaged_files(warehouse, []) == []


def test_who_reads_all_of_a_file_is_told_how_far_it_is_and_may_stop(warehouse: Warehouse, file: NamedFile) -> None:
    reported: list[int] = []
    check_file(warehouse, file, reported.append)
    assert (sum(reported), max(reported)) == (file.size_bytes, BLOCK_BYTES)

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_file(warehouse, file, stop)


def test_another_file_system_is_checked_alike_and_a_file_that_rots_there_is_damaged() -> None:
    """It tells no times: nothing says that the file is another one."""
    warehouse = Warehouse("mock:///bucket")
    warehouse.filesystem.create_dir(warehouse.path())
    with warehouse.filesystem.open_output_stream(warehouse.path("file.parquet")) as stream:
        pq.write_table(pa.table({"n": range(1000)}), stream)
    file = named(warehouse, "file.parquet")
    assert every_row(warehouse, file) == 1000
    assert read_whole(warehouse, file).size == file.size_bytes
    with pytest.raises(DamagedFile):
        every_row(warehouse, replace(file, block_digests=b"12345678", digest="0" * 32))
    with pytest.raises(DamagedFile):
        check_file(warehouse, replace(file, path="another.parquet"))
    with warehouse.filesystem.open_output_stream(warehouse.path("file.parquet")) as stream:
        stream.write(b"x" * file.size_bytes)
    assert damage(every_row, warehouse, file).reason is DamageReason.WRONG_CONTENT


def test_a_full_disk_under_what_is_written_meanwhile_is_no_damage_of_what_is_read(
    warehouse: Warehouse, file: NamedFile
) -> None:
    with pytest.raises(OSError, match="No space left"), opened_parquet(warehouse, file):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DamagedFile), opened_parquet(warehouse, file):
        raise OSError(errno.EIO, "the disk cannot be read")
