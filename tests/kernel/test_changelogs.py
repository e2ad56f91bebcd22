"""The changelogs that tasks write: replayed from its beginning it is the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.records import KINDS_BY_TEXT, RowKind
from tests import oracle
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change, TableCase
from tests.site import Change as Changed
from tests.site import Site

Replica = dict[tuple[Any, ...], Any]


def apply(table: TableCase, replica: Replica, changes: Sequence[Changed], *, minimal: bool) -> None:
    """Brings a copy of the table up to date, as a reader of the changelog does, and checks that it can."""
    before: dict[tuple[Any, ...], Any] = {}
    for kind, row in changes:
        key = tuple(row[name] for name in table.primary_key)
        meant = oracle.meant(table, row)
        if kind.add:
            assert key not in replica, f"{kind.text} of a row that is there"
            assert (kind is RowKind.UPDATE_AFTER) == (key in before), "-U comes before +U"
            if minimal and key in before:
                assert not row_is(table, before[key], meant), "nothing changed"
            replica[key] = meant
        else:
            before[key] = meant
            assert row_is(table, replica.pop(key), meant), f"{kind.text} of another row than is there"
    per_key = Counter(tuple(row[name] for name in table.primary_key) for _, row in changes)
    assert max(per_key.values(), default=0) <= 2, "several changes of a key in one commit collapse"


def row_is(table: TableCase, one: Any, other: Any) -> bool:
    """Maps have no order: their entries are compared without it."""
    types = dict(table.columns)
    return all(unordered(types[name], one[name]) == unordered(types[name], other[name]) for name in one)


def unordered(data_type: str, value: Any) -> Any:
    if value is None or "MAP<" not in data_type:
        return value
    if data_type.startswith("ARRAY"):
        return [unordered(data_type[6:-1], item) for item in value]
    return dict(value)


def has_sketches(table: TableCase) -> bool:
    """Sketches that mean the same may have other bytes: then a pair of equal meaning is emitted."""
    return any("sketch" in text for text in table.options.values())


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_the_changes_of_merges_and_full_compactions_replayed_give_the_table(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    site.ranges = random.choice((1, 3))
    history = random_history(random, table, retracts, 80)
    deduplicate = random.random() < 0.5
    minimal = deduplicate and not has_sketches(table)
    by_lookup: Replica = {}
    by_compaction: Replica = {}
    full = 0
    for piece in cut(random, len(history), 4):
        merged = len(site.runs)
        site.merge([history[piece]])
        changes = site.changes(site.runs[:merged], site.runs[merged:], row_deduplicate=deduplicate)
        apply(table, by_lookup, changes, minimal=minimal)
        touched = {tuple(c.values[name] for name in table.primary_key) for c in history[piece]}
        assert {tuple(row[name] for name in table.primary_key) for _, row in changes} <= touched
        assert equal(table, by_lookup, shown(table, site))
        if random.random() < 0.4:
            changes = site.changes(site.runs[:full], site.runs[full:], row_deduplicate=deduplicate)
            apply(table, by_compaction, changes, minimal=minimal)
            assert equal(table, by_compaction, shown(table, site))
            site.compact(0, len(site.runs))
            full = len(site.runs)
        elif len(site.runs) > full + 1 and random.random() < 0.5:
            site.compact(full, len(site.runs))
    assert equal(table, by_lookup, visible(expected_rows(table, history)))


def equal(table: TableCase, one: Replica, other: Replica) -> bool:
    assert one.keys() == other.keys()
    assert [key for key in one if not row_is(table, one[key], other[key])] == []
    return True


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "first-row"])
@settings(max_examples=examples(15))
@given(seed=st.integers(0, 2**32))
def test_the_input_changelog_is_every_record_by_key_and_merge_order(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    site.ranges = random.choice((1, 3))
    history = random_history(random, table, retracts, 60)
    kept = [change for change in history if KINDS_BY_TEXT[change.kind] not in site.plan.dropped]
    site.merge([history[piece] for piece in cut(random, len(history), 3)], keeps_input=True)
    found = by_key(table, [(kind.text, row) for kind, row in site.changelog(site.kept_changes)])
    posted = by_key(table, [(change.kind, change.values) for change in kept])
    for key, records in posted.items():
        order = oracle.merge_order(table, [Change(kind, values) for kind, values in records])
        assert found[key] == [records[place] for place in order]
    assert found.keys() == posted.keys()


def by_key(table: TableCase, records: Sequence[tuple[str, Any]]) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for kind, values in records:
        found.setdefault(tuple(values[name] for name in table.primary_key), []).append((kind, dict(values)))
    return found


DELETABLE = TableCase((("k", "INT"), ("v", "STRING")), ("k",))
# What a key holds before, what is written to it, and what is emitted: without and with row-deduplicate.
TABLE_OF_SECTION_8_3: list[tuple[str, list[str | None], list[str | None], list[str], list[str]]] = [
    ("absent, absent", [], [None], [], []),
    ("absent, absent again", ["a", None], [None, None], [], []),
    ("absent, present", [], ["a"], ["+I a"], ["+I a"]),
    ("absent, present after a delete", ["a", None], ["b"], ["+I b"], ["+I b"]),
    ("absent, present and gone again", [], ["a", None], [], []),
    ("present, absent", ["a"], [None], ["-D a"], ["-D a"]),
    ("present, absent after a change", ["a"], ["b", None], ["-D a"], ["-D a"]),
    ("present, equal", ["a"], ["a"], ["-U a", "+U a"], []),
    ("present, equal after a change", ["a"], ["b", "a"], ["-U a", "+U a"], []),
    ("present, equal after a delete", ["a"], [None, "a"], ["-U a", "+U a"], []),
    ("present, different", ["a"], ["b", "c"], ["-U a", "+U c"], ["-U a", "+U c"]),
    ("present, no new record", ["a"], [], [], []),
]
Emitted = dict[tuple[int, bool], list[str]]


def written(key: int, values: Sequence[str | None]) -> list[Change]:
    return [Change("-D" if value is None else "+I", {"k": key, "v": value}) for value in values]


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """What is emitted of each line, which is a key of one table, without and with row-deduplicate."""
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(DELETABLE)))
    for part in (1, 2):
        site.merge([[change for key, line in enumerate(TABLE_OF_SECTION_8_3) for change in written(key, line[part])]])
    found: Emitted = {}
    for deduplicate in (False, True):
        for kind, row in site.changes(site.runs[:1], site.runs[1:], row_deduplicate=deduplicate):
            found.setdefault((row["k"], deduplicate), []).append(f"{kind.text} {row['v']}")
    return found


@pytest.mark.parametrize("line", range(len(TABLE_OF_SECTION_8_3)), ids=[line[0] for line in TABLE_OF_SECTION_8_3])
def test_each_line_of_the_table_of_changes(line: int, emitted: Emitted) -> None:
    assert emitted.get((line, False), []) == TABLE_OF_SECTION_8_3[line][3]
    assert emitted.get((line, True), []) == TABLE_OF_SECTION_8_3[line][4]


NAN = float("nan")
EQUAL: list[tuple[str, Any, Any]] = [
    ("DOUBLE", NAN, NAN),
    ("FLOAT", 0.0, -0.0),
    ("INT", None, None),
    ("BYTES", b"\xff", b"\xff"),
    ("MAP<STRING, INT>", [("a", 1), ("b", None)], [("b", None), ("a", 1)]),
    ("MULTISET<INT>", [(2, 1), (1, 3)], [(1, 3), (2, 1)]),
    ("ARRAY<MAP<INT, DOUBLE>>", [[(1, NAN), (2, 0.5)], None], [[(2, 0.5), (1, NAN)], None]),
    ("ROW<`a b` MAP<INT, INT>, b INT>", {"a b": [(1, 1), (2, 2)], "b": None}, {"a b": [(2, 2), (1, 1)], "b": None}),
    ("MAP<INT, MAP<INT, INT>>", [(1, [(1, 1), (2, 2)])], [(1, [(2, 2), (1, 1)])]),
    ("MAP<ROW<a INT>, INT>", [({"a": 1}, 1), ({"a": 2}, 2)], [({"a": 2}, 2), ({"a": 1}, 1)]),
]
DIFFERENT: list[tuple[str, Any, Any]] = [
    ("DOUBLE", NAN, None),
    ("INT", None, 0),
    ("MAP<STRING, INT>", [], None),
    ("MAP<STRING, INT>", [("a", None)], []),
    ("MULTISET<INT>", [(1, 1)], [(1, 2)]),
    ("ARRAY<MAP<INT, INT>>", [None], [[]]),
    ("ROW<a MAP<INT, INT>, b INT>", {"a": None, "b": None}, None),
    ("ROW<a MAP<INT, INT>, b INT>", {"a": [(1, 1)], "b": None}, {"a": [(1, 1)], "b": 1}),
]
COMPARED = [*((*case, False) for case in EQUAL), *((*case, True) for case in DIFFERENT)]


@pytest.fixture(scope="module")
def changed_keys(tmp_path_factory: pytest.TempPathFactory) -> set[int]:
    """The cases of ``COMPARED``, each the key and a column of one table, whose rows count as changed."""
    columns = [(f"v{key}", case[0]) for key, case in enumerate(COMPARED)]
    table = TableCase((("k", "INT"), ("at", "INT"), *columns), ("k",))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    nothing = {name: None for name, _ in columns}
    for part in (1, 2):
        rows = [{"k": key, "at": part, **nothing, f"v{key}": case[part]} for key, case in enumerate(COMPARED)]
        site.merge([[Change("+I", row) for row in rows]])
    changes = site.changes(site.runs[:1], site.runs[1:], row_deduplicate=True, ignored=["at"])
    return {row["k"] for _, row in changes}


@pytest.mark.parametrize("key", range(len(COMPARED)), ids=[f"{case[0]} {case[1]}" for case in COMPARED])
def test_rows_are_compared_by_what_their_values_mean(key: int, changed_keys: set[int]) -> None:
    assert (key in changed_keys) is COMPARED[key][3]


def test_after_a_change_of_meaning_the_changelog_starts_from_the_rows_of_the_old_plan(tmp_path: Path) -> None:
    def plan(function: str) -> MergePlan:
        options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
        return compile_plan(schema_of(TableCase((("k", "INT"), ("v", "INT")), ("k",), options)))

    site = Site(tmp_path, plan("sum"))
    site.merge([[Change("+I", {"k": 1, "v": 1})]])
    site.merge([[Change("+I", {"k": 1, "v": 2})]])
    site.plan = plan("max")
    site.merge([[Change("+I", {"k": 1, "v": 5}), Change("+I", {"k": 2, "v": 7})]])
    changes = site.changes(site.runs[:2], site.runs[2:], row_deduplicate=False)
    reported = sorted((row["k"], kind.text, row["v"]) for kind, row in changes)
    assert reported == [(1, "+U", 5), (1, "-U", 3), (2, "+I", 7)]
