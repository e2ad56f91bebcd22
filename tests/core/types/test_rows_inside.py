"""A value is as large as the rows inside it become, not as what was sent of them."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.errors import FaultCode
from app.core.types import nested
from app.core.types.parser import parse_type
from app.core.types.values import ValueFault

pytestmark = pytest.mark.slow(reason="reads values as large as they may be")
WIDE = "ROW<" + ", ".join(f"f{number} INT" for number in range(100)) + ">"
LONG = "ROW<`" + "n" * 255 + "` INT>"
BOUND = 2**20  # bytes, in place of 64 MiB, which take seconds to read
MANY = BOUND // 6400 + 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (f"ARRAY<{WIDE}>", [{}] * MANY),
        (f"ARRAY<ARRAY<{WIDE}>>", [[{}] * 10] * (MANY // 10 + 1)),
        (f"ARRAY<ROW<a INT, r {WIDE}>>", [{"r": {}}] * MANY),
        (f"ARRAY<ROW<a INT, r {WIDE}>>", [[1, {}]] * MANY),
        (f"MAP<STRING, {WIDE}>", {str(number): {} for number in range(MANY)}),
        (f"MAP<STRING, {WIDE}>", [[str(number), {}] for number in range(MANY)]),
        (f"MAP<STRING, {WIDE}>", [{"key": str(number), "value": {}} for number in range(MANY)]),
        (f"ROW<m ARRAY<{WIDE}>>", {"m": [{}] * MANY}),
        (f"ARRAY<{LONG}>", [{}] * (BOUND // 263 + 1)),
    ],
)
def test_many_rows_of_fields_that_are_left_out_are_refused(
    kind: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested, "MOST_INSIDE", BOUND)
    with pytest.raises(ValueFault, match="left out") as refused:
        parse_type(kind).decoder(value)
    assert refused.value.code is FaultCode.TOO_LONG
    assert refused.value.fix


def test_the_bound_is_64_mib() -> None:
    with pytest.raises(ValueFault, match="left out"):
        parse_type(f"ARRAY<{LONG}>").decoder([{}] * (2**26 // 263 + 1))


@pytest.mark.parametrize(("kind", "value"), [(WIDE, [{}] * 16), ("ROW<a INT>", [{}] * 4_700), ("INT", [1] * 32_000)])
def test_as_many_as_fit_are_taken(kind: str, value: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "MOST_INSIDE", BOUND)
    assert len(parse_type(f"ARRAY<{kind}>").decoder(value)) == len(value)


def test_what_is_no_value_of_the_type_is_still_told_by_its_own_fault() -> None:
    for kind, value in (
        (f"ARRAY<{WIDE}>", [1, None, "x"]),
        (f"MAP<STRING, {WIDE}>", [1, [2], {}]),
        (f"ARRAY<{WIDE}>", {}),
    ):
        with pytest.raises(ValueFault) as refused:
            parse_type(kind).decoder(value)
        assert refused.value.code is not FaultCode.TOO_LONG
