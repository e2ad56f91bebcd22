"""A DEFAULT of the row kind field supplies the row kind, whatever the engine does with defaults."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.errors import Invalid
from app.core.plan.merging.fold import finish, fold
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.records import RowKind
from tests.core.plan.records.test_record_decoder import (
    AGGREGATION,
    FIRST_ROW,
    PARTIAL,
    TABLE,
    Options,
    records_of,
    with_defaults,
)

ANY_ENGINE = [{}, PARTIAL | {"partial-update.remove-record-on-delete": "true"}, AGGREGATION]


@pytest.mark.parametrize("engine", ANY_ENGINE)
@pytest.mark.parametrize("raw", [{"k": 1}, {"k": 1, "c": None}])
@pytest.mark.parametrize("text", ["-D", "'-d'"])
def test_a_default_of_the_row_kind_field_supplies_the_kind(engine: Options, raw: dict[str, Any], text: str) -> None:
    made = with_defaults(engine | {"rowkind.field": "c"}, TABLE, {"c": text})
    assert RecordDecoder(made).decode([raw]).kinds == [RowKind.DELETE]
    assert RecordDecoder(made).decode([raw | {"c": "+U"}]).kinds == [RowKind.UPDATE_AFTER]


def test_first_row_takes_the_row_kind_from_a_default() -> None:
    made = with_defaults(FIRST_ROW | {"rowkind.field": "c"}, TABLE, {"c": "+U"})
    assert RecordDecoder(made).decode([{"k": 1}]).kinds == [RowKind.UPDATE_AFTER]


@pytest.mark.parametrize("engine", [PARTIAL, AGGREGATION])
def test_a_row_kind_that_a_default_supplied_is_not_merged_but_shown(engine: Options) -> None:
    made = with_defaults(engine | {"rowkind.field": "c"}, TABLE, {"c": "+I"})
    decoded = RecordDecoder(made).decode([{"k": 1, "c": "+U"}, {"k": 1}])
    assert (decoded.kinds, decoded.columns["c"]) == ([RowKind.UPDATE_AFTER, RowKind.INSERT], ["+U", None])
    assert (finish(made, fold(made, records_of(decoded)) or {}) or {})["c"] == "+U"
    alone = RecordDecoder(made).decode([{"k": 1}])
    assert (finish(made, fold(made, records_of(alone)) or {}) or {})["c"] == "+I"


@pytest.mark.parametrize("engine", [PARTIAL, AGGREGATION])
def test_a_default_value_that_is_only_shown_supplies_no_row_kind(engine: Options) -> None:
    made = with_defaults(engine | {"rowkind.field": "c", "fields.c.default-value": "+I"}, TABLE, {})
    with pytest.raises(Invalid) as raised:
        RecordDecoder(made).decode([{"k": 1}])
    assert [fault.code for fault in raised.value.violations] == ["bad_row_kind"]


def test_a_default_that_is_no_row_kind_is_told_of_each_record_that_needs_it() -> None:
    made = with_defaults(PARTIAL | {"rowkind.field": "c"}, TABLE, {"c": "insert"})
    with pytest.raises(Invalid, match="1 fault") as raised:
        RecordDecoder(made).decode([{"k": 1, "c": "+I"}, {"k": 1}])
    assert [fault.pointer for fault in raised.value.violations] == ["/records/1/c"]
