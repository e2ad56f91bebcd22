"""Which tables may be published, and as what schema."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.core.plan.columns.delta_schema import DELTA_TYPES, delta_schema
from app.core.plan.columns.iceberg_schema import ICEBERG_TYPES, iceberg_schema
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.merging.published_runs import full_runs, readable_as, whole_runs
from app.core.table.history import Run
from app.core.table.published import Format
from app.core.table.schema import TableSchema
from app.core.types.kinds import Kind
from app.files.arrow import arrow_field, field_id
from tests.core.tables import table, violations

PUBLISHED = {"delta.publish": "true"}
IN_ICEBERG = {"iceberg.publish": "true"}
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


@pytest.mark.parametrize("form", Format)
def test_names_that_differ_in_case_only_are_refused(form: Format) -> None:
    [violation] = violations(table({form.publish: "true"}, {"k": "INT", "a": "INT", "A": "INT"}))
    assert "'a', 'A'" in violation.message


def test_iceberg_has_no_time_of_milliseconds_but_takes_any_name() -> None:
    [violation] = violations(table(IN_ICEBERG, {"k": "INT", "a b": "INT", "at": "TIME"}))
    assert (violation.code, violation.pointer) == ("not_in_iceberg", "/options/iceberg.publish")
    assert "'at' cannot be published as Iceberg: Iceberg has no type for TIME" in violation.message


@pytest.mark.parametrize("form", Format)
def test_an_interval_without_publication_is_refused_but_not_one_that_was_turned_off(form: Format) -> None:
    [violation] = violations(table({form.interval: "5 min"}))
    assert violation.code == "missing_option"
    compile_plan(table({form.interval: "5 min", form.publish: "false"}))


@pytest.mark.parametrize("interval", ["0 s", "999 ms", "1"])
@pytest.mark.parametrize("form", Format)
def test_an_interval_that_leaves_no_pause_is_refused(form: Format, interval: str) -> None:
    [violation] = violations(table({form.publish: "true", form.interval: interval}))
    assert (violation.code, violation.pointer) == ("out_of_range", f"/options/{form.interval}")
    compile_plan(table({form.publish: "true", form.interval: "1 s"}))


@pytest.mark.parametrize("types", [DELTA_TYPES, ICEBERG_TYPES], ids=["delta", "iceberg"])
def test_every_kind_of_type_has_a_type_in_the_format_or_is_refused(types: Mapping[Kind, object]) -> None:
    assert types.keys() == set(Kind)
    assert [kind for kind, of_kind in types.items() if of_kind is None] == [Kind.TIME]


def test_places_in_an_iceberg_schema_have_the_field_ids_of_the_files() -> None:
    columns = {"k": "BIGINT", "m": "MAP<INT, ROW<y DECIMAL(5, 2), z ARRAY<TIMESTAMP(3)>>>"}
    schema = table(IN_ICEBERG, columns)
    _, of_map = iceberg_schema(schema)["fields"]
    in_file = arrow_field(schema.by_name["m"])
    key, value = in_file.type.key_field, in_file.type.item_field
    assert (of_map["id"], of_map["type"]["key-id"], of_map["type"]["value-id"]) == (
        field_id(in_file),
        field_id(key),
        field_id(value),
    )
    decimal, times = of_map["type"]["value"]["fields"]
    assert (decimal["type"], times["type"]["element"]) == ("decimal(5, 2)", "timestamp")
    assert [decimal["id"], times["id"]] == [field_id(one) for one in value.type]
    assert times["type"]["element-id"] == field_id(value.type.field("z").type.value_field)


def test_the_schema_says_every_visible_column_in_order() -> None:
    columns = {"k": "BIGINT", "d": "DECIMAL(5, 2)", "m": "MAP<INT, ROW<y TIMESTAMP(3)>>", "s": "MULTISET<STRING>"}
    found = {field["name"]: field["type"] for field in delta_schema(table(PUBLISHED, columns))["fields"]}
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
