"""What the gate remembers, of a catalog that does not answer too; tokens made, expired and used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ApiToken, Repository
from app.catalog.shared.marks import TOKENS
from app.core.access import EVERYBODY, Grant, Role, TokenScope
from app.core.errors import FaultCode, Invalid, Unauthorized, Unavailable
from app.services.access.token_gate import TokenGate
from app.services.access.token_uses import TokenUses
from app.services.access.tokens import create_token
from tests.catalog.builders import add_batch, new_batch
from tests.services.builders import create_table
from tests.services.clocks import Seconds


class HangingDatabase(CatalogDatabase):
    """A catalog each of whose reads takes thirty seconds of ``clock`` and then fails, while ``hangs``; nothing is
    written while it ``refuses``.
    """

    def __init__(self, url: str, clock: Seconds) -> None:
        super().__init__(url)
        self.seconds = clock
        self.hangs = True
        self.refuses = False
        self.asked = 0

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        if self.refuses:
            raise Unavailable("the catalog does not answer")
        with super().transaction(wakes=wakes) as repository:
            yield repository

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        self.asked += 1
        if self.hangs:
            self.seconds.time += 30
            raise Unavailable("the catalog does not answer")
        with super().reading() as repository:
            yield repository


@pytest.fixture
def seconds() -> Seconds:
    return Seconds(100.0)


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
    assert (hanging.asked, seconds.time) == (1, 130)


def test_a_failure_is_remembered_for_a_second_only(hanging: HangingDatabase, seconds: Seconds) -> None:
    gate = TokenGate(hanging, required=False, clock=seconds)
    with pytest.raises(Unavailable):
        gate.check(None)
    hanging.hangs = False
    with pytest.raises(Unavailable):
        gate.check(None)
    seconds.time += 1.01
    assert gate.check(None) is EVERYBODY
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
    assert gate.check(None) is EVERYBODY
    first, second = (f"Bearer {create_token(others, name)}" for name in ("first", "second"))
    with pytest.raises(Unauthorized):
        gate.check(None)
    assert gate.check(first).name == "first"
    assert gate.check(second).name == "second"
    assert gate.recall(first) == gate.check(first)
    with others.transaction() as repository:
        repository.tokens.revoke("first")
    assert gate.recall(first) is None
    with pytest.raises(Unauthorized):
        gate.check(first)
    assert gate.check(second).name == "second"


def test_a_new_token_of_another_machine_is_known_before_the_gate_reads_all_again(
    catalog_url: str, seconds: Seconds
) -> None:
    # Without a folder they have no marks in common.
    with closing(CatalogDatabase(catalog_url)) as mine, closing(CatalogDatabase(catalog_url)) as others:
        mine.migrate()
        gate = TokenGate(mine, required=True, clock=seconds)
        with pytest.raises(Unauthorized):
            gate.check("Bearer unknown")
        secret = create_token(others, "till")
        seconds.time += 0.2
        assert gate.check(f"Bearer {secret}").name == "till"


def test_commits_of_tables_do_not_make_the_gate_ask(
    two: tuple[CatalogDatabase, CatalogDatabase], seconds: Seconds
) -> None:
    mine, others = two
    create_token(others, "till")
    table = create_table(others)
    before = mine.marks.mark(TOKENS)
    with others.transaction() as repository:
        add_batch(repository, table.id, new_batch())
    assert mine.marks.mark(TOKENS) == before


def token_named(database: CatalogDatabase, name: str) -> ApiToken:
    with database.reading() as repository:
        return next(token for token in repository.tokens.page() if token.name == name)


def test_a_token_grants_what_it_was_made_for(database: CatalogDatabase) -> None:
    secret = create_token(database, "till", Role.WRITE, ["shop.*"])
    grant = TokenGate(database, required=False).check(f"Bearer {secret}")
    assert grant == Grant("till", Role.WRITE, TokenScope.parse(["shop.*"]))


def test_an_expired_token_is_distinguished_from_an_unknown_one(database: CatalogDatabase) -> None:
    bearer = f"Bearer {create_token(database, 'till', expires='1h')}"
    create_token(database, "other")
    now = Seconds()
    expires_at = token_named(database, "till").expires_at
    now.time = expires_at.timestamp() - 0.001
    gate = TokenGate(database, required=False, now=now)
    assert gate.check(bearer).name == "till"
    now.time += 0.001
    assert gate.recall(bearer) is None
    for sent, code in ((bearer, FaultCode.EXPIRED_TOKEN), ("Bearer kf_no", FaultCode.UNKNOWN_TOKEN)):
        with pytest.raises(Unauthorized) as refused:
            gate.check(sent)
        assert [fault.code for fault in refused.value.violations] == [code]


def test_when_all_tokens_have_expired_none_is_left(database: CatalogDatabase) -> None:
    create_token(database, "till", expires="1h")
    now = Seconds()
    now.time = 2**40
    with pytest.raises(Unauthorized) as refused:
        TokenGate(database, required=False, now=now).check(None)
    assert [fault.code for fault in refused.value.violations] == [FaultCode.NO_TOKEN_LEFT]


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        ("90d", "2026-04-01T00:00:00+00:00"),
        ("12 h", "2026-01-01T12:00:00+00:00"),
        ("2027-01-31", "2027-01-31T00:00:00+00:00"),
        ("2027-01-31T18:00:00Z", "2027-01-31T18:00:00+00:00"),
        ("2027-01-31T18:00:00+05:30", "2027-01-31T12:30:00+00:00"),
    ],
)
def test_a_token_expires_after_a_while_or_at_a_time(catalog_url: str, expires: str, expected: str) -> None:
    database = CatalogDatabase(catalog_url, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    create_token(database, "till", expires=expires)
    expires_at = token_named(database, "till").expires_at
    assert expires_at.isoformat() == expected
    database.close()


@pytest.mark.parametrize(
    "expires",
    ["", "soon", "0d", "-1d", "90 fortnights", "2020-01-01", "2027-01-31T18:00:00", "2027-13-01", "9" * 400 + "d"],
)
def test_what_is_no_time_to_come_is_refused_with_every_other_fault(database: CatalogDatabase, expires: str) -> None:
    with pytest.raises(Invalid) as refused:
        create_token(database, "a/b", on=["shop"], expires=expires)
    assert [(fault.pointer, fault.code) for fault in refused.value.violations] == [
        ("/name", FaultCode.ILLEGAL_NAME),
        ("/on/0", FaultCode.ILLEGAL_SCOPE),
        ("/expires", FaultCode.ILLEGAL_EXPIRY),
    ]
    with database.reading() as repository:
        assert repository.tokens.required() is False


NO_NAMES = ["", "a" * 101, "-a", "a b", "a/b", "ä", "a\n", "a*"]


def test_a_token_has_a_plain_name(database: CatalogDatabase) -> None:
    for name in NO_NAMES:
        with pytest.raises(Invalid, match="name"):
            pytest.fail(f"{name!r}: {create_token(database, name)}")


def test_uses_are_written_together_and_not_by_the_request(database: CatalogDatabase) -> None:
    uses = TokenUses(database)
    gate = TokenGate(database, required=False, now=lambda: 1_800_000_000.0, uses=uses)
    bearer = f"Bearer {create_token(database, 'till')}"
    gate.check(bearer)
    gate.recall(bearer)
    assert token_named(database, "till").last_used_at is None
    uses.write()
    assert token_named(database, "till").last_used_at == datetime.fromtimestamp(1_800_000_000, UTC)


def test_uses_that_could_not_be_written_are_not_lost(hanging: HangingDatabase) -> None:
    hanging.hangs = False
    create_token(hanging, "till")
    uses = TokenUses(hanging)
    uses.note("till", 1_800_000_000.0)
    hanging.refuses = True
    uses.write()
    assert token_named(hanging, "till").last_used_at is None
    hanging.refuses = False
    uses.start()
    uses.close()
    assert token_named(hanging, "till").last_used_at == datetime.fromtimestamp(1_800_000_000, UTC)
