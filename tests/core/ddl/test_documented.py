"""Every CREATE TABLE statement of Paimon's documentation (``tests/cases/ddl_docs.json``): accepted as the table that it
declares, with what is told of it, or refused for a reason that the documentation itself gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.ddl.writer import table_ddl
from app.core.errors import Invalid
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.types.dialects import Dialect
from app.services.tables.ddl import DeclaredTable, declared_tables

Case = dict[str, Any]
FILE = Path(__file__).parents[2] / "cases" / "ddl_docs.json"
CASES: dict[str, Case] = {case["name"]: case for case in json.loads(FILE.read_text())}
KEYED = [name for name, case in CASES.items() if case["primary_key"]]
ACCEPTED = [name for name, case in CASES.items() if "accepted" in case]
SAID = [name for name, case in CASES.items() if case["engine"] in (*Dialect,)]
# Why a statement with a primary key may be refused; each case names the page that says so.
REASONS = {"as-select", "blob", "chain-table", "column-index", "location", "parts-left-out", "trino"}


def declared(name: str, dialect: Dialect | None = None) -> DeclaredTable:
    [table] = declared_tables("db", CASES[name]["ddl"], dialect)
    return table


def outcome(name: str, dialect: Dialect | None = None) -> Case:
    """What becomes of the statement, in the form of the cases."""
    try:
        table = declared(name, dialect)
    except Invalid as invalid:
        return {"refused": sorted({fault.code for fault in invalid.violations})}
    schema = table.schema
    shown = {
        "columns": {column.name: column.type.sql for column in schema.columns},
        "key": list(schema.primary_key),
        "partitions": list(schema.partition_keys),
        "options": dict(schema.options),
    }
    reported = {warning.code for warning in (*table.statement.warnings, *table_warnings(schema))}
    found: Case = {"accepted": {what: part for what, part in shown.items() if part}}
    return {**found, "warnings": sorted(reported)} if reported else found


@pytest.mark.parametrize("name", CASES)
def test_a_statement_of_the_documentation_is_accepted_or_refused_as_its_case_says(name: str) -> None:
    expected = {what: CASES[name][what] for what in ("accepted", "warnings", "refused") if what in CASES[name]}
    assert outcome(name) == expected


@pytest.mark.parametrize("name", SAID)
def test_it_is_the_same_whether_its_dialect_is_said_or_told_by_its_words(name: str) -> None:
    assert outcome(name, Dialect(CASES[name]["engine"])) == outcome(name)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_written_of_an_accepted_one_is_read_as_the_same_table(name: str) -> None:
    table = declared(name)
    [again] = declared_tables("db", table_ddl("t", table.schema, Dialect.FLINK), Dialect.FLINK)
    assert again.schema.to_json() == table.schema.to_json()


@pytest.mark.parametrize("name", KEYED)
def test_one_with_a_primary_key_is_refused_only_for_what_the_documentation_says_itself(name: str) -> None:
    case = CASES[name]
    if "refused" in case:
        assert case["reason"] in REASONS
        assert case["why"]
        assert case["because"].startswith("docs/docs/")
    else:
        assert case["accepted"]["key"]


def test_every_reason_has_a_case_and_no_table_without_a_primary_key_is_accepted() -> None:
    assert {CASES[name]["reason"] for name in KEYED if "refused" in CASES[name]} == REASONS
    assert {*ACCEPTED} <= {*KEYED}
    assert all(case["why"] for case in CASES.values() if "refused" in case)
