"""Records are read all or nothing: each fault by row, column and pointer; what an engine refuses; what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ErrorCode, Invalid, Violation
from app.core.plan.merging.fold import finish, fold
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.core.table.records import KINDS_BY_TEXT, Record, RowKind
from app.core.table.schema import TableSchema
from tests.core.tables import plan

Options = Mapping[str, str]
COLUMNS = {"k": "INT", "a": "TINYINT", "c": "VARCHAR(3)", "n": "INT NOT NULL", "r": "ROW<x ARRAY<INT>>", "a/~": "INT"}
PARTIAL = {"merge-engine": "partial-update"}
AGGREGATION = {"merge-engine": "aggregation"}
FIRST_ROW = {"merge-engine": "first-row"}
KINDS = ("+I", "-U", "+U", "-D")


def decode(records: list[Any], options: Options | None = None, columns: Mapping[str, str] = COLUMNS) -> DecodedRecords:
    return RecordDecoder(plan(options, columns)).decode(records)


def refused(records: list[Any], options: Options | None = None, columns: Mapping[str, str] = COLUMNS) -> Invalid:
    with pytest.raises(Invalid) as caught:
        decode(records, options, columns)
    assert caught.value.code is ErrorCode.INVALID_RECORDS
    assert all(violation.fix and violation.message for violation in caught.value.violations)
    return caught.value


def faults(*args: Any) -> list[tuple[str, str | None, str]]:
    return [(v.pointer, v.column, v.code) for v in refused(*args).violations]


def test_records_are_decoded_column_by_column_in_their_order() -> None:
    records = [
        {"k": 1, "n": 5, "a": -128, "c": "äöü", "r": {"x": [1, None]}, "a/~": 0},
        {"n": 6, "k": 2, "_kind": "-D"},
    ]
    decoded = decode(records)
    assert decoded.columns == {
        "k": [1, 2],
        "a": [-128, None],
        "c": ["äöü", None],
        "n": [5, 6],
        "r": [{"x": [1, None]}, None],
        "a/~": [0, None],
    }
    assert decoded.kinds == [RowKind.INSERT, RowKind.DELETE]
    assert (decoded.positions, decoded.ignored, len(decoded)) == ([0, 1], 0, 2)


GOOD = {"k": 1, "n": 1}


@pytest.mark.parametrize(
    ("raw", "pointer", "column", "code"),
    [
        *[(raw, "/records/0", None, "not_an_object") for raw in (None, 5, "x", [], [GOOD], True)],
        ({"n": 1}, "/records/0/k", "k", "missing_column"),
        ({"k": None, "n": 1}, "/records/0/k", "k", "null_in_not_null"),
        ({"k": 1}, "/records/0/n", "n", "missing_column"),
        ({"k": 1, "n": None}, "/records/0/n", "n", "null_in_not_null"),
        (GOOD | {"a": 128}, "/records/0/a", "a", "out_of_range"),
        (GOOD | {"a": "one"}, "/records/0/a", "a", "wrong_type"),
        (GOOD | {"a": True}, "/records/0/a", "a", "wrong_type"),
        (GOOD | {"c": "abcd"}, "/records/0/c", "c", "too_long"),
        (GOOD | {"c": "\ud800"}, "/records/0/c", "c", "not_unicode"),
        (GOOD | {"a/~": "x"}, "/records/0/a~1~0", "a/~", "wrong_type"),
        (GOOD | {"r": {"x": [1, "y"]}}, "/records/0/r/x/1", "r", "wrong_type"),
        (GOOD | {"r": {"z/": 1}}, "/records/0/r/z~1", "r", "unknown_field"),
        (GOOD | {"zz": 1}, "/records/0/zz", "zz", "unknown_column"),
        (GOOD | {"K": 1}, "/records/0/K", "K", "unknown_column"),
        *[
            (GOOD | {"_kind": kind}, "/records/0/_kind", "_kind", "bad_row_kind")
            for kind in (None, "", "+i", " +I", "I", 0, [])
        ],
    ],
)
def test_each_kind_of_fault_names_its_column_and_points_to_it(
    raw: Any, pointer: str, column: str | None, code: str
) -> None:
    assert faults([raw]) == [(pointer, column, code)]


def test_every_fault_of_every_record_is_reported_with_its_row() -> None:
    records = [GOOD, {"k": "x", "a": 300}, GOOD, 7, GOOD | {"_kind": "?", "zz": 1}]
    found = refused(records)
    assert [(v.row, v.column, v.code) for v in found.violations] == [
        (1, "k", "wrong_type"),
        (1, "a", "out_of_range"),
        (1, "n", "missing_column"),
        (3, None, "not_an_object"),
        (4, "zz", "unknown_column"),
        (4, "_kind", "bad_row_kind"),
    ]
    assert found.total_violations == 6
    assert "6 fault(s)" in found.message


def test_unknown_columns_are_reported_in_the_order_in_which_they_were_sent() -> None:
    names = [f"z{i}" for i in range(20)]
    assert [v.column for v in refused([GOOD | dict.fromkeys(names)]).violations] == names


def test_the_first_hundred_faults_are_reported_and_all_are_counted() -> None:
    found = refused([{"k": i, "n": "x", "a": 1000} for i in range(75)])
    assert len(found.violations) == REPORTED_VIOLATIONS == 100
    assert found.total_violations == 150
    assert found.violations[-1].row == 49


def test_nothing_of_a_request_with_one_bad_record_is_kept_and_the_next_request_is_not_touched() -> None:
    decoder = RecordDecoder(plan(None, COLUMNS))
    with pytest.raises(Invalid):
        decoder.decode([GOOD, {"k": 2}])
    assert decoder.decode([GOOD]).columns["k"] == [1]
    assert len(decoder.decode([])) == 0


def test_records_may_come_from_any_iterable_and_are_not_changed() -> None:
    raw = GOOD | {"r": {"x": [1]}}
    assert len(RecordDecoder(plan(None, COLUMNS)).decode(iter([raw]))) == 1
    assert raw == GOOD | {"r": {"x": [1]}}


@pytest.mark.parametrize("text", KINDS)
def test_the_member_kind_says_the_row_kind(text: str) -> None:
    assert decode([GOOD | {"_kind": text}]).kinds == [KINDS_BY_TEXT[text]]


ROW_KIND = {"rowkind.field": "c"}


@pytest.mark.parametrize("text", [*KINDS, "+i", "-d", "+u", "-u"])
def test_the_row_kind_field_says_the_row_kind_in_any_case_and_stays_a_column(text: str) -> None:
    decoded = decode([GOOD | {"c": text, "_kind": "ignored"}], ROW_KIND)
    assert decoded.kinds == [KINDS_BY_TEXT[text.upper()]]
    assert decoded.columns["c"] == [text]


@pytest.mark.parametrize("raw", [{}, *({"c": text} for text in (None, "", "I", " +I", "+I "))])
def test_a_row_kind_field_that_says_no_row_kind_is_refused(raw: dict[str, Any]) -> None:
    assert faults([GOOD | raw], ROW_KIND) == [("/records/0/c", "c", "bad_row_kind")]


@pytest.mark.parametrize("raw", [{"c": 5}, {"c": "+Iabc"}, {"c": None}, {}])
def test_a_row_kind_field_with_a_fault_of_its_own_is_reported_once(raw: dict[str, Any]) -> None:
    columns = COLUMNS | {"c": "VARCHAR(3) NOT NULL"}
    assert [column for _, column, _ in faults([GOOD | raw], ROW_KIND, columns)] == ["c"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, ["+I", "-U", "+U", "-D"]),
        ({"ignore-update-before": "true"}, ["+I", "+U", "-D"]),
        ({"ignore-delete": "true"}, ["+I", "+U"]),
        ({"deduplicate.ignore-delete": "true"}, ["+I", "+U"]),
        (FIRST_ROW | {"first-row.ignore-delete": "true"}, ["+I", "+U"]),
        (PARTIAL | {"partial-update.ignore-delete": "true"}, ["+I", "+U"]),
        (AGGREGATION | {"ignore-delete": "true", "ignore-update-before": "true"}, ["+I", "+U"]),
    ],
)
def test_kinds_that_the_table_drops_are_counted_as_ignored_and_keep_the_positions_of_the_others(
    options: Options, kept: list[str]
) -> None:
    decoded = decode([GOOD | {"_kind": kind} for kind in KINDS], options)
    assert [RowKind(kind).text for kind in decoded.kinds] == kept
    assert decoded.positions == [i for i, kind in enumerate(KINDS) if kind in kept]
    assert decoded.ignored == 4 - len(kept)
    assert len(decoded.columns["k"]) == len(kept)


def test_a_record_that_will_be_dropped_is_still_checked() -> None:
    assert faults([GOOD | {"a": 300, "_kind": "-D"}], {"ignore-delete": "true"}) == [
        ("/records/0/a", "a", "out_of_range")
    ]


GROUPED = PARTIAL | {"fields.n.sequence-group": "a"}
TABLE = {"k": "INT", "a": "INT", "n": "INT", "c": "STRING"}


@pytest.mark.parametrize(
    ("options", "record", "kinds", "fix"),
    [
        (FIRST_ROW, {}, ("-U", "-D"), "ignore-delete"),
        (FIRST_ROW | {"ignore-update-before": "true"}, {}, ("-D",), "ignore-delete"),
        (PARTIAL, {}, ("-U", "-D"), "sequence-group"),
        (PARTIAL, {}, ("-U", "-D"), "remove-record-on-delete"),
        (AGGREGATION | {"fields.a.aggregate-function": "max"}, {"a": 1}, ("-U", "-D"), "fields.a.ignore-retract"),
        (AGGREGATION | {"fields.default-aggregate-function": "min"}, {}, ("-U", "-D"), "fields.a.ignore-retract"),
        (
            AGGREGATION | {"aggregation.remove-record-on-delete": "true", "fields.a.aggregate-function": "max"},
            {},
            ("-U",),
            "fields.a.ignore-retract",
        ),
        (GROUPED | {"fields.a.aggregate-function": "max"}, {"n": 1}, ("-U", "-D"), "fields.a.ignore-retract"),
    ],
)
def test_a_retract_that_the_table_can_never_fold_is_refused_with_the_option_that_allows_it(
    options: Options, record: dict[str, Any], kinds: tuple[str, ...], fix: str
) -> None:
    for kind in ("-U", "-D"):
        raw = [{"k": 0}, {"k": 1, "_kind": kind} | record]
        if kind not in kinds:
            assert decode(raw, options, TABLE)
            continue
        (found,) = refused(raw, options, TABLE).violations
        assert (found.row, found.pointer, found.code) == (1, "/records/1/_kind", "refused_row_kind")
        assert fix in found.fix
        assert kind in found.message


@pytest.mark.parametrize(
    ("options", "record"),
    [
        ({}, {}),
        ({"sequence.field": "n"}, {}),
        (PARTIAL | {"partial-update.remove-record-on-delete": "true"}, {}),
        (GROUPED, {"n": 1}),
        (GROUPED | {"fields.a.aggregate-function": "max"}, {"n": None}),
        (GROUPED | {"fields.a.aggregate-function": "max", "fields.a.ignore-retract": "true"}, {"n": 1}),
        (GROUPED | {"fields.a.aggregate-function": "sum"}, {"n": 1}),
        (AGGREGATION, {}),
        (AGGREGATION | {"fields.a.aggregate-function": "sum"}, {"a": 1}),
        (AGGREGATION | {"fields.a.aggregate-function": "max", "fields.a.ignore-retract": "true"}, {"a": 1}),
        (FIRST_ROW | {"ignore-delete": "true"}, {}),
        (PARTIAL | {"ignore-delete": "true"}, {}),
    ],
)
def test_a_retract_that_the_table_can_fold_is_accepted(options: Options, record: dict[str, Any]) -> None:
    for kind in ("-U", "-D"):
        decoded = decode([{"k": 1, "_kind": kind} | record], options, TABLE)
        assert len(decoded) + decoded.ignored == 1


def test_a_refused_row_kind_points_to_the_column_that_says_it() -> None:
    found = faults([{"k": 1, "c": "-D"}], FIRST_ROW | ROW_KIND, TABLE)
    assert found == [("/records/0/c", "c", "refused_row_kind")]


def with_defaults(options: Options, columns: Mapping[str, str], defaults: Mapping[str, str]) -> MergePlan:
    """A plan whose columns have DEFAULTs."""
    fields = [
        {"name": n, "type": t} | ({"defaultValue": defaults[n]} if n in defaults else {}) for n, t in columns.items()
    ]
    return compile_plan(TableSchema.from_json({"fields": fields, "primaryKeys": ["k"], "options": dict(options)}))


@pytest.mark.parametrize("engine", [{}, FIRST_ROW, {"sequence.field": "n"}])
@pytest.mark.parametrize("raw", [{"k": 1}, {"k": 1, "a": None, "c": None}])
def test_deduplicate_and_first_row_take_defaults_when_a_record_is_posted(engine: Options, raw: dict[str, Any]) -> None:
    made = with_defaults(engine | {"fields.c.default-value": "'it'"}, TABLE, {"a": "5"})
    decoded = RecordDecoder(made).decode([raw])
    assert (decoded.columns["a"], decoded.columns["c"], decoded.columns["n"]) == ([5], ["it"], [None])
    assert finish(made, fold(made, records_of(decoded)) or {}) == {"k": 1, "a": 5, "n": None, "c": "it"}


@pytest.mark.parametrize("engine", [PARTIAL, AGGREGATION, PARTIAL | {"fields.n.sequence-group": "a"}])
def test_partial_update_and_aggregation_take_defaults_when_a_row_is_read(engine: Options) -> None:
    made = with_defaults(engine | {"fields.c.default-value": "it"}, TABLE, {"a": "5"})
    first = RecordDecoder(made).decode([{"k": 1, "n": 1}])
    assert (first.columns["a"], first.columns["c"]) == ([None], [None]), "merging never sees a default"
    assert finish(made, fold(made, records_of(first)) or {}) == {"k": 1, "a": 5, "n": 1, "c": "it"}
    later = RecordDecoder(made).decode([{"k": 1, "n": 1, "a": 9, "c": "x"}, {"k": 1}])
    assert finish(made, fold(made, records_of(later)) or {}) == {"k": 1, "a": 9, "n": 1, "c": "x"}


def records_of(decoded: DecodedRecords) -> list[Record]:
    return [
        Record(RowKind(kind), {name: column[i] for name, column in decoded.columns.items()}, i)
        for i, kind in enumerate(decoded.kinds)
    ]


def test_a_default_satisfies_not_null() -> None:
    made = with_defaults({}, {"k": "INT", "a": "INT NOT NULL"}, {"a": "5"})
    assert RecordDecoder(made).decode([{"k": 1}]).columns["a"] == [5]


def test_a_default_does_not_excuse_an_illegal_value() -> None:
    made = with_defaults({}, TABLE, {"a": "5"})
    with pytest.raises(Invalid):
        RecordDecoder(made).decode([{"k": 1, "a": "x"}])


@pytest.mark.parametrize("kind", ["INT", "DOUBLE", "FLOAT", "STRING"])
def test_a_key_column_takes_its_default_whatever_its_type(kind: str) -> None:
    made = with_defaults({}, {"k": kind, "a": "INT"}, {"k": "7"})
    (key,) = RecordDecoder(made).decode([{"a": 1}]).columns["k"]
    assert key in (7, "7")


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("raw", [0, -0.0, Decimal("-0.0"), Decimal(0)])
def test_a_zero_key_has_one_form(kind: str, raw: Any) -> None:
    decoded = decode([{"k": raw, "v": raw}], None, {"k": kind, "v": kind})
    assert str(decoded.columns["k"][0]) == "0.0"
    assert decoded.columns["v"] == [0.0]


def test_a_zero_that_is_no_key_keeps_its_sign() -> None:
    assert str(decode([{"k": 1, "v": Decimal("-0.0")}], None, {"k": "INT", "v": "DOUBLE"}).columns["v"][0]) == "-0.0"


PADDED = {"sequence.field": "s", "sequence.auto-padding": "row-kind-flag"}


@pytest.mark.parametrize(
    ("kind", "value"), [("INT", 5), ("STRING", "-12"), ("STRING", "+7"), ("DOUBLE", 1.5), ("DATE", "2024-01-31")]
)
def test_a_padded_sequence_is_never_null(kind: str, value: Any) -> None:
    columns = {"k": "INT", "s": kind}
    assert len(decode([{"k": 1, "s": value}], PADDED, columns)) == 1
    assert faults([{"k": 1, "s": None}], PADDED, columns) == [("/records/0/s", "s", "null_in_padded_sequence")]
    assert faults([{"k": 1}], PADDED, columns) == [("/records/0/s", "s", "null_in_padded_sequence")]


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "1e3", "--5", "+-5", "-", "+", "١", "²", "5-", "9" * 39])
def test_a_padded_text_is_a_whole_number(text: str) -> None:
    columns = {"k": "INT", "s": "STRING"}
    assert faults([{"k": 1, "s": text}], PADDED, columns) == [("/records/0/s", "s", "not_a_number")]


@given(st.text("+-0123456789 .e", max_size=5))
def test_a_padded_text_that_is_accepted_has_a_place_in_the_order(text: str) -> None:
    made = plan(PADDED, {"k": "INT", "s": "STRING"})
    try:
        decoded = RecordDecoder(made).decode([{"k": 1, "s": text}])
    except Invalid:
        return
    assert made.order.rank({"s": decoded.columns["s"][0]}, add=True)


@pytest.mark.parametrize("raw", [{"k": 1, "s": "abc"}, {"k": 1}])
def test_a_default_does_not_smuggle_in_what_cannot_be_padded(raw: dict[str, Any]) -> None:
    columns = {"k": "INT", "s": "STRING"}
    with pytest.raises(Invalid):
        RecordDecoder(with_defaults(PADDED, columns, {"s": "xyz"})).decode([raw])


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*COLUMNS, "_kind", "zz", "x"]), inner),
)


def _lead_into(records: list[Any], violation: Violation) -> bool:
    """Whether the pointer names a member of the request, or one that is missing from an object of the request."""
    *outer, last = violation.pointer.split("/")[2:]
    found: Any = records
    for segment in outer:
        name = segment.replace("~1", "/").replace("~0", "~")
        found = found[int(name)] if isinstance(found, list) else found[name]
    return isinstance(found, dict) or int(last) < len(found)


@given(st.lists(_ANYTHING, max_size=3))
def test_any_json_is_decoded_or_refused_with_pointers_that_lead_into_the_request(records: list[Any]) -> None:
    try:
        staged, found = len(decode(records)), ()
    except Invalid as error:
        staged, found = 0, error.violations
    assert found or staged == len(records)
    assert all(_lead_into(records, violation) for violation in found)
