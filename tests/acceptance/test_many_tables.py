"""One worker on real Spark merges several tables at the same time, each with its own rows and its own progress."""

from __future__ import annotations

import time
from typing import Any

from tests.service import Client, TableClient

TABLES = 8
ROUNDS = 2
AT_ONCE = 4  # of the service of these tests
FUNCTIONS = ("sum", "max", "last_value", "listagg")


def schema(number: int) -> dict[str, Any]:
    function = FUNCTIONS[number % len(FUNCTIONS)]
    kind = "STRING" if function == "listagg" else "BIGINT"
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": function, "merge.max-staleness": "1 d"}
    options["changelog-producer"] = "input"  # so that each merge is a job of its own
    fields = [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": kind}]
    return {"fields": fields, "primaryKeys": ["id"], "options": options}


def value(number: int, turn: int) -> int | str:
    own = 100 * number + turn
    return str(own) if FUNCTIONS[number % len(FUNCTIONS)] == "listagg" else own


def expected(number: int) -> int | str:
    values = [value(number, turn) for turn in range(ROUNDS)]
    function = FUNCTIONS[number % len(FUNCTIONS)]
    if function == "listagg":
        return ",".join(map(str, values))
    return sum(map(int, values)) if function == "sum" else values[-1]


def all_merged(tables: list[TableClient]) -> list[dict[str, Any]]:
    """Asks for a merge of every table and waits for all ends."""
    asked = [(table, table.client.post(f"{table.path}/merges").raise_for_status().json()["id"]) for table in tables]
    ended: list[dict[str, Any]] = []
    for table, merge in asked:
        while (found := table.client.get(f"{table.path}/merges/{merge}").json())["state"] in ("pending", "running"):
            time.sleep(0.05)
        ended.append(found)
    return ended


def together(merges: list[dict[str, Any]]) -> int:
    """The most merges that ran at one moment."""
    spans = [(merge["startedAt"], merge["finishedAt"]) for merge in merges]
    return max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)


def test_eight_tables_are_merged_side_by_side(client: Client) -> None:
    client.create_database("many")
    for number in range(TABLES):
        client.create_table("many", f"t{number}", schema(number)).raise_for_status()
    tables = [TableClient(client, "many", f"t{number}") for number in range(TABLES)]
    for turn in range(ROUNDS):
        for number, table in enumerate(tables):
            assert table.post_batch([{"id": 1, "n": value(number, turn)}]).status_code == 202
        ended = all_merged(tables)
        assert [merge["state"] for merge in ended] == ["succeeded"] * TABLES, ended
        assert 1 < together(ended) <= AT_ONCE
    assert [table.get_row("1", consistency="merged").json()["n"] for table in tables] == [
        expected(number) for number in range(TABLES)
    ]
