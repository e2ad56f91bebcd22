"""Row groups of a large old run in which no younger run has a key: what a compaction could leave undecoded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bench.figures import table
from bench.policies import HOT_PART, HOT_SHARE, WORKLOADS, Keys
from spark_jobs.token_ranges import ROW_GROUP_BYTES

ROW_BYTES = 114  # of the wide table in a data file, encoded and not compressed: 22.9 MB for 200,000 rows
GROUP_ROWS = ROW_GROUP_BYTES // ROW_BYTES
TABLE_ROWS = (1_000_000, 10_000_000, 100_000_000)
BATCHES = (100, 1_000, 10_000, 100_000)
YOUNG = (1, 4)  # runs above the oldest: after each merge, and when the default policy first compacts
SIMULATED_ROWS = 10_000_000  # beyond these the formula alone


def measure_row_groups() -> Iterator[Sequence[str]]:
    """The share of row groups that no younger run touches, by size of table and batch."""
    cells = [_cells(young, rows, records) for young in YOUNG for rows in TABLE_ROWS for records in BATCHES]
    about = (
        f"Of the oldest run, in per cent; groups of {GROUP_ROWS:,} rows. Simulated up to {SIMULATED_ROWS:,} rows (in "
        "brackets what the formula says), else the formula."
    )
    head = ("younger runs", "rows", "batch", "row groups", *WORKLOADS)
    yield ["### Row groups that no younger run touches", "", about, "", *table(head, cells)]


def _cells(young: int, rows: int, records: int) -> Sequence[str]:
    expected = {name: untouched(rows, expected_keys(name, rows, records * young)) for name in WORKLOADS}
    shown = {name: _percent(share) for name, share in expected.items()}
    if rows <= SIMULATED_ROWS:
        found = {name: simulated_untouched(name, rows, records, young) for name in WORKLOADS}
        shown = {name: f"{_percent(found[name])} ({shown[name]})" for name in WORKLOADS}
    return (str(young), f"{rows:,}", f"{records:,}", f"{_groups(rows):,}", *shown.values())


def _percent(share: float) -> str:
    return "0" if share < 0.00005 else f"{100 * share:.1f}"


def _groups(rows: int) -> int:
    return math.ceil(rows / GROUP_ROWS)


def untouched(rows: int, keys: float) -> float:
    """The share of the row groups of ``rows`` that none of ``keys`` falls into: tokens are hashes, so each key, known
    or new, falls into any of them alike.
    """
    return float((1 - 1 / _groups(rows)) ** keys)


def expected_keys(workload: str, rows: int, records: int) -> float:
    """How many different keys ``records`` of a workload have, on average."""
    hot, other = round(records * HOT_SHARE), records - round(records * HOT_SHARE)
    by_name: Mapping[str, float] = {
        "append": records,
        "hot keys": _different(rows // HOT_PART, hot) + _different(rows, other),
        "uniform": _different(rows, records),
    }
    return by_name[workload]


def _different(keys: int, draws: int) -> float:
    return keys * -math.expm1(-draws / keys)


def simulated_untouched(workload: str, rows: int, records: int, young: int) -> float:
    """The same, of one table: rows sorted by token, cut into groups, and the tokens of the younger runs looked up."""
    rng = np.random.default_rng(7)
    firsts = np.sort(tokens(np.arange(rows)))[::GROUP_ROWS]
    batches = [WORKLOADS[workload](rng, number, rows, records) for number in range(1, young + 1)]
    # What is below the first token goes into the first group.
    found = np.maximum(np.searchsorted(firsts, tokens(np.concatenate(batches)), side="right") - 1, 0)
    return 1 - len(np.unique(found)) / len(firsts)


def tokens(keys: Keys) -> Keys:
    """A hash of each key, as evenly spread as xxhash64 (the last steps of SplitMix64)."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return (mixed ^ (mixed >> np.uint64(31))).astype(np.int64)
