"""What all scans of a process may take together."""

from __future__ import annotations

import pytest

from app.core.errors import StagingFull, Unavailable
from app.services.rows.scan_pages import ScanRoom


def test_staged_rows_of_all_scans_have_one_bound_and_are_given_back() -> None:
    room = ScanRoom(most_staged_bytes=10)
    with room.place() as first:
        first.take_staged(6)
        with room.place() as second:
            second.take_staged(4)
            with pytest.raises(StagingFull, match="consistency=merged"):
                second.take_staged(1)
    with room.place() as third:
        third.take_staged(10)


def test_wide_tables_are_read_one_at_a_time_and_by_who_is_alone_whatever_their_width() -> None:
    room = ScanRoom(most_columns=10)
    with room.place() as first:
        first.take_columns(50)
        with room.place() as second, pytest.raises(Unavailable):
            second.take_columns(1)
    with room.place() as first, room.place() as second:
        first.take_columns(4)
        second.take_columns(6)
