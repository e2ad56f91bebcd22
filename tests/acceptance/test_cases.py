"""The conformance cases over HTTP, merged on real Spark: what a table answers after each batch does not depend on which
of them are merged, so that a case is merged once, twice, or after every batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.types.parser import parse_type
from tests.case_values import from_json, same, to_json
from tests.service import Client, TableClient

Case = dict[str, Any]
FOLDER = Path(__file__).parent.parent / "cases"
# The README of the cases: the other files hold answers that depend on the cut or on Paimon's version.
REQUIRED = ["seed", "docs", "edge_cases", "errors", "tests_*"]
AT_ONCE = 64  # cases that are played at a time: one round merges what waits of all of them


@cache
def differences() -> Mapping[str, Any]:
    """Cases whose answer differs on purpose, by name."""
    found: dict[str, Any] = json.loads((FOLDER.parent / "differences.json").read_text())
    return found


def load_cases() -> list[Case]:
    files = sorted(path for pattern in REQUIRED for path in FOLDER.glob(f"{pattern}.json"))
    return [case for path in files for case in json.loads(path.read_text())]


CASES = {case["name"]: case for case in load_cases()}


class Refused(Exception):
    """The table was refused; ``errors`` are the faults."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(str(errors))
        self.errors = errors


class Play:
    """One case played on a table of its own."""

    def __init__(self, client: Client, number: int, case: Case) -> None:
        self.case = case
        self.names = [column["name"] for column in case["columns"]]
        self.types = [parse_type(column["type"]) for column in case["columns"]]
        self.client = client
        self.table = f"case_{number}"
        self.seen: dict[str, dict[str, Any]] = {}

    def schema(self) -> dict[str, Any]:
        fields = [
            {"name": c["name"], "type": c["type"] if c["nullable"] else f"{c['type']} NOT NULL"}
            for c in self.case["columns"]
        ]
        return {
            "fields": fields,
            "primaryKeys": self.case["primary_key"],
            "partitionKeys": self.case.get("partition_by", []),
            "options": self.case["options"],
        }

    def create(self) -> TableClient:
        answer = self.client.create_table("cases", self.table, self.schema())
        if answer.status_code == 400:
            raise Refused(answer.json()["errors"])
        assert answer.status_code == 200, answer.text
        return TableClient(self.client, "cases", self.table)

    def records(self, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {n: to_json(t, v) for n, t, v in zip(self.names, self.types, one["row"], strict=True)}
            | {"_kind": one["kind"]}
            for one in batch
        ]

    def post(self, table: TableClient, batch: list[dict[str, Any]], *, merged: bool) -> bool:
        """Whether the batch was taken; if ``merged``, all that is staged is merged when this returns."""
        records = self.records(batch)
        answer = table.post_batch(records)
        if answer.status_code == 400:
            return False
        assert answer.status_code == 202, answer.text
        # Many wait at a time, and a round merges them together: the less they ask, the more Spark has done.
        merge = table.merge(longest_pause=2) if merged else {"state": "succeeded"}
        if merge["state"] != "succeeded":
            # Overflow that only the fold can see (A.7): the batch is withdrawn as its owner would do it.
            assert any(reason in merge["error"] for reason in ("out of range", "quotient without end")), merge
            self.withdraw(table, answer.json()["id"])
            return False
        for record in records:
            key = {name: record[name] for name in self.case["primary_key"]}
            self.seen[json.dumps(key)] = key
        return True

    def withdraw(self, table: TableClient, batch_id: str) -> None:
        for _ in range(100):  # the table tries the merge again by itself, and then has the batch for a moment
            answer = self.client.delete(f"{table.path}/batches/{batch_id}")
            if answer.status_code == 200:
                return
            assert answer.status_code == 409, answer.text
            time.sleep(0.1)
        raise AssertionError("the batch could not be withdrawn")

    def rows(self, table: TableClient, consistency: str) -> list[list[Any]]:
        found = [row for row in table.batch_get(list(self.seen.values()), consistency=consistency) if row is not None]
        return [[from_json(t, row[n]) for n, t in zip(self.names, self.types, strict=True)] for row in found]


def merged_after(number: int, case: Case) -> set[int]:
    """The batches, by their place, after which a case is merged: the last one, and of every other case one before it.

    Overflow that only the fold can see is told of the batches of one merge: those that are refused are by themselves.
    """
    last = len(case["batches"]) - 1
    if may_be_refused(case["name"], case):
        return set(range(last + 1))
    return {last} if number % 2 else {last // 2, last}


def play(client: Client, number: int, case: Case) -> list[Any]:
    """What the table answered after each batch: its rows, or ``refused``."""
    game = Play(client, number, case)
    table = game.create()
    merges = merged_after(number, case)
    return [
        game.rows(table, "merged" if place in merges else "latest")
        if game.post(table, batch, merged=place in merges)
        else "refused"
        for place, batch in enumerate(case["batches"])
    ]


@pytest.fixture(scope="session")
def plays(client: Client) -> Mapping[str, Future[list[Any]]]:
    """All cases, played ``AT_ONCE`` at a time.

    Each player has a connection: where httpx keeps fewer, it may close one that it has just given to a request.
    """
    client.create_database("cases")
    kept = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=None)
    with (
        Client(base_url=client.base_url, timeout=client.timeout, trust_env=False, limits=kept) as players,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        return {name: pool.submit(play, players, number, case) for number, (name, case) in enumerate(CASES.items())}


def matches(case: Case, ours: Any, expected: Mapping[str, Any]) -> bool:
    if ours == "refused" or "error" in expected:
        return ours == "refused" and "error" in expected
    names = [column["name"] for column in case["columns"]]
    places = [names.index(name) for name in case["primary_key"]]
    by_key = [{repr([row[p] for p in places]): row for row in rows} for rows in (ours, expected["rows"])]
    if by_key[0].keys() != by_key[1].keys():
        return False
    bags = case.get("unordered_columns", [])
    return all(
        same(column["type"], a, b, unordered=column["name"] in bags)
        for key, row in by_key[0].items()
        for column, a, b in zip(case["columns"], row, by_key[1][key], strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_case_answers_as_paimon_or_as_decided(name: str, plays: Mapping[str, Future[list[Any]]]) -> None:
    case = CASES[name]
    try:
        answers = plays[name].result()
    except Refused:
        if not may_be_refused(name, case):
            raise
        return
    assert_answers(name, case, answers)


def simulate(client: Client, case: Case) -> list[Any]:
    """What ``merges:simulate`` answers after each batch: the rows, or ``refused``."""
    game = Play(client, 0, case)
    taken: list[dict[str, Any]] = []
    answers: list[Any] = []
    for batch in case["batches"]:
        body = {"schema": game.schema(), "records": [*taken, *game.records(batch)]}
        answer = client.post("/v1/catalog/merges:simulate", json=body)
        if answer.status_code in (400, 409):
            errors = answer.json()["errors"]
            if any(error["pointer"].startswith("/schema") for error in errors):
                raise Refused(errors)
            answers.append("refused")
            continue
        assert answer.status_code == 200, answer.text
        taken = body["records"]
        rows = [row["after"] for row in answer.json()["rows"] if row["after"] is not None]
        answers.append([[from_json(t, row[n]) for n, t in zip(game.names, game.types, strict=True)] for row in rows])
    return answers


def assert_answers(name: str, case: Case, answers: list[Any]) -> None:
    expected = differences()[name]["ours"] if name in differences() else case.get("expect", [])
    assert "expect_error" not in case, "the definition must be refused"
    for number, (ours, theirs) in enumerate(zip(answers, expected, strict=True)):
        assert matches(case, ours, theirs), f"after batch {number + 1}: {ours} instead of {theirs}"


def may_be_refused(name: str, case: Case) -> bool:
    expected = differences()[name]["ours"] if name in differences() else case.get("expect", [])
    return "expect_error" in case or any("error" in one for one in expected)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["batches"]])
def test_case_is_simulated_as_it_is_merged(name: str, client: Client) -> None:
    case = CASES[name]
    try:
        answers = simulate(client, case)
    except Refused:
        assert may_be_refused(name, case)
        return
    assert_answers(name, case, answers)


def test_every_deliberate_difference_names_a_case_and_a_decision() -> None:
    for name, difference in differences().items():
        assert difference["quirk"].startswith(("Q", "A.")), name
        assert difference["paimon"] != difference["ours"], name
        if name in CASES:
            assert difference["paimon"] == CASES[name]["expect"], name
