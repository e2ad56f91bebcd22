"""Bodies share a room: what is too much for it goes to disk, or is refused, and everything is given back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.core.errors import Unavailable
from app.storage.staging.spool import FREE_BYTES, Room, Spool

MIB = 2**20


def spooled(spool: Spool, size: int) -> None:
    for _ in range(0, size, FREE_BYTES):
        spool.add(b"x" * FREE_BYTES)
        if spool.due:
            spool.spill()


def test_a_body_goes_to_disk_when_others_take_the_memory(tmp_path: Path) -> None:
    room = Room(tmp_path, memory_bytes=MIB)
    with closing(Spool(room)) as first, closing(Spool(room)) as second:
        spooled(first, MIB)
        assert isinstance(first.content(), bytes)
        assert not room.short_of_memory
        spooled(second, MIB)
        assert not isinstance(second.content(), bytes)
        assert not room.short_of_memory


def test_what_cannot_go_to_disk_is_refused_when_others_take_the_memory() -> None:
    room = Room(memory_bytes=MIB)
    with closing(Spool(room, files=False)) as first, closing(Spool(room, files=False)) as second:
        spooled(first, MIB)
        with pytest.raises(Unavailable, match=r"too much memory while they are read.*retry later"):
            spooled(second, MIB)
    with closing(Spool(room, files=False)) as third:
        spooled(third, MIB)  # what the others took they gave back


def test_small_bodies_are_taken_even_then() -> None:
    room = Room(memory_bytes=MIB)
    with closing(Spool(room, files=False)) as large, closing(Spool(room, files=False)) as small:
        room.take_memory(MIB + 1)
        small.add(b"x" * FREE_BYTES)
        assert small.content() == b"x" * FREE_BYTES
        with pytest.raises(Unavailable):
            spooled(large, MIB)
    room.take_memory(-MIB - 1)


def test_the_disk_is_bounded_and_given_back_with_the_last_reader(tmp_path: Path) -> None:
    room = Room(tmp_path, disk_bytes=5 * MIB)
    with closing(Spool(room, memory_bytes=10)) as first:
        spooled(first, 4 * MIB)
        content = first.content()
    with closing(Spool(room, memory_bytes=10)) as second, pytest.raises(Unavailable, match="on the disk"):
        spooled(second, 2 * MIB)
    assert len(content) == 4 * MIB
    del content
    with closing(Spool(room, memory_bytes=10)) as third:
        spooled(third, 4 * MIB)
        assert len(third.content()) == 4 * MIB
    assert [*tmp_path.iterdir()] == []


def test_a_body_that_is_given_up_takes_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path, memory_bytes=MIB, disk_bytes=3 * MIB)
    for _ in range(5):
        with closing(Spool(room, memory_bytes=10)) as spool:
            spooled(spool, 2 * MIB)
    assert not room.short_of_memory
