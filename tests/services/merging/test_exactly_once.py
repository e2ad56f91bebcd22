"""Promise 2: every accepted batch is folded exactly once, whoever posts, retries, merges, dies or drops meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import NotFound
from app.core.table.history import BatchState, Table
from app.files.layout import Warehouse
from app.kernel.tasks import Result
from app.services.merging.merges import request_due_merges, request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.worker import Worker
from tests.services.builders import SUM, create_table, post, run_next_compaction, run_next_merge, totals
from tests.services.executor import Killed, PythonExecutor, die

pytestmark = pytest.mark.slow(reason="threads race and workers die for a while")

POSTERS, POSTS, KEYS = 8, 6, 5


class DyingExecutor(PythonExecutor):
    """Now and then its worker dies: before it wrote anything, or when everything is written but not committed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def merge(self, *args: object) -> list[Result]:
        fate = self.random.random()
        if fate < 0.2:
            die()
        results = super().merge(*args)  # type: ignore[arg-type]  # passed on as they came
        if fate < 0.4:
            die()
        return results


@contextmanager
def working(database: CatalogDatabase, warehouse: Warehouse, count: int, *, mortal: bool = False) -> Iterator[None]:
    """Workers that merge until the block ends; a mortal one dies now and then and another one takes its place."""
    ended = threading.Event()

    def live(number: int) -> None:
        executor = DyingExecutor(number) if mortal else PythonExecutor()
        site = MergeSite(database, warehouse, executor, lease_seconds=0.5 if mortal else 600)
        life = 0
        while not ended.is_set():
            life += 1
            try:
                if not run_next_merge(site, f"worker-{number}-{life}"):
                    ended.wait(0.01)
            except Killed:
                continue

    threads = [threading.Thread(target=live, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def merge_the_rest(database: CatalogDatabase, warehouse: Warehouse, table: Table) -> None:
    """Returns when nothing is staged any more."""
    site = MergeSite(database, warehouse, PythonExecutor(), 600)
    for number in range(1000):
        with database.reading() as repository:
            staged = repository.batches.staged(table.id)
        if not staged:
            return
        request_merge(database, table.id)
        if not run_next_merge(site, f"last-{number}") and not run_next_compaction(site, f"compacts-{number}"):
            threading.Event().wait(0.05)  # a dead worker still holds the lease
    raise AssertionError(f"still staged: {staged}")


def post_all(database: CatalogDatabase, warehouse: Warehouse, table: Table, *, retries: int) -> list[int]:
    """Many posters at once; each request comes ``retries`` times under one key (1: no key). The expected totals."""

    def one(poster: int, number: int) -> None:
        key = f"{poster}-{number}" if retries > 1 else None
        post(database, warehouse, {"id": number % KEYS, "n": 1}, {"id": poster % KEYS, "n": 100}, key=key)
        request_merge(database, table.id)

    requests = [(p, n) for p in range(POSTERS) for n in range(POSTS) for _ in range(retries)]
    random.Random(7).shuffle(requests)
    with ThreadPoolExecutor(POSTERS) as pool:
        for outcome in [pool.submit(one, *request) for request in requests]:
            outcome.result()
    return [
        POSTERS * sum(1 for n in range(POSTS) if n % KEYS == key)
        + 100 * POSTS * sum(1 for p in range(POSTERS) if p % KEYS == key)
        for key in range(KEYS)
    ]


@pytest.mark.parametrize("retries", [1, 3], ids=["without_keys", "with_idempotency_keys"])
@pytest.mark.parametrize("mortal", [False, True], ids=["immortal", "mortal"])
def test_every_accepted_batch_is_folded_exactly_once(
    database: CatalogDatabase, warehouse: Warehouse, images: Images, retries: int, mortal: bool
) -> None:
    table = create_table(database, SUM | {"num-sorted-run.compaction-trigger": "3"})
    with working(database, warehouse, 3, mortal=mortal):
        expected = post_all(database, warehouse, table, retries=retries)
    assert totals(database, images, table, range(KEYS), latest=True) == expected
    merge_the_rest(database, warehouse, table)
    assert totals(database, images, table, range(KEYS)) == expected
    with database.reading() as repository:
        batches = repository.batches.page(table.id, limit=1000)
    assert [batch.number for batch in batches] == list(range(1, POSTERS * POSTS + 1))
    assert {batch.state for batch in batches} == {BatchState.MERGED}


def test_workers_that_look_for_work_themselves_merge_what_is_due(
    database: CatalogDatabase, warehouse: Warehouse, images: Images
) -> None:
    table = create_table(database, SUM | {"merge.max-staleness": "0 ms"})
    site = MergeSite(database, warehouse, PythonExecutor(), 600)
    workers = [Worker(site) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(20):
        post(database, warehouse, {"id": number % 2, "n": 1})
    for _ in range(1000):
        with database.reading() as repository:
            if not repository.batches.staged(table.id):
                break
        threading.Event().wait(0.02)
    for worker in workers:
        worker.stop()
    assert totals(database, images, table, [0, 1]) == [10, 10]


def test_a_table_dropped_under_posters_and_workers_refuses_batches_and_harms_nobody(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "2"})
    refused = []

    def one(number: int) -> None:
        try:
            post(site.database, site.warehouse, {"id": number, "n": 1})
            request_merge(site.database, table.id)
        except NotFound as error:
            refused.append(error.code)

    with working(site.database, site.warehouse, 2), ThreadPoolExecutor(4) as pool:
        posts = [pool.submit(one, number) for number in range(40)]
        posts[10].result()
        drop_table(site.database, site.warehouse, ("shop", "wide"))
        for outcome in posts:
            outcome.result()
    assert set(refused) <= {"table_not_found"}
    with site.database.reading() as repository:
        assert repository.tables.find(table.id) is None
        assert repository.tasks.backlogs() == []
    with pytest.raises(NotFound):
        post(site.database, site.warehouse, {"id": 1, "n": 1})


def test_due_merges_are_requested_by_many_workers_but_only_once(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"merge.max-staleness": "0 ms"})
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: request_due_merges(site.database), range(24)))
    with site.database.reading() as repository:
        assert len(repository.tasks.page(table.id, limit=100)) == 1
