"""Flipped bits, truncations and missing files: no answer is wrong, and each damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.table.upkeep.damage import FileKind
from lab.faults.flips import KINDS, campaign

TRIALS, SEED = 300, 20261122


def test_every_kind_of_file_is_damaged() -> None:
    assert {kind for kind in FileKind if any(folder.startswith(kind) for folder in KINDS)} == set(FileKind)


@pytest.mark.slow(reason="asks thousands of times; `make flips` does so tens of thousands of times")
def test_no_answer_comes_of_a_damaged_file_and_each_is_named(tmp_path: Path) -> None:
    with campaign(tmp_path, SEED) as flips:
        tally = flips.run(TRIALS)
    assert tally.faults == [], "\n".join(tally.lines())
    assert sum(tally.trials.values()) > TRIALS * 0.9
    for kind in KINDS:
        assert tally.trials[kind] > TRIALS / 20
        assert tally.answers[kind, "equal"] > 0
        assert tally.answers[kind, "named"] > tally.trials[kind] or kind == "images"
