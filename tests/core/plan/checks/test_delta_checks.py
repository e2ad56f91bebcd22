"""Which tables may be published as Delta, and as what schema."""

from __future__ import annotations

import pytest

from app.core.plan.columns.delta_schema import DELTA_TYPES, delta_schema
from app.core.plan.merging.delta_runs import full_runs, readable_as, whole_runs
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run
from app.core.table.schema import TableSchema
from app.core.types.kinds import Kind
from tests.core.tables import table, violations

PUBLISHED = {"delta.publish": "true"}
AGGREGATION = {"merge-engine": "aggregation", **PUBLISHED}
SKETCH = {"k": "INT", "s": "BYTES"}


@pytest.mark.parametrize(
    ("options", "columns", "column", "words"),
    [
        (PUBLISHED, {"k": "INT", "at": "TIME"}, "at", "no type for TIME"),
        (PUBLISHED, {"k": "INT", "at": "ARRAY<ROW<a TIME(3)>>"}, "at", "no type for TIME(3)"),
        (PUBLISHED, {"k": "INT", "a b": "INT"}, "a b", "no name in Delta has a blank"),
        (PUBLISHED, {"k": "INT", "r": "ROW<`a,b` INT>"}, "r", "'a,b'"),
        (PUBLISHED, {"k": "INT", "r": "ROW<a INT, A INT>"}, "r", "in case only"),
        (AGGREGATION | {"fields.s.aggregate-function": "hll_sketch"}, SKETCH, "s", "hll_sketch stores another"),
        (AGGREGATION | {"fields.s.aggregate-function": "theta_sketch"}, SKETCH, "s", "theta_sketch stores another"),
        (AGGREGATION | {"fields.a.default-value": "1"}, {"k": "INT", "a": "INT"}, "a", "its default"),
    ],
)
def test_a_column_that_is_not_stored_as_it_is_shown_is_refused(
    options: dict[str, str], columns: dict[str, str], column: str, words: str
) -> None:
    [violation] = violations(table(options, columns))
    assert violation.code == "not_in_delta"
    assert repr(column) in violation.message
    assert words in violation.message


def test_names_that_differ_in_case_only_are_refused() -> None:
    [violation] = violations(table(PUBLISHED, {"k": "INT", "a": "INT", "A": "INT"}))
    assert "'a', 'A'" in violation.message


def test_a_default_that_is_written_with_the_record_is_published() -> None:
    compile_plan(table(PUBLISHED | {"fields.a.default-value": "1"}, {"k": "INT", "a": "INT"}))


def test_an_interval_without_publication_is_refused_but_not_one_that_was_turned_off() -> None:
    [violation] = violations(table({"delta.publish.interval": "5 min"}))
    assert violation.code == "missing_option"
    compile_plan(table({"delta.publish.interval": "5 min", "delta.publish": "false"}))


@pytest.mark.parametrize("interval", ["0 s", "999 ms", "1"])
def test_an_interval_that_leaves_no_pause_is_refused(interval: str) -> None:
    [violation] = violations(table(PUBLISHED | {"delta.publish.interval": interval}))
    assert (violation.code, violation.pointer) == ("out_of_range", "/options/delta.publish.interval")
    compile_plan(table(PUBLISHED | {"delta.publish.interval": "1 s"}))


def test_every_kind_of_type_has_a_delta_type_or_is_refused() -> None:
    assert DELTA_TYPES.keys() == set(Kind)
    assert [kind for kind, of_kind in DELTA_TYPES.items() if of_kind is None] == [Kind.TIME]


def test_the_schema_says_every_visible_column_in_order() -> None:
    columns = {"k": "BIGINT", "d": "DECIMAL(5, 2)", "m": "MAP<INT, ROW<y TIMESTAMP(3)>>", "s": "MULTISET<STRING>"}
    found = {one["name"]: one["type"] for one in delta_schema(table(PUBLISHED, columns))["fields"]}
    assert list(found) == ["k", "d", "m", "s"]
    assert (found["k"], found["d"]) == ("long", "decimal(5,2)")
    assert found["m"]["keyType"] == "integer"
    assert found["m"]["valueType"]["fields"][0]["type"] == "timestamp_ntz"
    assert (found["s"]["keyType"], found["s"]["valueType"]) == ("string", "integer")


def _fields(*columns: tuple[int, str, str]) -> TableSchema:
    fields = [{"id": number, "name": name, "type": kind} for number, name, kind in columns]
    return TableSchema.from_json({"fields": fields, "primaryKeys": ["k"], "options": dict(PUBLISHED)})


K, A = (0, "k", "INT NOT NULL"), (1, "a", "INT")


@pytest.mark.parametrize(
    ("now", "readable"),
    [
        ((K, A), True),
        ((K,), True),
        ((K, A, (2, "b", "INT")), True),
        ((K, (1, "b", "INT")), False),
        ((K, (2, "a", "INT")), False),
        ((K, (1, "a", "BIGINT")), False),
    ],
    ids=["the same", "dropped", "added", "renamed", "another of the name", "widened"],
)
def test_a_run_is_read_under_another_schema_where_names_and_types_find_its_values(
    now: tuple[tuple[int, str, str], ...], readable: bool
) -> None:
    assert readable_as(_fields(K, A), _fields(*now)) is readable


def test_a_snapshot_is_whole_when_each_partition_has_one_run() -> None:
    one, other, newer = Run("1", 0, (), "a", full=True), Run("2", 0, (), "b"), Run("3", 0, (), "a")
    assert whole_runs([one, other]) == (one, other)
    assert whole_runs([one, other, newer]) is None
    assert full_runs([one, other, newer]) == (one,)
