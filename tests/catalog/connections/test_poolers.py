"""A catalog behind PgBouncer: what needs a session of the server is not asked for, or says what is wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable
from tests.catalog.builders import create_table
from tests.pooler import PGBOUNCER, pgbouncer

pytestmark = pytest.mark.parametrize("catalog_kind", ["postgresql"], indirect=True)
with_pooler = pytest.mark.skipif(PGBOUNCER is None, reason="there is no pgbouncer")
TIMES = 20  # more than psycopg runs a statement before it prepares it


@with_pooler
def test_machines_that_share_the_sessions_of_a_server_read_and_write_by_turns(catalog_url: str) -> None:
    with pgbouncer(catalog_url, "transaction") as url, ExitStack() as exits:
        machines = [CatalogDatabase(url) for _ in range(4)]
        for machine in machines:
            exits.callback(machine.close)
        names = [f"t{number}" for number in range(len(machines))]
        tables = [create_table(machine, name) for machine, name in zip(machines, names, strict=True)]

        def work(number: int) -> None:
            for turn in range(TIMES):
                with machines[number].transaction() as repository:
                    repository.tokens.add(f"{number}-{turn}", f"digest {number}-{turn}")
                with machines[number].reading() as repository:
                    assert repository.tables.get("shop", names[number]).id == tables[number].id

        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(work, range(len(machines))))
        with machines[0].reading() as repository:
            assert len(repository.tokens.page()) == len(machines) * TIMES


@with_pooler
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_behind_a_pooler_nothing_listens_and_each_transaction_has_its_bounds(catalog_url: str, mode: str) -> None:
    with pgbouncer(catalog_url, mode) as url, ExitStack() as exits:
        machine = CatalogDatabase(url)
        exits.callback(machine.close)
        assert machine.notifications() is None
        for opened in (machine.reading, machine.transaction):
            with opened() as repository:
                shown = repository.transaction.connection.execute(sa.text("SHOW lock_timeout")).scalar()
                assert shown == "30s"


@with_pooler
def test_a_pooler_without_transactions_is_named_with_the_setting_that_helps(catalog_url: str) -> None:
    with pgbouncer(catalog_url, "statement") as url, ExitStack() as exits:
        machine = CatalogDatabase(url)
        exits.callback(machine.close)
        with pytest.raises(Unavailable, match="set its pool_mode to transaction or session"):
            machine.is_current()


@with_pooler
def test_a_pooler_that_takes_no_more_clients_is_named(catalog_url: str) -> None:
    with pgbouncer(catalog_url, "session", clients=1) as url, ExitStack() as exits:
        first, second = CatalogDatabase(url), CatalogDatabase(url)
        exits.callback(first.close)
        exits.callback(second.close)
        first.ping()
        with pytest.raises(Unavailable, match="raise its max_client_conn"):
            second.ping()


def test_a_catalog_that_is_away_is_unavailable_to_the_connection_that_listens(catalog_url: str) -> None:
    nowhere = sa.make_url(catalog_url).set(host="127.0.0.1", port=1, query={})
    machine = CatalogDatabase(nowhere.render_as_string(hide_password=False))
    with pytest.raises(Unavailable):
        machine.notifications()
