"""Maps with times: the order of their times."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest

from app.core.functions.collections import merge_map_with_keytime
from app.core.types.parser import parse_type

TIMES = [-math.inf, -0.0, 0.0, math.inf, math.nan]


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_times_of_a_map_are_ordered_as_sequence_fields_are(kind: str) -> None:
    """NaN is the latest and -0.0 is before 0.0, whatever came first."""
    fold = merge_map_with_keytime(parse_type(f"MAP<STRING, ROW<v INT, ts {kind}>>"), "ts")
    for earlier, later in pairwise(TIMES):
        rows = [{"v": 1, "ts": earlier}, {"v": 2, "ts": later}]
        for order in permutations(rows):
            assert fold.folded([[("a", row)] for row in order]) == [("a", rows[1])], (earlier, later)
