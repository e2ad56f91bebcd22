"""A full compaction of a large run and a small one: in this process, and on Spark in one task and in two."""

from __future__ import annotations

from collections.abc import Iterator

from bench.figures import interleaved
from bench.merging.costs import Goal, lines
from bench.merging.tasks import Ground, cut
from bench.wide_table import COLUMNS, batch_records

TABLE_ROWS = 1_000_000
HERE, ONE, TWO = "compaction, in this process", "compaction, one task on Spark", "compaction, two tasks on Spark"
GOALS = [Goal(ONE, HERE, 1.15), Goal(TWO, ONE), Goal(TWO, HERE)]


def measure_compaction(ground: Ground) -> Iterator[str]:
    """Return the costs for each size of the large run: a million rows, or those that ``--tables`` names."""
    for rows in ground.sizes.tables or [ground.sizes.rows(TABLE_ROWS)]:
        site, records = ground.site, ground.sizes.records
        made = site.create_table(f"compacted_{rows}")
        site.load(made, rows)
        site.stage(made, batch_records(1, rows, records))
        site.merge(made)
        task = ground.compaction_task(made)
        steps = {
            HERE: ground.step(ground.here, [task]),
            ONE: ground.step(ground.on_spark, [task]),
            TWO: ground.step(ground.on_spark, cut(task, 2)),
        }
        yield from ("### Full compaction", "")
        yield f"A run of {rows:,} rows and one of {records:,} (half of them new keys), {len(COLUMNS)} columns."
        yield ""
        yield from (*lines(interleaved(steps, ground.sizes.rounds, warm_ups=1), GOALS), "")
