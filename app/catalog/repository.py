"""The repository: every read and write of the catalog, inside one transaction.

It never commits: ``CatalogDatabase.transaction()`` does, when its block ends without an exception. It takes and returns
the values of ``app.core.table.history`` and raises the failures of ``app.core.errors``.

Who changes a table's batches, merges or snapshots locks the table's row first. That order is what makes batch numbers
gapless in commit order, claims exclusive and commits compare-and-swap.
"""

from __future__ import annotations

from app.catalog.changelogs import Changelogs, Commit
from app.catalog.leases import ClaimedMerge, Leases
from app.catalog.stats import Stats
from app.catalog.tags import Tags
from app.catalog.tokens import ApiToken, Tokens

__all__ = ["ApiToken", "ClaimedMerge", "Commit", "Repository"]


class Repository(Leases, Changelogs, Stats, Tags, Tokens):
    """All parts over one connection: databases, tables, batches, snapshots, tags, changelogs, merges, leases, stats,
    tokens.
    """
