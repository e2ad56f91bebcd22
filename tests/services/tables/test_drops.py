"""A database dropped with its tables, beside whoever holds several of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from itertools import combinations

import pytest

from app.core.errors import NotFound
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_database
from tests.catalog.builders import create_table

NAMES = "abcdefgh"


def test_tables_are_locked_in_the_order_in_which_rounds_of_merges_lock_them(site: MergeSite) -> None:
    """By id: else a round that has one table and wants the next, and a drop that has the next, wait for each other."""
    tables = [create_table(site.database, name) for name in NAMES]
    # The names say one order, the ids, which are drawn at random, another one.
    later, earlier = next((a.id, b.id) for a, b in combinations(tables, 2) if a.id > b.id)
    with ThreadPoolExecutor(1) as threads:
        with site.database.transaction() as repository:
            repository.tables.lock(earlier)
            drop = threads.submit(drop_database, site.database, site.warehouse, "shop", cascade=True)
            wait([drop], timeout=0.5)  # time to reach the lock; when it is too short the outcome is still the same
            repository.tables.lock(later)
        assert drop.result() == len(NAMES)
    with site.database.reading() as repository, pytest.raises(NotFound):
        repository.databases.row("shop")
