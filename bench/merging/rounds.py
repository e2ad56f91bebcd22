"""Small merges of many tables that share a job, as a worker does them: chosen, claimed, run, committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from app.core.table.history import Table, TaskTrigger
from app.kernel.run import LocalExecutor
from app.services.merging.merge_choice import ROUND_MERGES, choose
from app.services.merging.merge_rounds import claim_round, run_round
from app.services.shared.executor import MergeExecutor
from bench.figures import interleaved
from bench.merging.costs import Cost, Goal, lines
from bench.merging.tasks import Ground
from bench.wide_table import batch_records

TABLE_ROWS, RECORDS = 1_000, 10
HERE, SPARK = "a merge of a round, in this process", "a merge of a round, on Spark"
ALONE = "a task of such a job, on Spark, nothing claimed or committed"
LONE = "a round of one merge, on Spark"
MOST_SECONDS = 0.008  # by merge, of a whole round


class _Local(LocalExecutor):
    """The whole protocol of an executor, in this process."""

    def ready(self) -> bool:
        """Return that it could start."""
        return True

    def warm_up(self) -> None:
        """Do nothing: everything is loaded."""

    def missing(self) -> tuple[str, ...]:
        """Return that nothing is missing."""
        return ()

    def cancel(self, tag: str) -> None:
        """Do nothing: jobs of benchmarks end by themselves."""


def measure_rounds(ground: Ground) -> Iterator[str]:
    """Return the costs by merge of a round of many, and of a round of one."""
    site, count = ground.site, min(ROUND_MERGES, ground.sizes.rows(ROUND_MERGES))
    tables = [site.create_table(f"round_{number}") for number in range(count)]
    records = batch_records(1, TABLE_ROWS, RECORDS)
    tasks = [ground.merge_task(table, [site.stage(table, records)]) for table in tables]
    steps = {
        HERE: _round(ground, tables, _Local()),
        SPARK: _round(ground, tables, site.executor),
        ALONE: _by_task(ground.step(ground.on_spark, tasks), count),
        LONE: _round(ground, tables[:1], site.executor),
    }
    goals = [Goal(SPARK, MOST_SECONDS, 1.0), Goal(SPARK, HERE), Goal(ALONE, SPARK), Goal(LONE, SPARK)]
    yield from ("### Rounds of small merges", "")
    yield (f"{RECORDS} records of the wide table in each of {count} tables; seconds by merge, with claim and commit.")
    yield ""
    yield from lines(interleaved(steps, ground.sizes.rounds, warm_ups=1), goals)


def _by_task(step: Callable[[], Cost], count: int) -> Callable[[], Cost]:
    return lambda: step() / count


def _round(ground: Ground, tables: Sequence[Table], executor: MergeExecutor) -> Callable[[], Cost]:
    """Return what stages a batch in each table, and measures the round that merges them."""
    merges = replace(ground.site.merges, executor=executor)
    number = 0

    def run() -> None:
        with merges.database.reading() as repository:
            waiting = repository.rounds.waiting()
        leases = claim_round(merges, uuid.uuid4().hex, choose(waiting, 0).together)
        done = run_round(merges, leases)
        assert len(done) == len(tables), f"{len(done)} of {len(tables)} merges were committed"

    def once() -> Cost:
        nonlocal number
        number += 1
        records = batch_records(number, TABLE_ROWS, RECORDS)
        for one in tables:
            ground.site.stage(one, records)
        with merges.database.transaction() as repository:
            repository.tasks.request_all({table.id: TaskTrigger.REQUEST for table in tables})
        return ground.meter.cost(run) / len(tables)

    return once
