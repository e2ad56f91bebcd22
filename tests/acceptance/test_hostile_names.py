"""Text of users is text in every language that it passes through on its way through Spark, whatever it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import cycle, pairwise
from random import Random
from typing import Any

import pytest

from tests import oracle
from tests.acceptance.conftest import Client
from tests.builders import schema_json
from tests.oracle import Change, TableCase
from tests.service import TableClient

DATABASE = "hostile-names"
TOKEN = "${env:SPARK_CONNECT_AUTHENTICATE_TOKEN}"  # noqa: S105  # what would give the token away
NAMES = [
    TOKEN,
    # Hadoop's language, and Spark's own.
    *("${user.home}", "${env.SPARK_CONNECT_AUTHENTICATE_TOKEN}", "${env.NO:-x}${hadoop.tmp.dir}"),
    *("${spark.sql.session.timeZone}", "${system:user.home}", "$ { } ${"),
    *(
        *("`", "'", '"', "\\", "it's `a` \"b\" \\' ; -- /* :p ? %s", "*/ 1"),
        "\\u0041 #*[0]",
        "line\nfeed\r\n\tx",
        "😀 ä a\u0308",
    ),
    *("select", "NULL", "Case", "case", "r", "x", "key", "_metadata"),
]
DOTTED = ["a.b", ".", "r.x", "x.*"]
IN_OPTIONS = [name for name in NAMES if "." not in name]  # a dot in a key ends the name
NOT_IN_OPTIONS = [*DOTTED, *(name for name in NAMES if "." in name)]
VALUES = [*NAMES, *DOTTED, "nul\0", "\0", ",", "a,b", "\u2028", "", "\\0", "\\%", "%", "_", " "]
KEY = "k`'${user.home}"


def deduplicate() -> TableCase:
    """Every name a column, ordered by the most hostile ones."""
    columns = [(KEY, "STRING"), *((name, "STRING") for name in [*NAMES, *DOTTED])]
    order = {"sequence.field": f"{TOKEN},`", "sequence.field.sort-order": "descending"}
    return TableCase(tuple(columns), (KEY, "select"), order)


def first_row() -> TableCase:
    columns = [(KEY, "STRING"), *((name, "STRING") for name in [*DOTTED, *NAMES])]
    return TableCase(tuple(columns), (KEY, "${user.home}"), {"merge-engine": "first-row"})


def partial_update() -> TableCase:
    """Groups of two columns, one of them a list whose delimiter is as hostile as its name."""
    names = iter(IN_OPTIONS)
    options = {"merge-engine": "partial-update"}
    columns = [(KEY, "STRING")]
    for field, plain, listed in zip(names, names, names, strict=False):
        columns += [(field, "STRING"), (plain, "STRING"), (listed, "STRING")]
        options[f"fields.{field}.sequence-group"] = f"{plain},{listed}"
        options |= listagg(listed, field)
    return TableCase((*columns, *((name, "STRING") for name in NOT_IN_OPTIONS)), (KEY,), options)


def listagg(column: str, delimiter: str) -> dict[str, str]:
    """Options of a list of texts."""
    own = {"aggregate-function": "listagg", "list-agg-delimiter": delimiter, "distinct": "true"}
    return {f"fields.{column}.{option}": text for option, text in own.items()}


def nested(field: str) -> str:
    """A type with a field of the name."""
    quoted = field.replace("`", "``")
    return f"ARRAY<ROW<`{quoted}` STRING, `{quoted}2` STRING>>"


def keyed(field: str) -> str:
    quoted = field.replace("`", "``")
    return f"MAP<STRING, ROW<`{quoted}` STRING, `{quoted}2` STRING>>"


def aggregation() -> TableCase:
    """Functions in turns, their options and the fields of their rows named like their column."""
    options = {"merge-engine": "aggregation"}
    columns = [(KEY, "STRING")]
    functions = ("listagg", "nested_update", "merge_map_with_keytime", "max", "merge_map", "nested_partial_update")
    for name, function in zip(IN_OPTIONS, cycle(functions), strict=False):
        own = {"aggregate-function": function}
        kind = "STRING"
        if function == "listagg":
            own |= {"list-agg-delimiter": name}
        elif function.startswith("nested"):
            own |= {"nested-key": name}
            kind = nested(name)
        elif function == "merge_map_with_keytime":
            own |= {"ts-field": name}
            kind = keyed(name)
        elif function == "merge_map":
            kind = "MAP<STRING, STRING>"
        columns.append((name, kind))
        options |= {f"fields.{name}.{option}": text for option, text in own.items()}
    return TableCase((*columns, *((name, "STRING") for name in NOT_IN_OPTIONS)), (KEY,), options)


TABLES = {
    "deduplicate": deduplicate(),
    "first-row": first_row(),
    "partial-update": partial_update(),
    "aggregation": aggregation(),
}


def value(random: Random, name: str, data_type: str) -> Any:
    text = random.choice(VALUES)
    fields = {name: text, f"{name}2": random.choice(VALUES)}
    if data_type.startswith("ARRAY"):
        return [fields]
    if data_type.startswith("MAP<STRING, ROW"):
        return [(random.choice(VALUES[:3]), fields)]
    if data_type.startswith("MAP"):
        return [(text, random.choice(VALUES))]
    return text


def history(random: Random, table: TableCase) -> list[Change]:
    """A few records of each of a few keys, as hostile as the names."""
    keys = [{name: random.choice(VALUES) for name in table.primary_key} for _ in range(12)]
    return [
        Change("+I", {name: value(random, name, kind) for name, kind in table.columns} | key)
        for _ in range(4)
        for key in keys
    ]


def expected(table: TableCase, changes: list[Change]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each key, and its row."""
    by_key: Mapping[tuple[Any, ...], list[Change]] = defaultdict(list)
    for change in changes:
        by_key[tuple(change.values[name] for name in table.primary_key)].append(change)
    for key, own in by_key.items():
        yield dict(zip(table.primary_key, key, strict=True)), oracle.fold(table, own)


def as_json(value: Any) -> Any:
    """A value of the oracle as the API takes and tells it: maps of texts are objects."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def records(changes: list[Change]) -> list[dict[str, Any]]:
    return [{name: as_json(value) for name, value in change.values.items()} for change in changes]


@pytest.fixture(scope="module", autouse=True)
def database(client: Client) -> None:
    client.create_database(DATABASE)


@pytest.mark.parametrize("engine", TABLES)
def test_latest_and_merged_rows_are_the_fold_whatever_names_options_keys_and_values_hold(
    engine: str, client: Client
) -> None:
    table = TABLES[engine]
    # The job that writes changes joins and names columns as well; one engine's columns are as hostile as another's.
    changelog = {"changelog-producer": "lookup"} if engine == "aggregation" else {}
    options = {**table.options, "merge.max-staleness": "1 d", **changelog}
    schema = schema_json(TableCase(table.columns, table.primary_key, options))
    answer = client.create_table(DATABASE, engine, schema)
    assert answer.status_code == 200, answer.text
    there = TableClient(client, DATABASE, engine)
    changes = history(Random(engine), table)
    for cuts in ([0, 10, 24], [24, 48]):
        for start, end in pairwise(cuts):
            there.post_batch(records(changes[start:end])).raise_for_status()
        keys, rows = zip(*expected(table, changes[: cuts[-1]]), strict=True)
        wanted = [{name: as_json(value) for name, value in row.items()} for row in rows if row is not None]
        assert there.batch_get(keys, consistency="latest") == wanted
        merge = there.merge()
        assert merge["state"] == "succeeded", merge
        assert there.batch_get(keys, consistency="merged") == wanted
    compaction = client.post(f"{there.path}/compact").raise_for_status().json()
    assert there.finished(compaction)["state"] == "succeeded"
    assert there.batch_get(keys, consistency="merged") == wanted
