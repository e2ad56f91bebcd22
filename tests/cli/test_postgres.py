"""``keyfold table create --from-postgres``: the statement for a table of a real PostgreSQL, which makes a table."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from app.cli.client.postgres import column_type
from tests.cli.terminal import DATABASE, Terminal
from tests.postgres import postgres_database

SQL = """
CREATE SCHEMA inventory;
CREATE TYPE inventory.mood AS ENUM ('sad', 'glad');
CREATE DOMAIN inventory.amount AS numeric(12, 2);
CREATE TABLE inventory.orders (
  total inventory.amount, id bigint, line int, mood inventory.mood, moods inventory.mood[], note varchar(20),
  placed timestamptz, updated timestamp(3), due date, slot time(3), precise time, ok boolean NOT NULL, raw bytea,
  doc jsonb, tags text[], weight numeric, far numeric(5, -2), one bit(1), five bit(5), lsn int, gone int,
  PRIMARY KEY (line, id)
);
ALTER TABLE inventory.orders DROP COLUMN gone;
CREATE TABLE inventory.whole (id int PRIMARY KEY, v real);
ALTER TABLE inventory.whole REPLICA IDENTITY FULL;
CREATE TYPE inventory.pair AS (a int, b int);
CREATE TABLE inventory.unsent (
  id int PRIMARY KEY, ranges int4multirange, place box, places point[], spans interval[], pair inventory.pair,
  spot point, span interval, texts varchar(9)[], hours timetz[], letter "char", path jsonpath,
  label name, flags bit(3)[], grid int[][]
);
CREATE TABLE inventory.keyless (v int);
"""
TYPES = {
    "total": "DECIMAL(12, 2)",
    "id": "BIGINT NOT NULL",
    "line": "INT NOT NULL",
    "mood": "STRING",
    "moods": "ARRAY<STRING>",
    "note": "STRING",
    "placed": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "updated": "TIMESTAMP(3)",
    "due": "DATE",
    "slot": "TIME(3)",
    "precise": "STRING",
    "ok": "BOOLEAN",
    "raw": "BYTES",
    "doc": "STRING",
    "tags": "ARRAY<STRING>",
    "weight": "STRING",
    "far": "STRING",
    "one": "BOOLEAN",
    "five": "STRING",
    "lsn": "INT",
    "source_lsn": "BIGINT",
}


@pytest.fixture(scope="module")
def dsn(postgres: str) -> Iterator[str]:
    with postgres_database(postgres, f"source_{uuid4().hex}") as url:
        address = url.replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(SQL)
        yield address


def test_the_statement_makes_a_table_for_the_events(terminal: Terminal, dsn: str) -> None:
    written = terminal.run("table", "create", "--from-postgres", dsn, "inventory.orders")
    assert written.returncode == 0, written.stderr
    assert "REPLICA IDENTITY" in written.stdout.splitlines()[0]
    made = terminal.run("table", "create", "-d", DATABASE, "-f", "-", stdin=written.stdout)
    assert made.returncode == 0, made.stderr
    schema = terminal.result("table", "show", f"{DATABASE}.orders")["schema"]
    shown = {field["name"]: field["type"] for field in schema["fields"]}
    assert {name: "ARRAY<STRING>" if isinstance(of, dict) else of for name, of in shown.items()} == TYPES
    assert schema["primaryKeys"] == ["line", "id"]
    assert schema["options"] == {
        "events.source": "inventory.orders",
        "fields.source_lsn.from-event": "source.lsn",
        "sequence.field": "source_lsn",
        "merge-engine": "partial-update",
        "record.absent-columns": "unchanged",
        "partial-update.remove-record-on-delete": "true",
    }


def test_whole_rows_need_nothing_that_stays_as_it_is(terminal: Terminal, dsn: str) -> None:
    written = terminal.run("table", "create", "--from-postgres", dsn, "inventory.whole")
    assert "merge-engine" not in written.stdout
    assert "'fields.lsn.from-event' = 'source.lsn'" in written.stdout


def test_columns_that_debezium_does_not_send_are_named(terminal: Terminal, dsn: str) -> None:
    """Seen with PostgreSQL 18 and Debezium 3.6: no event has their values; that of a ``name`` only in the snapshot."""
    written = terminal.run("table", "create", "--from-postgres", dsn, "inventory.unsent").stdout
    [note] = [line for line in written.splitlines() if "include.unknown.datatypes" in line]
    assert note.partition("(include.unknown.datatypes): ")[2] == (
        "ranges (int4multirange), place (box), places (point[]), spans (interval[]), "
        "pair (inventory.pair), path (jsonpath), label (name), flags (bit(3)[])"
    )
    assert "include.unknown" not in terminal.run("table", "create", "--from-postgres", dsn, "inventory.orders").stdout


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("inventory.keyless",), "no primary key"),
        (("inventory.none",), "SCHEMA.TABLE"),
        (("a b.c d; DROP",), "there is no table"),
        ((), "--from-postgres DSN and SCHEMA.TABLE"),
        (("inventory.orders", "--check"), "--from-postgres DSN and SCHEMA.TABLE alone"),
        (("inventory.orders", "-d", "shop"), "--from-postgres DSN and SCHEMA.TABLE alone"),
    ],
)
def test_what_cannot_be_written_down_is_reported(
    terminal: Terminal, dsn: str, words: tuple[str, ...], reported: str
) -> None:
    failed = terminal.run("table", "create", "--from-postgres", dsn, *words)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert reported in failed.stderr


def test_a_database_that_does_not_answer_is_reported(terminal: Terminal) -> None:
    failed = terminal.run("table", "create", "--from-postgres", "postgresql://x:secret@127.0.0.1:1/x", "a.b")
    assert failed.returncode == 2
    assert "secret" not in failed.stderr


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ("numeric(10,2)[]", "ARRAY<DECIMAL(10, 2)>"),
        ("numeric(40,2)", "STRING"),
        ("numeric(5)", "DECIMAL(5, 0)"),
        ("timestamp without time zone", "TIMESTAMP(6)"),
        ("time(3) with time zone", "STRING"),
        ("bit varying(5)", "STRING"),
        ("bit varying", "BYTES"),
        ("interval", "BIGINT"),
        ("character varying(10)", "STRING"),
        ("geometry(Point,4326)", "STRING"),
    ],
)
def test_types_hold_what_debezium_sends_of_them(of: str, expected: str) -> None:
    assert column_type(of) == expected
