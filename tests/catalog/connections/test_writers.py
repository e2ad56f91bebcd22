"""Writers that wait for a catalog that stands still: a few may, the next go; who works for the service waits on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from app.catalog.connections.writers import MOST_WAITING, PATIENCE_SECONDS, Writers, hurried
from app.catalog.database import CatalogDatabase
from app.core.errors import NotStored
from app.telemetry.entries import Counted
from app.telemetry.metrics import Metrics
from tests.services.clocks import Seconds


class Queue:
    """Writers on a clock that is set; each that comes is kept with what tells whether to go."""

    def __init__(self) -> None:
        self.clock = Seconds()
        self.metrics = Metrics()
        self.writers = Writers(self.metrics, self.clock)
        self.stack = ExitStack()

    def come(self, *, hurries: bool = True) -> Callable[[], None]:
        if not hurries:
            return self.stack.enter_context(self.writers.waiting())
        with hurried():
            return self.stack.enter_context(self.writers.waiting())

    def waiting(self) -> float:
        return self.metrics.totals()[Counted.WAITING_WRITERS, ()][0]


def goes(check: Callable[[], None]) -> bool:
    try:
        check()
    except NotStored:
        return True
    return False


def test_those_who_came_first_wait_on_and_the_others_go_once_nobody_got_through_for_too_long() -> None:
    queue = Queue()
    checks = [queue.come() for _ in range(MOST_WAITING + 3)]
    assert queue.waiting() == len(checks)
    queue.clock.time = PATIENCE_SECONDS
    assert [goes(check) for check in checks] == [False] * len(checks)
    queue.writers.check()
    queue.clock.time += 0.1
    assert [goes(check) for check in checks] == [False] * MOST_WAITING + [True] * 3
    assert goes(queue.writers.check)
    assert queue.metrics.totals()[Counted.REFUSED_WRITERS, ()] == [4]
    queue.stack.close()
    assert queue.waiting() == 0
    queue.writers.check()


def test_a_few_are_never_told_to_go() -> None:
    queue = Queue()
    checks = [queue.come() for _ in range(MOST_WAITING - 1)]
    queue.clock.time = 1000.0
    assert not any(goes(check) for check in checks)
    assert not goes(queue.writers.check)


def test_while_one_after_the_other_gets_through_all_wait_however_slowly() -> None:
    queue = Queue()
    checks = [queue.come() for _ in range(50)]
    for _ in range(5):
        with queue.writers.waiting():
            queue.clock.time += PATIENCE_SECONDS
        assert not any(goes(check) for check in checks)
    queue.clock.time += PATIENCE_SECONDS + 0.1
    assert [goes(check) for check in checks].count(True) == 50 - MOST_WAITING


def test_who_is_told_to_go_moves_nothing() -> None:
    queue = Queue()
    checks = [queue.come() for _ in range(MOST_WAITING + 2)]
    queue.clock.time = 2 * PATIENCE_SECONDS
    with pytest.raises(NotStored), hurried(), queue.writers.waiting() as late:
        late()
    assert [goes(check) for check in checks][-2:] == [True, True]


def test_who_works_for_the_service_waits_on() -> None:
    queue = Queue()
    for _ in range(2 * MOST_WAITING):
        queue.come()
    check = queue.come(hurries=False)
    queue.clock.time = 1000.0
    assert not goes(check)


@pytest.mark.parametrize("kind", ["reading", "hurried writers"])
def test_a_held_catalog_keeps_no_reader_waiting_and_lets_a_few_writers_wait(
    database: CatalogDatabase, kind: str
) -> None:
    """The lock is held while all this happens: whoever ends, ends beside it."""
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with database.transaction() as repository:
            repository.databases.create("held", {})
            held.set()
            let_go.wait()

    def read() -> None:
        with database.reading() as repository:
            repository.databases.page(limit=1)

    def write(number: int) -> bool:
        try:
            with hurried(), database.transaction() as repository:
                repository.databases.create(f"d{number}", {})
                return True
        except NotStored:
            return False

    with ThreadPoolExecutor(60) as pool:
        holder = pool.submit(hold)
        held.wait()
        try:
            if kind == "reading":
                for one in [pool.submit(read) for _ in range(40)]:
                    one.result()
                return
            if database.embedded:  # PostgreSQL has no lock that all writers need
                check_writers(pool, write)
        finally:
            let_go.set()
            holder.result()


def check_writers(pool: ThreadPoolExecutor, write: Callable[[int], bool]) -> None:
    writing: list[Future[bool]] = [pool.submit(write, number) for number in range(40)]
    refused = 0
    while refused < len(writing) - MOST_WAITING:
        refused = sum(one.done() for one in writing)
    assert not any(one.result() for one in writing if one.done())
