"""Explanations of what came between the records of a row: changes of rules, rollbacks, partitions, compactions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.core.errors import ErrorCode, Invalid, NotFound
from app.core.plan.explaining.schema_words import NEW_RULES
from app.core.table.history import BatchState, Table
from app.services.explaining.explain import Question, explain_row
from app.services.explaining.explained import MOST_STEP_BYTES, ExplainedRow, StepKind
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.tables.partitions import drop_partitions
from app.services.tables.tables import alter_table
from app.services.upkeep.sweeps import expire_snapshots
from tests.catalog.builders import CATALOGS
from tests.services.builders import QUIET, SUM, back_to, compact, create_table, merge_staged, post

WIDE = ("shop", "wide")


def merge(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> None:
    for record in records:
        post(site.database, site.warehouse, record)
        merge_staged(site.database, site.warehouse, table.id)


def explain(site: MergeSite, images: Images, key: str = "1", **asked: Any) -> ExplainedRow:
    return explain_row(site.database, images, WIDE, Question([key], **asked))


def reported(explained: ExplainedRow) -> list[tuple[Any, ...]]:
    """Per step what it is, and what it did to the first column."""
    return [
        (step.what, *((column.before, column.after, column.reason) for column in step.columns[:1]))
        for step in explained.steps
    ]


def sources(explained: ExplainedRow) -> dict[str, Any]:
    return {column.column: [place.number for place in column.records] for column in explained.columns}


def test_staged_records_come_after_merged_ones_and_say_so(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 5})
    post(site.database, site.warehouse, {"id": 1, "n": 10}, {"id": 1, "n": 100})
    explained = explain(site, images)
    assert reported(explained) == [
        (StepKind.RECORD, (None, 1, "summed")),
        (StepKind.RECORD, (1, 11, "summed")),
        (StepKind.RECORD, (11, 111, "summed")),
    ]
    records = [step.record for step in explained.steps if step.record]
    assert [(record.number, record.position, record.state, record.snapshot) for record in records] == [
        (1, 0, BatchState.MERGED, 1),
        (3, 0, BatchState.STAGED, None),
        (3, 1, BatchState.STAGED, None),
    ]
    assert [record.merge_id is None for record in records] == [False, True, True]
    assert explained.row == {"id": 1, "n": 111}
    assert sources(explained) == {"n": [1, 3, 3]}
    assert explain(site, images, as_of="LATEST").row == {"id": 1, "n": 1}


def test_a_withdrawn_batch_is_in_no_explanation(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 1})
    withdrawn = post(site.database, site.warehouse, {"id": 1, "n": 10})
    with site.database.transaction() as repository:
        repository.batches.delete_staged(table.id, withdrawn.id)
    assert len(explain(site, images).steps) == 1


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_what_a_rollback_undid_is_listed_and_does_not_count(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 10}, {"id": 2, "n": 5}, {"id": 1, "n": 100})
    back_to(site, table, 2)
    merge(site, table, {"id": 1, "n": 1000})
    explained = explain(site, images)
    assert [step.what for step in explained.steps] == ["record", "record", "rollback", "record"]
    rollback = explained.steps[2]
    assert rollback.words == "rolled back to snapshot 2: 1 record of this key undone"
    assert [(one.number, one.snapshot) for one in rollback.undone] == [(4, 4)]
    assert explained.row == {"id": 1, "n": 1011}
    assert sources(explained) == {"n": [1, 2, 5]}
    assert explained.exact


def test_a_key_that_a_rollback_took_away_is_explained(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    merge(site, table, {"id": 2, "n": 1}, {"id": 1, "n": 10})
    back_to(site, table, 1)
    explained = explain(site, images)
    assert explained.row is None
    assert [step.what for step in explained.steps] == ["rollback"]
    assert [one.number for one in explained.steps[0].undone] == [2]


def test_other_rules_begin_with_the_row_that_was_shown(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 4}, {"id": 1, "n": 3})
    option = {"action": "setOption", "key": "fields.n.aggregate-function", "value": "max"}
    alter_table(site.database, WIDE, [option, {"action": "renameColumn", "fieldNames": ["n"], "newName": "m"}])
    merge(site, table, {"id": 1, "m": 5})
    explained = explain(site, images)
    assert [step.what for step in explained.steps] == ["record", "record", "schema", "record"]
    assert NEW_RULES in explained.steps[2].words
    assert "column n is called m" in explained.steps[2].words
    assert reported(explained)[1] == ("record", (4, 7, "summed"))
    assert explained.steps[1].columns[0].column == "m"
    assert explained.row == {"id": 1, "m": 7}
    assert sources(explained) == {"m": [1, 2]}
    assert explained.exact
    assert explain(site, images, as_of="1").row == {"id": 1, "n": 4}


def test_columns_that_were_dropped_and_added_are_told_of(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET)
    merge(site, table, {"id": 1, "n": 4})
    add = {"action": "addColumn", "fieldNames": ["m"], "dataType": "INT"}
    alter_table(site.database, WIDE, [add, {"action": "dropColumn", "fieldNames": ["n"]}])
    merge(site, table, {"id": 1, "m": 5})
    explained = explain(site, images)
    assert "column n was dropped; column m was added" in explained.steps[1].words
    assert [[column.column for column in step.columns] for step in explained.steps] == [[], [], ["m"]]
    assert sources(explained) == {"m": [2]}


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_dropped_partition_takes_its_rows_along(site: MergeSite, images: Images) -> None:
    columns, options = (("id", "BIGINT"), ("day", "STRING"), ("n", "INT")), QUIET | {"merge-engine": "partial-update"}
    table = create_table(site.database, options, columns=columns, key=("id", "day"), partitions=("day",))
    merge(site, table, {"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 2})
    drop_partitions(site.database, WIDE, [{"day": "a"}])
    merge(site, table, {"id": 1, "day": "a", "n": None})
    dropped, stays = (explain_row(site.database, images, WIDE, Question(["1", day])) for day in "ab")
    assert [(step.what, step.exists) for step in dropped.steps] == [
        ("record", True),
        ("partition-drop", False),
        ("record", True),
    ]
    assert dropped.row == {"id": 1, "day": "a", "n": None}
    assert sources(dropped) == {"n": []}
    assert dropped.exact
    assert [step.what for step in stays.steps] == ["record"]


FORGETS = QUIET | {"sequence.field": "n", "tombstone.time-retained": "0 s"}


def test_a_removed_row_that_a_compaction_forgot_is_told_of(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, FORGETS)
    merge(site, table, {"id": 1, "n": 5}, {"id": 1, "n": 6, "_kind": "-D"})
    compact(site, table)
    merge(site, table, {"id": 1, "n": 3})
    explained = explain(site, images)
    assert [(step.what, step.exists) for step in explained.steps] == [
        ("record", True),
        ("record", False),
        ("forgotten", False),
        ("record", True),
    ]
    assert explained.row == {"id": 1, "n": 3}
    assert sources(explained) == {"n": [3]}
    assert explained.exact


def test_what_cannot_be_told_any_more_is_one_state_and_never_wrong(site: MergeSite, images: Images) -> None:
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create_table(site.database, FORGETS | few)
    merge(site, table, {"id": 1, "n": 5}, {"id": 1, "n": 6, "_kind": "-D"})
    compact(site, table)
    merge(site, table, {"id": 1, "n": 3})
    expire_snapshots(site.database, site.warehouse, datetime.now(UTC) + timedelta(hours=2))
    explained = explain(site, images)
    assert explained.row == {"id": 1, "n": 3}
    assert not explained.exact
    assert "a compaction forgot" in (explained.inexact or "")
    merge(site, table, {"id": 1, "n": 4})
    explained = explain(site, images)
    assert (explained.exact, explained.start.snapshot, explained.start.row) == (True, 4, {"id": 1, "n": 3})
    assert "one state" in explained.start.words
    assert [step.record.number for step in explained.steps if step.record] == [4]
    assert sources(explained) == {"n": [4]}


def test_a_removed_row_is_explained_and_one_never_written_is_not(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET)
    merge(site, table, {"id": 1, "n": 5}, {"id": 1, "_kind": "-D"})
    compact(site, table)
    explained = explain(site, images)
    assert explained.row is None
    assert [(step.exists, step.record.kind) for step in explained.steps if step.record] == [(True, "+I"), (False, "-D")]
    assert explained.columns == []
    with pytest.raises(NotFound) as missing:
        explain(site, images, "2")
    assert missing.value.code is ErrorCode.ROW_NOT_FOUND


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_row_is_explained_as_of_a_snapshot_a_tag_or_a_time(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 10}, {"id": 1, "n": 100})
    with site.database.reading() as repository:
        times = [commit.committed_at for commit in repository.commits.every(table.id)]
    for as_of, total in ((str(2), 11), ("EARLIEST", 1), (times[1].isoformat(), 11), (times[0].isoformat(), 1)):
        explained = explain(site, images, as_of=as_of)
        assert (explained.row, explained.exact) == ({"id": 1, "n": total}, True)
    with pytest.raises(NotFound) as missing:
        explain(site, images, as_of=(times[0] - timedelta(seconds=1)).isoformat())
    assert missing.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
    for wrong in ("2026-03-01T10:00:00", "2026-03-41T10:00:00Z"):
        with pytest.raises(Invalid):
            explain(site, images, as_of=wrong)


def test_the_newest_records_are_reported_and_before_asks_for_the_others(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    post(site.database, site.warehouse, *({"id": 1, "n": n} for n in range(7)))
    merge_staged(site.database, site.warehouse, table.id)
    back_to(site, table, 1)
    seen, before, left_out = [], None, 99
    while left_out:
        page = explain(site, images, steps=3, before=before)
        assert page.row == {"id": 1, "n": 21}
        seen = [step.record.position if step.record else step.what.value for step in page.steps] + seen
        left_out, before = page.left_out, page.before
    assert seen == [*range(7), "rollback"]
    assert before is None
    with pytest.raises(Invalid):
        explain(site, images, before="9.9")


def test_an_answer_has_a_bound_and_always_a_step(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET, columns=(("id", "BIGINT"), ("text", "STRING")))
    size = MOST_STEP_BYTES // 2
    merge(site, table, *({"id": 1, "text": letter * size} for letter in "abc"))
    explained = explain(site, images)
    assert [step.record.number for step in explained.steps if step.record] == [3]
    assert (explained.left_out, explained.before) == (2, "3.0")
    assert [step.record.number for step in explain(site, images, before="3.0").steps if step.record] == [2]


def test_a_total_that_is_outside_its_type_for_a_while_is_told_so(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM)
    big = 2**63 - 1
    post(site.database, site.warehouse, {"id": 1, "n": big}, {"id": 1, "n": 1}, {"id": 1, "n": -2})
    merge_staged(site.database, site.warehouse, table.id)
    explained = explain(site, images)
    assert [step.columns[0].after for step in explained.steps] == [big, None, big - 1]
    assert "outside" in explained.steps[1].columns[0].reason
    assert explained.exact


def test_late_records_are_told_so(site: MergeSite, images: Images) -> None:
    group = {"merge-engine": "partial-update", "fields.at.sequence-group": "n,s", "fields.s.aggregate-function": "sum"}
    columns = (("id", "BIGINT"), ("at", "INT"), ("n", "INT"), ("s", "INT"))
    table = create_table(site.database, QUIET | group, columns=columns)
    merge(site, table, {"id": 1, "at": 5, "n": 1, "s": 1}, {"id": 1, "at": 3, "n": 2, "s": 2})
    explained = explain(site, images)
    late = explained.steps[1]
    assert [(column.column, column.late, column.ignored) for column in late.columns] == [
        ("at", True, True),
        ("n", True, True),
        ("s", True, False),
    ]
    assert (late.late, late.ignored) == (True, False)
    assert sources(explained) == {"at": [1], "n": [1], "s": [1, 2]}


def test_what_comes_late_to_a_row_that_was_removed_is_reported_by_its_place(site: MergeSite, images: Images) -> None:
    removes = {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true", "sequence.field": "n"}
    table = create_table(site.database, QUIET | removes)
    for n, kind in ((3, "+I"), (5, "-D"), (4, "+I"), (8, "+I"), (7, "-D"), (2, "-D")):
        merge(site, table, {"id": 1, "n": n, "_kind": kind})
    explained = explain(site, images)
    closed = "older than the removal of the row: ignored"
    assert [(step.columns[0].reason, step.exists, step.ignored) for step in explained.steps] == [
        ("taken", True, False),
        ("-D removes the row", False, False),
        (closed, False, True),
        ("taken", True, False),
        ("-D removes what sorts before it", True, False),
        (closed, True, True),
    ]
    assert (explained.row, sources(explained), explained.exact) == ({"id": 1, "n": 8}, {"n": [4]}, True)
