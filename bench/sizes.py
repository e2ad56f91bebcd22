"""How large the benchmarks' tables and batches are."""

from __future__ import annotations

from dataclasses import dataclass

from bench.wide_table import BATCH_RECORDS


@dataclass(frozen=True)
class Sizes:
    """``scale`` shrinks rows and records alike, to try the benchmarks' own code; figures are for ``scale`` 1.

    ``tables`` are the rows of the tables that a benchmark makes, where others are wanted than its own.
    """

    rounds: int = 5
    scale: float = 1.0
    tables: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """Records of a batch."""
        return self.rows(BATCH_RECORDS)

    def rows(self, count: int) -> int:
        """``count`` rows at this scale."""
        return max(20, round(count * self.scale))


QUICK = Sizes(rounds=2, scale=0.02)
"""Sizes to try a benchmark's own code."""
