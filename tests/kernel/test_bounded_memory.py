"""A task's memory does not follow its batches: records that are too many are set aside by token."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.kernel import records
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change, TableCase
from tests.site import Site


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32), engine=st.sampled_from(list(ENGINES)))
def test_records_that_are_set_aside_come_to_the_same_rows(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(str(table))
    history = random_history(random, table, retracts, 100)
    sites = [Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table))) for _ in range(2)]
    pieces = [history[piece] for piece in cut(random, len(history), 4)]
    ranges = random.choice((1, 3))
    with pytest.MonkeyPatch.context() as patch:
        for place, site in enumerate(sites):
            site.ranges = ranges
            if place:
                patch.setattr(records, "READ_BYTES", random.choice((1, 2**8, 2**12)))
                patch.setattr(records, "PIECE_BYTES", random.choice((1, 2**8, 2**12)))
                patch.setattr(records, "MOST_BYTES", random.choice((1, 2**10)))
                patch.setattr(records, "_ASIDE_BYTES", random.choice((2**8, 2**12)))
                patch.setattr(records, "_PENDING_BYTES", random.choice((1, 2**12)))
            site.merge(pieces)
    assert shown(table, sites[1]) == visible(expected_rows(table, history))
    states = [[repr(site.table(run).to_pylist()) for run in site.runs] for site in sites]
    assert states[0] == states[1]


def test_nothing_that_was_set_aside_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 1)  # a bound that a few records reach
    monkeypatch.setenv("TMPDIR", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)  # else it stays the one of the first use
    table = TableCase((("k", "INT"), ("v", "STRING")), ("k",), {})
    site = Site(tmp_path / "warehouse", compile_plan(schema_of(table)))
    site.merge([[Change("+I", {"k": key % 7, "v": str(turn)}) for key in range(50)] for turn in range(3)])
    assert {key: row and row["v"] for key, row in site.rows().items()} == {(key,): "2" for key in range(7)}
    assert list((tmp_path / "aside").iterdir()) == []
