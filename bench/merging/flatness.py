"""Whether a merge's time follows its batch, not its table: one batch into tables of three sizes, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.core.table.history import Table
from bench.figures import interleaved
from bench.merging.costs import Cost, Goal, lines
from bench.merging.tasks import Ground
from bench.wide_table import batch_records

TABLE_ROWS = (100_000, 1_000_000, 10_000_000)
MOST = 1.15


def measure_flatness(ground: Ground) -> Iterator[str]:
    """Return the costs of merges of one batch each, by the rows that the table was loaded with."""
    site, sizes = ground.site, ground.sizes
    rows = [sizes.rows(count) for count in TABLE_ROWS]
    tables = {count: site.create_table(f"rows_{count}") for count in rows}
    for count, one in tables.items():
        site.load(one, count)
    steps = {f"into {count:,} rows": _merging(ground, one, count) for count, one in tables.items()}
    smallest, middle, largest = steps
    yield from ("### Flatness", "")
    yield (
        f"One staged batch of {sizes.records:,} records (half of them new keys) merged into tables of three sizes: "
        "claim, job, commit. Staging is not in the time; compaction is off."
    )
    yield ""
    goals = [Goal(middle, smallest), Goal(largest, smallest, MOST)]
    yield from lines(interleaved(steps, sizes.rounds, warm_ups=1), goals)


def _merging(ground: Ground, table: Table, rows: int) -> Callable[[], Cost]:
    staged = 0

    def step() -> Cost:
        nonlocal staged
        staged += 1
        ground.site.stage(table, batch_records(staged, rows, ground.sizes.records))
        return ground.meter.cost(lambda: ground.site.merge(table))

    return step
