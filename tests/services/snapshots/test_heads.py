"""Waiting for newer snapshots: woken by commits, drops and the end of the service."""

from __future__ import annotations

import asyncio

import pytest

from app.catalog.database import CatalogDatabase
from app.services.shared.executor import MergeSite
from app.services.snapshots.heads import Dropped, Heads, Stopped
from tests.services.builders import create_table, merge_staged, post


def test_whoever_waits_is_woken_by_the_commit_that_others_make(site: MergeSite) -> None:
    table = create_table(site.database)

    async def waited() -> list[int | None]:
        heads = Heads(site.database, 0.01)
        with heads.following(table.id), heads.following(table.id):
            waiting = [asyncio.create_task(heads.newer(table.id, 0, 60)) for _ in range(2)]
            assert await heads.newer(table.id, 0, 0.05) is None
            await asyncio.to_thread(post, site.database, site.warehouse, {"id": 1, "n": 1})
            await asyncio.to_thread(merge_staged, site.database, site.warehouse, table.id)
            return [*await asyncio.gather(*waiting), await heads.newer(table.id, 0, 60)]

    assert asyncio.run(waited()) == [1, 1, 1]


def test_a_dropped_table_ends_the_waiting(database: CatalogDatabase) -> None:
    table = create_table(database)

    async def waited() -> None:
        heads = Heads(database, 0.01)
        with heads.following(table.id):
            assert await heads.newer(table.id, 0, 0.05) is None
            with database.transaction() as repository:
                repository.tables.drop("shop", "wide")
            await heads.newer(table.id, 0, 60)

    with pytest.raises(Dropped):
        asyncio.run(waited())


def test_the_end_of_the_service_ends_the_waiting(database: CatalogDatabase) -> None:
    table = create_table(database)

    async def waited() -> None:
        heads = Heads(database, 0.01)
        with heads.following(table.id):
            asyncio.get_running_loop().call_later(0.05, heads.stop)
            await heads.newer(table.id, 0, 60)

    with pytest.raises(Stopped):
        asyncio.run(waited())


def test_nothing_is_polled_while_nobody_follows(database: CatalogDatabase) -> None:
    table = create_table(database)

    async def waited() -> set[asyncio.Task[object]]:
        heads = Heads(database, 0.001)
        with heads.following(table.id):
            await heads.newer(table.id, 0, 0.05)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=60)
        with heads.following(table.id):
            assert await heads.newer(table.id, -1, 60) == 0
        return others

    assert not asyncio.run(waited())
