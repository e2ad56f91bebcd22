"""Merges of a large batch and of a few records: in this process and on Spark, a large one compared with its sort."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from bench.figures import interleaved
from bench.merging.costs import Goal, lines
from bench.merging.sorted_copy import copied_here, copied_on_spark
from bench.merging.tasks import Ground
from bench.wide_table import COLUMNS, batch_records
from spark_jobs.parcels import PARCEL_COLUMNS, RESULT_COLUMNS, run_parcels

TABLE_ROWS = 1_000_000  # whose keys are half of a batch's; a merge reads none of its files
FEW, TIMES = 10, 20
HERE, SPARK = "merge, in this process", "merge, on Spark"
TWICE, TWICE_ON_SPARK = "merge of each key twice, in this process", "merge of each key twice, on Spark"
SORT, SORT_ON_SPARK = "read, sort and write, in this process", "read, sort and write, on Spark"
LARGE_GOALS = [
    Goal(HERE, SORT, 1.3),
    Goal(SPARK, SORT_ON_SPARK, 1.3),
    Goal(SPARK, 0.25, 1.0),
    Goal(SPARK, HERE),
    Goal(TWICE, SORT, 1.3),
    Goal(TWICE_ON_SPARK, SORT_ON_SPARK, 1.3),
    Goal(SORT_ON_SPARK, SORT),
]
FEW_HERE, FEW_ON_SPARK = f"merge of {FEW} records, in this process", f"merge of {FEW} records, on Spark"
NO_TASKS = "a job without tasks, on Spark"


def measure_large_merge(ground: Ground) -> Iterator[str]:
    """Return the costs of a merge of one large batch, and of what is left of it without the fold."""
    site, sizes = ground.site, ground.sizes
    made, rows = site.create_table("merged"), sizes.rows(TABLE_ROWS)
    batch = site.stage(made, batch_records(1, rows, sizes.records))
    halves = [site.stage(made, batch_records(1, rows, sizes.records // 2)) for _ in range(2)]
    task, twice = ground.merge_task(made, [batch]), ground.merge_task(made, halves)
    with site.session() as spark:
        steps = {
            HERE: ground.step(ground.here, [task]),
            SPARK: ground.step(ground.on_spark, [task]),
            TWICE: ground.step(ground.here, [twice]),
            TWICE_ON_SPARK: ground.step(ground.on_spark, [twice]),
            SORT: ground.step(copied_here, [task]),
            SORT_ON_SPARK: ground.step(partial(copied_on_spark, spark), [task]),
        }
        costs = interleaved(steps, sizes.rounds, warm_ups=2)
    yield from ("### Merge of a large batch", "")
    yield (f"{sizes.records:,} staged records, {len(COLUMNS)} columns, no key twice; and half of them, each twice.")
    yield ""
    yield from lines(costs, LARGE_GOALS)


def measure_small_merge(ground: Ground) -> Iterator[str]:
    """Return the costs of a merge of a few records, and of a job that has nothing to do."""
    made = ground.site.create_table("few")
    batch = ground.site.stage(made, batch_records(1, ground.sizes.rows(TABLE_ROWS), FEW))
    task = ground.merge_task(made, [batch])
    empty = json.dumps({"warehouse": ground.site.merges.warehouse.address, "tasks": {}})
    with ground.site.session() as spark:

        def no_tasks() -> None:
            spark.createDataFrame([(empty,)], PARCEL_COLUMNS).mapInArrow(run_parcels, RESULT_COLUMNS).collect()

        steps = {
            FEW_HERE: ground.step(ground.here, [task], TIMES),
            FEW_ON_SPARK: ground.step(ground.on_spark, [task], TIMES),
            NO_TASKS: ground.times(no_tasks, TIMES),
        }
        costs = interleaved(steps, ground.sizes.rounds, warm_ups=1)
    yield from ("### Merge of a few records", "")
    yield f"Means of {TIMES} merges one after the other, medians of these."
    yield ""
    goals = [
        Goal(FEW_ON_SPARK, 0.15, 1.0, cpu=True),
        Goal(FEW_ON_SPARK, FEW_HERE),
        Goal(FEW_ON_SPARK, NO_TASKS),
        Goal(FEW_ON_SPARK, NO_TASKS, cpu=True),
    ]
    yield from lines(costs, goals)
