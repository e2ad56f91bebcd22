"""The conformance cases, each batch merged by the kernel, with compactions between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.schema import TableSchema
from app.core.types.parser import parse_type
from tests.acceptance.test_cases import CASES, Case, assert_answers, may_be_refused
from tests.case_values import from_json, to_json
from tests.kernel.expected import visible
from tests.site import Site


def plan_of(case: Case) -> MergePlan:
    fields = [
        {"name": c["name"], "type": c["type"] if c["nullable"] else f"{c['type']} NOT NULL"} for c in case["columns"]
    ]
    partition_keys = case.get("partition_by", [])
    body = {"fields": fields, "primaryKeys": case["primary_key"], "partitionKeys": partition_keys}
    return compile_plan(TableSchema.from_json({**body, "options": case["options"]}))


def merged(site: Site, case: Case, batch: list[dict[str, Any]]) -> bool:
    """Whether the batch was taken and merged."""
    types = [(column["name"], parse_type(column["type"])) for column in case["columns"]]
    records = [
        {name: to_json(t, v) for (name, t), v in zip(types, one["row"], strict=True)} | {"_kind": one["kind"]}
        for one in batch
    ]
    try:
        staged = site.stage_decoded(RecordDecoder(site.plan).decode(records))
    except Invalid:
        return False
    before = list(site.runs)
    site.merge_staged([staged])
    if len(site.runs) > len(before) and site.overflow() is not None:
        site.runs = before
        return False
    return True


def rows_of(site: Site, case: Case) -> list[list[Any]]:
    columns = [(column, parse_type(column["type"])) for column in case["columns"]]
    by_name = site.plan.schema.by_name
    return [
        [from_json(t, by_name[c["name"]].type.encoder((row or {})[c["name"]])) for c, t in columns]
        for row in visible(site.rows()).values()
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_merged_as_paimon_or_as_decided(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    try:
        site = Site(tmp_path, plan_of(case))
    except Invalid:
        assert may_be_refused(name, case)
        return
    answers: list[Any] = []
    for number, batch in enumerate(case["batches"]):
        answers.append(rows_of(site, case) if merged(site, case, batch) else "refused")
        if number % 2 and not site.plan.schema.partition_keys:
            site.compact(0, len(site.runs))
    assert_answers(name, case, answers)
