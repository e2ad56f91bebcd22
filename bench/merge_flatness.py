"""Whether a merge's time follows its batch, not its table: one batch into tables of three sizes, in turns."""

from __future__ import annotations

from collections.abc import Callable

from app.core.table.history import Table
from bench.figures import Figure, Ratio, interleaved, seconds
from bench.site import BenchSite
from bench.sizes import Sizes
from bench.wide_table import batch_records

TABLE_ROWS = (100_000, 1_000_000, 10_000_000)
TARGET = 1.15


def measure_flatness(site: BenchSite, sizes: Sizes) -> Figure:
    """Seconds of merges of one batch each, by the rows that the table was loaded with."""
    rows = [sizes.rows(count) for count in TABLE_ROWS]
    tables = {count: site.create_table(f"rows_{count}") for count in rows}
    for count, table in tables.items():
        site.load(table, count)
    steps = {f"{count:,} rows": _merging(site, table, count, sizes.records) for count, table in tables.items()}
    smallest, middle, largest = steps
    return Figure(
        "Merge flatness",
        f"One staged batch of {sizes.records:,} records (half of them new keys) folded into tables of three sizes: "
        "claim, Spark job, footers, commit. Staging is not in the time; compaction is off, so each round leaves one "
        "more run in each table.",
        interleaved(steps, sizes.rounds, warm_ups=3),
        [Ratio(largest, smallest, TARGET), Ratio(middle, smallest)],
    )


def _merging(site: BenchSite, table: Table, rows: int, records: int) -> Callable[[], float]:
    staged = 0

    def step() -> float:
        nonlocal staged
        staged += 1
        site.stage(table, batch_records(staged, rows, records))
        return seconds(lambda: site.merge(table))

    return step
