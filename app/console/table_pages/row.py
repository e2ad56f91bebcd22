"""A row: its value, its history step by step, its earlier states, and the effect of trial records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.console.parts.curl import table_path
from app.console.parts.lanes import cells
from app.console.parts.row_values import row_values
from app.console.parts.words import placed
from app.console.site.tabs import address_of_table
from app.console.site.visits import Page, Visit, new_once
from app.console.table_pages.batches import sent_batch
from app.core.access import Role
from app.core.errors import ErrorCode, Invalid, KeyfoldError, NotFound
from app.core.plan.explaining.story_lanes import StoryLane
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import KIND_MEMBER
from app.core.table.history import Table
from app.core.table.records import RowKind
from app.http.kinds import status_of
from app.services.batches.row_edits import ordering_now
from app.services.bodies.json_bodies import json_text, parse_json
from app.services.explaining.explain import Question
from app.services.explaining.explained import ExplainedRow, ExplainedStep, RecordPlace
from app.services.explaining.row_views import RowView, Trial, typed, view_no_row, view_row
from app.services.tables.rules import table_rules

STEPS: Final = 30
MOST_TRIED: Final = 50  # records: the page has for each an address with all others
_SENT: Final = "row/row_sent.html"
_FIRST: Final = "start"
_VALUE, _NULL = "value.", "null."  # of the fields of the form, before the name of the column


@dataclass(frozen=True)
class Stop:
    """A moment to go back to."""

    words: str
    url: str
    current: bool


@dataclass(frozen=True)
class _RowAddress:
    """The address of the page, with its query."""

    path: str
    keys: Sequence[str]
    tried: Sequence[str]
    as_of: str | None
    step: str | None
    before: str | None
    sent: str

    def step_url(self, place: str) -> str:
        """Return the address of the row after a step that is shown."""
        return self.url(step=place, **({"before": self.before} if self.before else {}))

    def url(self, **more: Any) -> str:
        """Return the address of the same row, with the parameters of ``more``."""
        return f"{self.path}?{urlencode({'key': self.keys, **more}, doseq=True)}"


def show_row(visit: Visit) -> Response:
    """Show one row; where there is no such key, what is wrong, and a form that asks for another."""
    address = _address(visit)
    parts = visit.parts
    with parts.database.reading() as repository:
        table = repository.tables.get(visit.names["database"], visit.names["table"])
        if not address.keys:
            return _ask_for_key(visit, table, address, None)
        if "add" in visit.request.query_params:
            return visit.go(address.url(**{"try": [*address.tried, _written(visit, table)]}) + "#what-if")
    tried = [_record(text) for text in address.tried]
    question = Question(address.keys, None, address.as_of, STEPS, address.before)
    try:
        with parts.scans.place():
            view = view_row(parts.database, parts.images, table, question, tried)
    except (NotFound, Invalid) as error:
        if error.code == ErrorCode.ROW_NOT_FOUND and address.as_of is None:
            return _no_row(visit, table, address, error)
        if error.code == ErrorCode.ROW_NOT_FOUND or any(
            violation.pointer.startswith("/key") for violation in error.violations
        ):
            return _ask_for_key(visit, table, address, error)
        raise
    return visit.page("row/row.html", **_context(visit, table, address, view))


def _address(visit: Visit) -> _RowAddress:
    query = visit.request.query_params
    path = address_of_table(visit, "/row")
    tried = query.getlist("try")
    if len(tried) + ("add" in query) > MOST_TRIED:
        raise Invalid(f"at most {MOST_TRIED} records are tried at once: open the row with fewer of try=")
    return _RowAddress(
        path,
        query.getlist("key"),
        tried,
        query.get("asOf"),
        query.get("step"),
        query.get("before"),
        visit.param("sent"),
    )


def _no_row(visit: Visit, table: Table, address: _RowAddress, error: KeyfoldError) -> Response:
    """Return the page of a key without records, on which trial records are possible."""
    tried = [_record(text) for text in address.tried]
    view = view_no_row(visit.parts.database, visit.parts.images, table, address.keys, tried)
    return _ask_for_key(
        visit, table, address, error, row=None, **_what_if(visit, table, address, view.trial, view.lanes)
    )


def _what_if(
    visit: Visit, table: Table, address: _RowAddress, trial: Trial | None, lanes: Sequence[StoryLane]
) -> dict[str, Any]:
    """Return the template's values for the form that tries records."""
    tried_by = None
    if trial and not trial.error:  # what was refused may be of any shape
        path = table_path(table.database, table.name, "/rows:simulate")
        tried_by = visit.curl("POST", path, {"records": trial.records})
    return {
        "trial": trial,
        "lanes": lanes,
        "tries": _tries(address, trial, lanes) if trial else [],
        "kinds": [kind.text for kind in RowKind],
        "tried_by": tried_by,
        "may_change": visit.may(Role.WRITE, table.database, table.name),
    }


def _ask_for_key(
    visit: Visit, table: Table, address: _RowAddress, error: KeyfoldError | None, **what_if: Any
) -> Response:
    given = [*address.keys, *[""] * len(table.schema.primary_key)]
    return visit.page(
        "row/row_key.html",
        200 if error is None else status_of(error),
        table=table,
        path=address.path,
        fields=[*zip(table.schema.key_columns, given, strict=False)],
        error=error,
        address=address,
        what_if=bool(what_if),
        **what_if,
    )


def _written(visit: Visit, table: Table) -> str:
    """Return the record that the form says: a field that is empty is left out of it."""
    query = visit.request.query_params
    record: dict[str, Any] = {}
    if query.get("kind", "+I") != "+I":
        record[KIND_MEMBER] = query["kind"]
    for column in table.schema.value_columns:
        text = query.get(_VALUE + column.name, "")
        if query.get(_NULL + column.name):
            record[column.name] = None
        elif text:
            record[column.name] = typed(column, text)
    return json_text(record, indent=0)


def _record(text: str) -> dict[str, Any]:
    try:
        record = parse_json(text.encode())
    except Invalid as error:
        raise Invalid(f"try={text[:100]!r} is no JSON: {error.message}") from error
    if not isinstance(record, dict):
        raise Invalid(f"try={text[:100]!r} is no record: send a JSON object of columns")
    return record


def _context(visit: Visit, table: Table, address: _RowAddress, view: RowView) -> dict[str, Any]:
    steps, row, changed = _until(address, view.then)
    path = table_path(table.database, table.name)
    keys = urlencode({"key": address.keys}, doseq=True)
    now = address.as_of is None and address.step is None
    return {
        "table": table,
        "address": address,
        "then": view.then,
        "now": now,
        "row": row,
        "changed": changed,
        "values": row_values(row or {}, view.then.key, view.then.columns),
        "sources": address.step is None,
        "steps": [(step, cells(view.lanes, step.columns), _place_of_step(step)) for step in steps],
        "places": {_place_of_step(step) for step in steps},
        "place_of": place_of,
        "stops": _stops(address, view),
        "key": ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in view.then.key.items()),
        **_what_if(visit, table, address, view.trial if now else None, view.lanes),
        "staged": view.staged and now and view.merged is not None,
        "unmerged": view.staged and now and view.merged is None,
        "merged": view.merged,
        **_sent(visit, table, address),
        **_deleting(visit, table, address, row if now else None),
        "explained_by": visit.curl("GET", f"{path}/rows:explain?{_with_time(keys, address)}"),
        "read_by": visit.curl("GET", f"{path}/rows?{keys}&{_version(address, view)}"),
    }


def _deleting(visit: Visit, table: Table, address: _RowAddress, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the template's values for the form that deletes the row; empty if there is no row, or the visitor may not
    write.
    """
    if row is None or not visit.may(Role.WRITE, table.database, table.name):
        return {"deletes": None}
    path = table_path(table.database, table.name, f"/rows?{urlencode({'key': address.keys}, doseq=True)}")
    return {
        "deletes": next(kind for kind in table_rules(table.schema).kinds if kind.kind == RowKind.DELETE.text),
        "once": new_once(),
        "deleted_by": visit.curl("DELETE", path, ordering_now(compile_plan(table.schema), row) or None),
    }


def _sent(visit: Visit, table: Table, address: _RowAddress) -> dict[str, Any]:
    """Return the template's values for the batch that a form sent."""
    batch = sent_batch(visit, table.id, address.sent)
    context = {"sent": batch, "address": address, "batches": address_of_table(visit, "/batches")}
    return {**context, "digest": visit.digest(_SENT, **context) if batch else ""}


def show_sent(visit: Visit) -> Response:
    """Show the batch that a form sent; this part is polled."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(visit.names["database"], visit.names["table"])
    return visit.fragment(_SENT, **{**_sent(visit, table, _address(visit)), "digest": ""})


def _with_time(keys: str, address: _RowAddress) -> str:
    return keys if address.as_of is None else f"{keys}&{urlencode({'asOf': address.as_of})}"


def _version(address: _RowAddress, view: RowView) -> str:
    return "consistency=latest" if address.as_of is None else f"snapshot={view.then.snapshot}"


def place_of(record: RecordPlace) -> str:
    """Return the name of a record in addresses."""
    return f"{record.number}.{record.position}"


def _place_of_step(step: ExplainedStep) -> str:
    """Return the same of a step; nothing of an event."""
    return "" if step.record is None else place_of(step.record)


def _until(
    address: _RowAddress, explained: ExplainedRow
) -> tuple[Sequence[ExplainedStep], Mapping[str, Any] | None, set[str]]:
    """Return the steps up to the one in the address, the row after it, and what it changed. Raise ``NotFound``."""
    if address.step is None:
        return explained.steps, explained.row, set()
    if address.step == _FIRST:
        return [], explained.start.row, set()
    places = [_place_of_step(step) for step in explained.steps]
    if address.step not in places:
        raise NotFound(f"there is no step {address.step[:50]!r} of this row (any more): open the row without step=")
    last = places.index(address.step)
    step = explained.steps[last]
    row = {**explained.key, **{column.column: column.after for column in step.columns}} if step.exists else None
    changed = {column.column for column in step.columns if repr(column.before) != repr(column.after)}
    return explained.steps[: last + 1], row, changed


def _stops(address: _RowAddress, view: RowView) -> list[Stop]:
    """Return the moments of the row: before its first step, after each record, in each snapshot, and now."""
    stops = [Stop(f"before these: {view.now.start.words}", address.step_url(_FIRST), address.step == _FIRST)]
    steps = view.now.steps
    for number, step in enumerate(steps):
        place = _place_of_step(step)
        if place:
            words = f"after {placed(step.record)}" if step.record else ""
            stops.append(Stop(words, address.step_url(place), address.step == place))
        following = steps[number + 1].snapshot if number + 1 < len(steps) else None
        if step.snapshot in view.snapshots and following != step.snapshot:
            here = address.as_of is not None and view.then.snapshot == step.snapshot
            stops.append(Stop(f"in snapshot {step.snapshot}", address.url(asOf=step.snapshot), here))
    stops.append(Stop("now", address.url(), address.as_of is None and address.step is None))
    return stops


def _tries(address: _RowAddress, trial: Trial, lanes: Sequence[StoryLane]) -> list[dict[str, Any]]:
    """Return the records that are tried, each with what it would do, and the address without it."""
    steps = [*trial.steps]
    tries = []
    for number, text in enumerate(address.tried):
        step = steps[number] if number < len(steps) else None
        others = [*address.tried[:number], *address.tried[number + 1 :]]
        tries.append(
            {
                "record": text,
                "step": step,
                "cells": cells(lanes, step.columns) if step else [],
                "without": address.url(**({"try": others} if others else {})) + "#what-if",
            }
        )
    return tries


PAGES: Final = (
    Page("GET", "/console/tables/{database}/{table}/row", show_row),
    Page("GET", "/console/tables/{database}/{table}/row/sent", show_sent, whole=False),
)
