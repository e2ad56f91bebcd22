"""What the gate remembers of a catalog that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.marks import TOKENS
from app.catalog.repository import Repository
from app.core.errors import Unauthorized, Unavailable
from app.services.tokens import TokenGate, create_token
from tests.catalog.builders import new_batch
from tests.services.builders import create_table


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class HangingDatabase(CatalogDatabase):
    """A catalog each of whose reads takes thirty seconds of ``clock`` and then fails, while ``hangs``."""

    def __init__(self, url: str, clock: Seconds) -> None:
        super().__init__(url)
        self.seconds = clock
        self.hangs = True
        self.asked = 0

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        self.asked += 1
        if self.hangs:
            self.seconds.now += 30
            raise Unavailable("the catalog does not answer")
        with super().reading() as repository:
            yield repository


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def hanging(catalog_url: str, seconds: Seconds) -> Iterator[HangingDatabase]:
    opened = HangingDatabase(catalog_url, seconds)
    opened.migrate()
    yield opened
    opened.close()


def test_who_waited_behind_a_failed_read_is_told_so_without_another(hanging: HangingDatabase, seconds: Seconds) -> None:
    gate = TokenGate(hanging, required=False, clock=seconds)
    for _ in range(50):
        with pytest.raises(Unavailable, match="the catalog does not answer"):
            gate.check(None)
    assert (hanging.asked, seconds.now) == (1, 130)


def test_a_failure_is_remembered_for_a_second_only(hanging: HangingDatabase, seconds: Seconds) -> None:
    gate = TokenGate(hanging, required=False, clock=seconds)
    with pytest.raises(Unavailable):
        gate.check(None)
    hanging.hangs = False
    with pytest.raises(Unavailable):
        gate.check(None)
    seconds.now += 1.01
    assert gate.check(None) is False
    assert hanging.asked == 2


@pytest.fixture
def two(catalog_url: str, tmp_path: Path) -> Iterator[tuple[CatalogDatabase, CatalogDatabase]]:
    """The catalog as two processes of one machine have it open."""
    opened = CatalogDatabase(catalog_url, folder=tmp_path), CatalogDatabase(catalog_url, folder=tmp_path)
    opened[0].migrate()
    yield opened
    for one in opened:
        one.close()


def test_a_token_is_revoked_in_every_process_with_its_commit(
    two: tuple[CatalogDatabase, CatalogDatabase], seconds: Seconds
) -> None:
    mine, others = two
    gate = TokenGate(mine, required=False, clock=seconds)
    assert gate.check(None) is False
    first, second = (f"Bearer {create_token(others, name)}" for name in ("first", "second"))
    with pytest.raises(Unauthorized):
        gate.check(None)
    assert gate.check(first)
    assert gate.check(second)
    assert gate.recall(first)
    with others.transaction() as repository:
        repository.tokens.revoke("first")
    assert gate.recall(first) is None
    with pytest.raises(Unauthorized):
        gate.check(first)
    assert gate.check(second)


def test_commits_of_tables_do_not_make_the_gate_ask(
    two: tuple[CatalogDatabase, CatalogDatabase], seconds: Seconds
) -> None:
    mine, others = two
    create_token(others, "till")
    table = create_table(others)
    before = mine.marks.of(TOKENS)
    with others.transaction() as repository:
        repository.batches.add(table.id, new_batch())
    assert mine.marks.of(TOKENS) == before
