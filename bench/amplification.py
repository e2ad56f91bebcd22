"""What a history of merges costs under the default policy: bytes written again, runs read, bytes that are obsolete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.services.operating.stats import table_stats
from bench.figures import chart, table
from bench.site import BenchSite
from bench.sizes import Sizes
from bench.wide_table import batch_records

MERGES = 50
TABLE_ROWS = 1_000_000
BATCH_PART = 10  # a batch holds a tenth of the records that other benchmarks merge at once
SHOWN = (1, 2, 5, 10, 20, 30, 40, 50)


@dataclass(frozen=True)
class Costs:
    """The amplifications of a table after so many merges (``GET T/stats``)."""

    merges: int
    write: float
    read: int
    space: float
    compactions: int


def measure_amplification(site: BenchSite, sizes: Sizes) -> Iterator[Costs]:
    """The costs after each of ``MERGES`` merges into a loaded table, each compacted as the worker would."""
    loaded = site.create_table("history", options={})
    rows = sizes.rows(TABLE_ROWS)
    site.load(loaded, rows)
    for number in range(1, MERGES + 1):
        site.stage(loaded, batch_records(number, rows, sizes.records // BATCH_PART))
        site.merge(loaded)
        while site.compact_if_due():
            pass
        with site.merges.database.reading() as repository:
            current = repository.tables.find(loaded.id)
            assert current is not None
            stats = table_stats(repository, current)
        yield Costs(
            number, stats.write_amplification or 1, stats.most_runs, stats.space_amplification or 1, stats.compactions
        )


def charts(history: Sequence[Costs]) -> Iterator[str]:
    """A table and one chart for each amplification, as Markdown."""
    shown = [one for one in history if one.merges in SHOWN]
    cells = [(str(c.merges), f"{c.write:.2f}", str(c.read), f"{c.space:.2f}", str(c.compactions)) for c in shown]
    yield from ("### Amplification", "")
    yield from table(("merges", "write", "read", "space", "compactions"), cells)
    for title, values in (
        ("write amplification", [one.write for one in history]),
        ("read amplification (runs)", [one.read for one in history]),
        ("space amplification", [one.space for one in history]),
    ):
        yield from chart(title, "merges", values)
