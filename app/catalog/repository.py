"""The repository: every read and write of the catalog, inside one transaction.

It never commits: ``CatalogDatabase.transaction()`` does, when its block ends without an exception. It takes and returns
the values of ``app.core.table.history`` and raises the failures of ``app.core.errors``.

A change of a table's batches, tasks or snapshots locks the table's row first. That order makes batch numbers gapless
in commit order, claims exclusive and commits compare-and-swap.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.catalog.batches.batches import Batches
from app.catalog.batches.history import History
from app.catalog.batches.lateness import LateMerges
from app.catalog.batches.set_aside import SetAside
from app.catalog.batches.set_aside_events import SetAsideEvents
from app.catalog.shared.transaction import Transaction
from app.catalog.snapshots.changelogs import Changelogs
from app.catalog.snapshots.commits import Commit, Commits
from app.catalog.snapshots.new_snapshots import NewSnapshots
from app.catalog.snapshots.published_versions import PublishedVersions
from app.catalog.snapshots.rewrites import Rewrites
from app.catalog.snapshots.snapshots import Snapshots
from app.catalog.snapshots.tags import Tags
from app.catalog.tables.databases import Databases
from app.catalog.tables.tables import Tables
from app.catalog.tasks.claimed_tasks import ClaimedTask, ClaimedTasks
from app.catalog.tasks.rounds import FoldedMerge, Rounds, WaitingMerge
from app.catalog.tasks.stops import Stops
from app.catalog.tasks.tasks import Tasks
from app.catalog.tasks.workers import Workers
from app.catalog.tokens import ApiToken, Tokens
from app.catalog.upkeep.damage import Damages
from app.catalog.upkeep.forgettings import Forgettings
from app.catalog.upkeep.integrity import Integrity
from app.catalog.upkeep.overview import Overview
from app.catalog.upkeep.stats import Stats

__all__ = ["ApiToken", "ClaimedTask", "Commit", "FoldedMerge", "Repository", "WaitingMerge"]


@dataclass(frozen=True)
class Repository:
    """One part per noun over one transaction; ``over`` connects the parts."""

    transaction: Transaction
    databases: Databases
    tables: Tables
    batches: Batches
    snapshots: Snapshots
    commits: Commits
    tags: Tags
    published: PublishedVersions
    changelogs: Changelogs
    rewrites: Rewrites
    new_snapshots: NewSnapshots
    tasks: Tasks
    claimed_tasks: ClaimedTasks
    rounds: Rounds
    stats: Stats
    tokens: Tokens
    damage: Damages
    set_aside: SetAside
    set_aside_events: SetAsideEvents
    history: History
    overview: Overview
    late_merges: LateMerges
    workers: Workers
    forgettings: Forgettings
    stops: Stops
    integrity: Integrity

    @classmethod
    def over(cls, transaction: Transaction) -> Repository:
        """Return the repository of ``transaction``."""
        databases = Databases(transaction)
        tables = Tables(transaction, databases)
        batches = Batches(transaction, tables)
        changelogs = Changelogs(transaction, tables)
        published = PublishedVersions(transaction, tables, changelogs)
        rewrites = Rewrites(transaction)
        new_snapshots = NewSnapshots(transaction, published)
        snapshots = Snapshots(transaction, tables, published, new_snapshots, rewrites)
        tasks = Tasks(transaction, tables)
        set_aside = SetAside(transaction, tables)
        stops = Stops(transaction)
        return cls(
            transaction,
            databases,
            tables,
            batches,
            snapshots,
            Commits(transaction),
            Tags(transaction, tables, snapshots),
            published,
            changelogs,
            rewrites,
            new_snapshots,
            tasks,
            ClaimedTasks(transaction, tables, batches, snapshots, tasks, set_aside, stops),
            Rounds(transaction, tables, batches, snapshots, stops),
            Stats(transaction),
            Tokens(transaction),
            Damages(transaction, tables),
            set_aside,
            SetAsideEvents(transaction, tables),
            History(transaction, tables),
            Overview(transaction),
            LateMerges(transaction),
            Workers(transaction),
            Forgettings(transaction, tables, snapshots),
            stops,
            Integrity(transaction, tables, snapshots),
        )

    def now(self) -> datetime:
        """Return the catalog's time; see ``Transaction.now``."""
        return self.transaction.now()
