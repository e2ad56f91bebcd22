"""All tables at a glance, for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from app.catalog.repository import Repository
from app.catalog.upkeep.overview import MergeFailure
from app.catalog.upkeep.stats import StagedTotals
from app.core.access import TokenScope
from app.core.table.history import Table
from app.core.table.upkeep.overdue import Overdue
from app.services.merging.overdue import overdue_tables

__all__ = ["MergeFailure", "Overview", "TableBehind", "TableGlance", "overview", "tables_behind"]

MOST_FAILING = 20
_NONE_STAGED = StagedTotals()


@dataclass(frozen=True)
class TableGlance:
    """One table: ``rows`` that a reader sees, None if several runs may have the same key: then it has at most
    ``stored_rows``.
    """

    table: Table
    rows: int | None
    stored_rows: int
    size_bytes: int
    staged: StagedTotals
    set_aside: int
    last_merge_at: datetime | None
    failure: MergeFailure | None
    overdue: Overdue | None


@dataclass(frozen=True)
class Overview:
    """A page of tables, and the counts for all pages: tables, tables whose last merge failed, and tables that miss
    their ``merge.max-staleness``.
    """

    tables: Sequence[TableGlance]
    count: int
    failing: Sequence[TableGlance]
    waiting: StagedTotals
    overdue: int
    next_after: tuple[str, str] | None
    counts: Mapping[str, int]

    @property
    def by_database(self) -> list[tuple[str, int, Sequence[TableGlance]]]:
        """The databases of the page: the number of their tables, and the tables on the page."""
        groups = groupby(self.tables, key=lambda table: table.table.database)
        return [(database, self.counts.get(database, 0), [*glances]) for database, glances in groups]


def overview(
    repository: Repository,
    scope: TokenScope,
    *,
    after: tuple[str, str] | None,
    limit: int,
    part: str = "",
    spark_answers: bool = True,
) -> Overview:
    """Return the tables of ``scope`` with ``part`` in their names, in order, after the name ``after``."""
    known = repository.overview
    listed = known.tables(scope, after=after, limit=limit + 1, part=part)
    page = listed[:limit]
    failing = known.failing(scope, MOST_FAILING)
    late = {overdue.table.id: overdue for overdue in overdue_tables(repository, spark_answers=spark_answers)}
    visible = [overdue for overdue in late.values() if scope.covers(overdue.table.database, overdue.table.name)]
    glances = _glances(repository, [*page, *failing], late)
    last = page[-1] if len(listed) > limit else None
    return Overview(
        tables=[glances[table.id] for table in page],
        count=known.count(scope, part),
        failing=[glances[table.id] for table in failing],
        waiting=_waiting(repository, scope),
        overdue=len(visible),
        next_after=None if last is None else (last.database, last.name),
        counts=known.counts(scope, {table.database for table in page}),
    )


@dataclass(frozen=True)
class TableBehind:
    """A table with staged records; ``failures`` of its merges in a row."""

    database: str
    table: str
    staged: StagedTotals
    failures: int


def tables_behind(repository: Repository, limit: int) -> list[TableBehind]:
    """Return the tables with most staged records."""
    behind = sorted(repository.stats.staged_tables(), key=lambda staged_table: -staged_table.staged.records)[:limit]
    failing = repository.overview.merge_failures([staged_table.table_id for staged_table in behind])
    rows = ((staged_table, failing.get(staged_table.table_id)) for staged_table in behind)
    return [
        TableBehind(staged_table.database, staged_table.table, staged_table.staged, why.failures.in_a_row if why else 0)
        for staged_table, why in rows
    ]


def _glances(repository: Repository, tables: Sequence[Table], late: Mapping[str, Overdue]) -> dict[str, TableGlance]:
    ids, known = {table.id for table in tables}, repository.overview
    staged, set_aside = known.staged(ids), known.set_aside(ids)
    merged, failures = known.last_merges(ids), known.merge_failures(ids)
    glances = {}
    for table in tables:
        snapshot = repository.snapshots.current_of(table)
        rows, stored, size = (snapshot.rows, snapshot.stored_rows, snapshot.size_bytes) if snapshot else (0, 0, 0)
        waits, aside = staged.get(table.id, _NONE_STAGED), set_aside.get(table.id, 0)
        ended, failure = merged.get(table.id), failures.get(table.id)
        glances[table.id] = TableGlance(table, rows, stored, size, waits, aside, ended, failure, late.get(table.id))
    return glances


def _waiting(repository: Repository, scope: TokenScope) -> StagedTotals:
    """Return the totals of staged batches in all tables of ``scope``."""
    areas = [table.staged for table in repository.stats.staged_tables() if scope.covers(table.database, table.table)]
    times = [area.oldest_accepted_at for area in areas if area.oldest_accepted_at is not None]
    return StagedTotals(
        sum(area.batches for area in areas),
        sum(area.records for area in areas),
        sum(area.size_bytes for area in areas),
        min(times, default=None),
    )
