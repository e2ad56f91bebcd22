"""What compaction policies cost on three workloads, simulated: keys and sizes alone, without files and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from app.core.table.compaction import CompactionPolicy
from app.core.table.schema import TableSchema
from bench.figures import table
from bench.sizes import Sizes
from bench.wide_table import schema_json

TABLE_ROWS = 100_000
BATCH_PART = 100  # a batch holds a hundredth of the table's rows
MERGES = 200
HOT_PART, HOT_SHARE = 100, 0.9  # nine records of ten are of one key in a hundred

Keys = NDArray[np.int64]
Workload = Callable[[np.random.Generator, int, int, int], Keys]
"""The keys of a batch, each once: of the generator, the number of the merge (from 1), rows of the table, records."""


def _append(_: np.random.Generator, merge: int, rows: int, records: int) -> Keys:
    first = rows + (merge - 1) * records
    return np.arange(first, first + records)


def _hot(rng: np.random.Generator, _: int, rows: int, records: int) -> Keys:
    hot = rng.integers(0, rows // HOT_PART, round(records * HOT_SHARE))
    return np.unique(np.concatenate([hot, rng.integers(0, rows, records - len(hot))]))


def _uniform(rng: np.random.Generator, _: int, rows: int, records: int) -> Keys:
    return np.unique(rng.integers(0, rows, records))


WORKLOADS: Mapping[str, Workload] = {"append": _append, "hot keys": _hot, "uniform": _uniform}
CHANGED: Sequence[Mapping[str, str]] = (
    {},
    {"num-sorted-run.compaction-trigger": "3"},
    {"num-sorted-run.compaction-trigger": "8"},
    {"num-sorted-run.compaction-trigger": "12"},
    {"compaction.size-ratio": "25"},
    {"compaction.size-ratio": "100"},
    {"compaction.max-size-amplification-percent": "50"},
)
"""Options that differ from their defaults."""


@dataclass(frozen=True)
class PolicyCosts:
    """``written``: rows that merges and compactions wrote by row merged; ``runs``: how many there are after a merge
    and what it asks for, on average and at most; ``stored``: rows in all runs by row of the table, on average;
    ``rewrites``: compactions that took the oldest run along.
    """

    written: float
    runs: float
    most_runs: int
    stored: float
    compactions: int
    rewrites: int


def simulated(policy: CompactionPolicy, workload: Workload, rows: int, records: int, merges: int) -> PolicyCosts:
    """The costs of ``merges`` batches after one run of ``rows``; a row is as large as any other."""
    rng = np.random.default_rng(7)
    runs = [np.arange(rows)]
    merged = written = compactions = rewrites = 0
    counts, stored = [], []
    for number in range(1, merges + 1):
        runs.append(workload(rng, number, rows, records))
        merged += len(runs[-1])
        written += len(runs[-1])
        while taken := policy.pick([len(run) for run in runs]):
            rewrites += taken == len(runs)
            runs[-taken:] = [np.unique(np.concatenate(runs[-taken:]))]
            written += len(runs[-1])
            compactions += 1
        counts.append(len(runs))
        known = rows + (merged if workload is _append else 0)
        stored.append(sum(map(len, runs)) / known)
    return PolicyCosts(written / merged, mean(counts), max(counts), mean(stored), compactions, rewrites)


def measure_policies(sizes: Sizes) -> Iterator[Sequence[str]]:
    """A table of the costs: each workload under the default policy, and with one option changed."""
    rows, records = sizes.rows(TABLE_ROWS), sizes.rows(TABLE_ROWS // BATCH_PART)
    cells = []
    for changed in CHANGED:
        policy = CompactionPolicy.from_options(TableSchema.from_json(schema_json(changed)).parsed)
        for name, workload in WORKLOADS.items():
            costs = simulated(policy, workload, rows, records, MERGES)
            cells.append((_options(changed), name, *_shown(costs)))
    head = ("policy", "workload", "written", "runs", "at most", "stored", "compactions", "of all runs")
    yield [
        "### Compaction policies",
        "",
        f"{MERGES} merges of {records:,} records into {rows:,} rows.",
        "",
        *table(head, cells),
    ]


def _options(changed: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` = {value}" for name, value in changed.items()) or "default"


def _shown(costs: PolicyCosts) -> tuple[str, ...]:
    return (
        f"{costs.written:.2f}",
        f"{costs.runs:.1f}",
        str(costs.most_runs),
        f"{costs.stored:.2f}",
        str(costs.compactions),
        str(costs.rewrites),
    )
