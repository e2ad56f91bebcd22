"""A POST that slept for longer than a sweep's grace answers nothing that is not stored."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Unavailable
from app.files.layout import Warehouse
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import sweep
from tests.services.builders import create_table, post, totals


class SleepyDatabase(CatalogDatabase):
    """Calls ``before`` once, before the ``which``-th write transaction begins, and ``within`` before that commits."""

    def __init__(
        self,
        url: str,
        which: int = 1,
        before: Callable[[], object] = lambda: None,
        within: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(url)
        self._left, self._before, self._within = which, before, within

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        self._left -= 1
        chosen = self._left == 0
        if chosen:
            self._before()
        with super().transaction(wakes=wakes) as repository:
            yield repository
            if chosen:
                self._within()


def age(warehouse: Warehouse) -> None:
    """As if the files had been written two hours ago."""
    for path in Path(warehouse.path()).rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2)


def test_a_batch_whose_file_was_swept_before_its_commit_is_not_acknowledged(
    catalog_url: str, site: MergeSite, images: Images
) -> None:
    table = create_table(site.database)

    def sleep() -> None:
        age(site.warehouse)
        assert sweep(site.database, site.warehouse) == 1

    sleepy = SleepyDatabase(catalog_url, before=sleep)
    with pytest.raises(Unavailable, match="post it again"):
        post(sleepy, site.warehouse, {"id": 1, "n": 1}, key="once")
    with site.database.reading() as repository:
        assert repository.batches.page(table.id, limit=9) == []
    assert post(sleepy, site.warehouse, {"id": 1, "n": 1}, key="once").number == 1
    assert totals(site.database, images, table, [1], latest=True) == [1]
    sleepy.close()


def test_a_file_that_a_sweep_found_unnamed_is_looked_up_again_when_its_batch_is_in_the_catalog(
    catalog_url: str, site: MergeSite, images: Images
) -> None:
    """The sweep lists the file, then sleeps; the batch is committed; the sweep wakes."""
    table = create_table(site.database)
    listed, committed = threading.Event(), threading.Event()

    def sleep() -> None:
        listed.set()
        assert committed.wait(60)

    sleepy = SleepyDatabase(catalog_url, which=2, before=sleep)  # the first one expires snapshots

    def sweep_meanwhile() -> None:
        age(site.warehouse)
        sweeping.append(pool.submit(sweep, sleepy, site.warehouse))
        assert listed.wait(60)

    sweeping: list[object] = []
    with ThreadPoolExecutor(1) as pool:
        posting = SleepyDatabase(catalog_url, before=sweep_meanwhile)
        post(posting, site.warehouse, {"id": 1, "n": 1})
        committed.set()
    assert totals(site.database, images, table, [1], latest=True) == [1]
    posting.close()
    sleepy.close()


def test_a_sweep_waits_for_a_commit_that_has_looked_for_its_file(
    catalog_url: str, site: MergeSite, images: Images
) -> None:
    table = create_table(site.database)

    def sweep_meanwhile() -> None:
        age(site.warehouse)
        sweeping = pool.submit(sweep, site.database, site.warehouse)
        wait([sweeping], timeout=1.0)  # it would be done by now if it did not wait

    with ThreadPoolExecutor(1) as pool:
        posting = SleepyDatabase(catalog_url, within=sweep_meanwhile)
        post(posting, site.warehouse, {"id": 1, "n": 1})
    assert totals(site.database, images, table, [1], latest=True) == [1]
    posting.close()
