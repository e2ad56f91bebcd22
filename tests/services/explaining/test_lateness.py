"""The time since which late records are reported."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.core.errors import FaultCode, Invalid
from app.services.explaining.lateness import parsed_since


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01", "2026-03-01T10:00:00", "0001-01-01T00:00:00+14:00", ""])
def test_a_time_without_its_offset_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parsed_since(text)
    assert [violation.code for violation in refused.value.violations] == [FaultCode.BAD_TIMESTAMP]


def test_a_time_is_read_with_its_offset() -> None:
    assert parsed_since(None) is None
    assert parsed_since("2026-03-01T10:00:00+02:00") == datetime(2026, 3, 1, 8, tzinfo=UTC)
