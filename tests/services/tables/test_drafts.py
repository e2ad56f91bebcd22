"""Tables that somebody writes: faults at their lines, repairs that mend, and types guessed from samples."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from app.core.errors import About, FaultCode, Invalid, Violation
from app.services.bodies.json_places import places_in
from app.services.tables.drafts import MOST_MENDED, MOST_READ_AGAIN, Draft, DraftKind, Verdict, judged
from app.services.tables.guesses import guessed
from app.services.tables.repairs import MOST_WORDS, repairs_of

WHOLE = """CREATE TABLE t (
  id BIGINT,
  seen TIMESTAMP(3), note STRING, total INT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'merge-engine' = 'partial-update',
  'fields.seen.sequence-group' = 'note,total',
  'fields.total.aggregate-function' = 'sum'
)"""


def of_sql(text: str) -> Verdict:
    return judged(Draft(DraftKind.SQL, "shop", text))


def test_a_draft_without_faults_tells_its_rules_and_warnings() -> None:
    verdict = of_sql(WHOLE)
    assert verdict.faults == ()
    assert [table.name for table in verdict.tables] == ["t"]
    assert [rule.column for rule in verdict.tables[0].rules.columns] == ["id", "seen", "note", "total"]
    assert "counts late records" in verdict.tables[0].warnings[0].message


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("'merge-engine'", "'merge-engin'", 6),
        ("partial-update", "partial-updat", 6),
        ("'sum'", "'sun'", 8),
        ("note STRING", "note STRNG", 3),
        ("(id) NOT", "(idd) NOT", 4),
        ("fields.total.aggregate-function", "fields.total.agregate-function", 8),
        ("note,total", "noet,total", 7),
    ],
)
def test_a_word_that_is_misspelled_is_reported_at_its_line_and_put_right(right: str, wrong: str, line: int) -> None:
    fault = next(fault for fault in of_sql(WHOLE.replace(right, wrong)).faults if fault.repair)
    assert fault.line == line
    assert "^" not in fault.message
    assert fault.repair.text == WHOLE


def test_of_a_long_text_few_repairs_are_tried() -> None:
    def repaired(columns: int) -> tuple[int, int]:
        wrong = ", ".join(f"c{n} STRNG" for n in range(columns))
        text = f"CREATE TABLE t (id BIGINT, {wrong}, PRIMARY KEY (id) NOT ENFORCED)"
        faults = of_sql(text).faults
        assert len(faults) == columns
        return sum(fault.repair is not None for fault in faults), MOST_READ_AGAIN // len(text)

    assert repaired(30)[0] == MOST_MENDED
    few, room = repaired(500)
    assert few == room == 6


def test_the_word_of_a_type_is_put_right_and_no_column_beside_it() -> None:
    columns = ", ".join(f"c{n} XQZ{n}" for n in range(40))
    faults = of_sql(f"CREATE TABLE t ({columns}, total ITN, PRIMARY KEY (c0) NOT ENFORCED)").faults
    assert {fault.repair.label for fault in faults[:MOST_MENDED] if fault.repair} == set()
    assert next(repairs_of("x ITN, y INT", _unknown_type(2))).text == "x INT, y INT"
    assert [*repairs_of("ZZZ, " * MOST_WORDS + "ITN", _unknown_type(0))] == []


def _unknown_type(offset: int) -> Violation:
    return Violation("/type", FaultCode.UNKNOWN_TYPE, "unknown type", about=About(offset=offset))


def test_an_option_that_mends_nothing_else_is_removed() -> None:
    more = WHOLE.replace("'sum'\n", "'sum',\n  'foo.bar' = '1'\n")
    fault = of_sql(more).faults[0]
    assert (fault.line, fault.repair is not None) == (9, True)
    assert fault.repair.label == "Remove the option foo.bar"
    assert of_sql(fault.repair.text).faults == ()


def test_a_table_without_key_gets_its_first_column() -> None:
    text = "CREATE TABLE t (\n  `my id` BIGINT, -- (no key)\n  note VARCHAR(10)\n)"
    repair = of_sql(text).faults[0].repair
    assert "PRIMARY KEY (`my id`) NOT ENFORCED" in repair.text
    assert of_sql(repair.text).faults == ()


@pytest.mark.parametrize("text", ["", "DROP TABLE t", "CREATE TABLE t (", "CREATE TABLE t (a INT) WITH ('x", "(" * 500])
def test_what_nothing_mends_has_no_repair(text: str) -> None:
    assert [fault.repair for fault in of_sql(text).faults][:1] == [None]


def test_faults_of_json_are_reported_at_their_lines() -> None:
    schema = {
        "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "INTT"}],
        "primaryKeys": ["id"],
        "options": {"merge-engine": "partial-updat"},
    }
    for body in (schema, {"identifier": {"database": "shop", "object": "t"}, "schema": schema}):
        text = json.dumps(body, indent=1)
        verdict = judged(Draft(DraftKind.JSON, "shop", text, "t"))
        lines = text.split("\n")
        found = {lines[(fault.line or 1) - 1].strip(): fault.repair for fault in verdict.faults}
        assert set(found) == {'"type": "INTT"', '"merge-engine": "partial-updat"'}
        assert all(repair is not None for repair in found.values())


@pytest.mark.parametrize("text", ["", "{", "[1]", "nul", '{"fields": 1}', '{"a": "\\', "[" * 2000])
def test_what_is_no_schema_is_a_fault_and_no_failure(text: str) -> None:
    assert judged(Draft(DraftKind.JSON, "shop", text, "t")).faults


def test_places_are_found_by_pointers_with_escapes() -> None:
    text = '{"a/b": [{"c~": 1}, 2], "d": {"e": null}}'
    places = places_in(text, ["/a~1b/0/c~0", "/a~1b/1", "/schema/d/e/f"])
    assert {pointer: text[place] for pointer, place in places.offsets.items()} == {
        "": "{",
        "/a~1b": "[",
        "/a~1b/0": "{",
        "/a~1b/0/c~0": "1",
        "/a~1b/1": "2",
        "/d": "{",
        "/d/e": "n",
    }
    assert places.nearest("/schema/d/e/f") == places.offsets["/d/e"]
    assert places.nearest("/identifier/object") is None


@pytest.mark.parametrize("hostile", ["[", "[0,", '{"a":', '{"' + "k" * 1000 + '": [0, '])
def test_of_a_hostile_text_no_more_is_kept_than_was_requested(hostile: str) -> None:
    text = '{"fields": [' + hostile * 5_000
    tracemalloc.start()
    places = places_in(text, ["/schema/fields/1/type"])
    kept = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept < 2**16
    assert places.offsets == {"": 0, "/fields": text.index("[")}


@pytest.mark.parametrize(
    ("values", "guess"),
    [
        (["true", "false"], "BOOLEAN"),
        (["1", "-5"], "BIGINT"),
        (["1", "18446744073709551616"], "DECIMAL(38, 0)"),
        (["1", "2.5"], "DOUBLE"),
        (['"4.90"', '"12.345"'], "DECIMAL(18, 3)"),
        (['"2026-03-01"'], "DATE"),
        (['"2026-13-01"'], "STRING"),
        (['"2026-03-01T10:00:00"', '"2026-03-01 10:00:00.123456"'], "TIMESTAMP(6)"),
        (['"2026-03-01T10:00:00Z"'], "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        (['"x"', "1"], "STRING"),
        (["null"], "STRING"),
        (["[1]", "[]"], "ARRAY<BIGINT>"),
        (['{"a": 1}', '{"b": "x"}'], "ROW<`a` BIGINT, `b` STRING>"),
    ],
)
def test_the_narrowest_type_that_takes_all_values_is_guessed(values: list[str], guess: str) -> None:
    lines = "\n".join(f'{{"id": {number}, "v": {value}}}' for number, value in enumerate(values))
    found = guessed("t", lines)
    assert [column.type for column in found.columns] == ["BIGINT", guess]
    assert of_sql(found.ddl).faults == ()


def test_the_key_is_what_is_called_one_or_differs_and_partial_records_are_a_partial_update() -> None:
    found = guessed("my orders", '{"note": "a", "order_id": 1}\n{"order_id": 1, "paid": "2.00"}')
    assert found.key == "order_id"
    assert "'merge-engine' = 'partial-update'" in found.ddl
    assert "'record.absent-columns' = 'unchanged'" in found.ddl
    table = of_sql(found.ddl).tables[0]
    assert (table.name, table.schema.primary_key) == ("my orders", ("order_id",))
    assert guessed("t", '[{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]').key == "b"


def test_hostile_names_are_quoted() -> None:
    name = "a`b\"c'd"
    found = guessed(name, json.dumps([{name: 1, "x": {name: [1]}}]))
    table = of_sql(found.ddl).tables[0]
    assert (table.name, [column.name for column in table.schema.columns]) == (name, [name, "x"])


@pytest.mark.parametrize("sample", ["", "[]", "[1]", "x", "{", "{}", '{"a": 1}\n{"a": }', "[" * 2000])
def test_what_is_no_sample_is_refused(sample: str) -> None:
    with pytest.raises(Invalid):
        guessed("t", sample)


@pytest.mark.parametrize("rows", [[{f"k{n}": 1 for n in range(1001)}], [{f"k{n}": 1} for n in range(1001)]])
def test_no_more_columns_are_guessed_than_a_guess_has_however_they_are_nested(rows: list[dict[str, int]]) -> None:
    for records in (rows, [{"id": 1, "a": rows}]):
        with pytest.raises(Invalid, match="more than 1000 columns"):
            guessed("t", json.dumps(records))


def test_a_table_that_is_broader_than_any_is_refused_before_it_is_written() -> None:
    broad = {f"c{n}": {f"k{m}": 1 for m in range(40)} for n in range(900)}
    with pytest.raises(Invalid, match="at most 2000 columns and fields"):
        guessed("t", json.dumps([{"id": 1} | broad]))


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"b":', "}"), ('[{"b":', "}]")])
def test_values_that_are_deeper_than_any_type_are_refused(opens: str, closes: str) -> None:
    with pytest.raises(Invalid, match="more than 50 levels deep; flatten"):
        guessed("t", '[{"id": 1, "a": ' + opens * 400 + "1" + closes * 400 + "}]")
    assert guessed("t", '[{"id": 1, "a": ' + opens * 24 + "1" + closes * 24 + "}]").key == "id"


def test_lines_of_a_sample_end_where_json_ends_them() -> None:
    lines = '{"id": 1, "v": "a\u2028b\x85c"}\n{"id": 2, "v": "x"}'
    assert (guessed("t", lines).records, guessed("t", lines).columns[1].example) == (2, '"a\u2028b\x85c"')


def test_an_example_is_the_value_as_it_was_sent() -> None:
    sample = '[{"id": 1, "v": 1.500, "w": {"a": [1e999]}, "s": "\\ud800"}]'
    assert [column.example for column in guessed("t", sample).columns] == ["1", "1.500", '{"a":[1E+999]}', '"\\ud800"']
