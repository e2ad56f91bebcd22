"""A row: its value, how it came to that step by step, as it was before, and what records would do to it."""

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
class _Asked:
    """What the address of the page asks for."""

    path: str
    keys: Sequence[str]
    tried: Sequence[str]
    as_of: str | None
    step: str | None
    before: str | None
    sent: str

    def step_url(self, place: str) -> str:
        """The address of the row after a step that is shown."""
        return self.url(step=place, **({"before": self.before} if self.before else {}))

    def url(self, **more: Any) -> str:
        """The address of the same row, with what ``more`` asks."""
        return f"{self.path}?{urlencode({'key': self.keys, **more}, doseq=True)}"


def show_row(visit: Visit) -> Response:
    """The page of one row; where there is no such key, what is wrong, and a form that asks for another."""
    asked = _asked(visit)
    parts = visit.parts
    with parts.database.reading() as repository:
        table = repository.tables.get(visit.names["database"], visit.names["table"])
        if not asked.keys:
            return _ask_for_key(visit, table, asked, None)
        if "add" in visit.request.query_params:
            return visit.go(asked.url(**{"try": [*asked.tried, _written(visit, table)]}) + "#what-if")
    tried = [_record(text) for text in asked.tried]
    question = Question(asked.keys, None, asked.as_of, STEPS, asked.before)
    try:
        with parts.scans.place():
            view = view_row(parts.database, parts.images, table, question, tried)
    except (NotFound, Invalid) as error:
        if error.code == ErrorCode.ROW_NOT_FOUND and asked.as_of is None:
            return _no_row(visit, table, asked, error)
        if error.code == ErrorCode.ROW_NOT_FOUND or any(one.pointer.startswith("/key") for one in error.violations):
            return _ask_for_key(visit, table, asked, error)
        raise
    return visit.page("row/row.html", **_told(visit, table, asked, view))


def _asked(visit: Visit) -> _Asked:
    query = visit.request.query_params
    path = address_of_table(visit, "/row")
    tried = query.getlist("try")
    if len(tried) + ("add" in query) > MOST_TRIED:
        raise Invalid(f"at most {MOST_TRIED} records are tried at once: open the row with fewer of try=")
    return _Asked(
        path,
        query.getlist("key"),
        tried,
        query.get("asOf"),
        query.get("step"),
        query.get("before"),
        visit.asked("sent"),
    )


def _no_row(visit: Visit, table: Table, asked: _Asked, error: KeyfoldError) -> Response:
    """Nothing is known of the key; what records would do to it can be tried all the same."""
    tried = [_record(text) for text in asked.tried]
    view = view_no_row(visit.parts.database, visit.parts.images, table, asked.keys, tried)
    return _ask_for_key(visit, table, asked, error, row=None, **_what_if(visit, table, asked, view.trial, view.lanes))


def _what_if(
    visit: Visit, table: Table, asked: _Asked, trial: Trial | None, lanes: Sequence[StoryLane]
) -> dict[str, Any]:
    """What the form that tries records shows."""
    tried_by = None
    if trial and not trial.error:  # what was refused may be of any shape
        path = table_path(table.database, table.name, "/rows:simulate")
        tried_by = visit.curl("POST", path, {"records": trial.records})
    return {
        "trial": trial,
        "lanes": lanes,
        "tries": _tries(asked, trial, lanes) if trial else [],
        "kinds": [kind.text for kind in RowKind],
        "tried_by": tried_by,
        "may_change": visit.may(Role.WRITE, table.database, table.name),
    }


def _ask_for_key(visit: Visit, table: Table, asked: _Asked, error: KeyfoldError | None, **what_if: Any) -> Response:
    given = [*asked.keys, *[""] * len(table.schema.primary_key)]
    return visit.page(
        "row/row_key.html",
        200 if error is None else status_of(error),
        table=table,
        path=asked.path,
        fields=[*zip(table.schema.key_columns, given, strict=False)],
        error=error,
        asked=asked,
        what_if=bool(what_if),
        **what_if,
    )


def _written(visit: Visit, table: Table) -> str:
    """The record that the form says: a field that is empty is left out of it."""
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


def _told(visit: Visit, table: Table, asked: _Asked, view: RowView) -> dict[str, Any]:
    steps, row, changed = _until(asked, view.then)
    path = table_path(table.database, table.name)
    keys = urlencode({"key": asked.keys}, doseq=True)
    now = asked.as_of is None and asked.step is None
    return {
        "table": table,
        "asked": asked,
        "then": view.then,
        "now": now,
        "row": row,
        "changed": changed,
        "values": row_values(row or {}, view.then.key, view.then.columns),
        "sources": asked.step is None,
        "steps": [(step, cells(view.lanes, step.columns), _place_of_step(step)) for step in steps],
        "places": {_place_of_step(step) for step in steps},
        "place_of": place_of,
        "stops": _stops(asked, view),
        "key": ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in view.then.key.items()),
        **_what_if(visit, table, asked, view.trial if now else None, view.lanes),
        "staged": view.staged and now and view.merged is not None,
        "unmerged": view.staged and now and view.merged is None,
        "merged": view.merged,
        **_sent(visit, table, asked),
        **_deleting(visit, table, asked, row if now else None),
        "explained_by": visit.curl("GET", f"{path}/rows:explain?{_with_time(keys, asked)}"),
        "read_by": visit.curl("GET", f"{path}/rows?{keys}&{_version(asked, view)}"),
    }


def _deleting(visit: Visit, table: Table, asked: _Asked, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the form that deletes the row shows; nothing where there is none, or the visitor may not write."""
    if row is None or not visit.may(Role.WRITE, table.database, table.name):
        return {"deletes": None}
    path = table_path(table.database, table.name, f"/rows?{urlencode({'key': asked.keys}, doseq=True)}")
    return {
        "deletes": next(kind for kind in table_rules(table.schema).kinds if kind.kind == RowKind.DELETE.text),
        "once": new_once(),
        "deleted_by": visit.curl("DELETE", path, ordering_now(compile_plan(table.schema), row) or None),
    }


def _sent(visit: Visit, table: Table, asked: _Asked) -> dict[str, Any]:
    """What became of the record of a form."""
    batch = sent_batch(visit, table.id, asked.sent)
    told = {"sent": batch, "asked": asked, "batches": address_of_table(visit, "/batches")}
    return {**told, "digest": visit.digest(_SENT, **told) if batch else ""}


def show_sent(visit: Visit) -> Response:
    """The same, looked up again and again."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(visit.names["database"], visit.names["table"])
    return visit.fragment(_SENT, **{**_sent(visit, table, _asked(visit)), "digest": ""})


def _with_time(keys: str, asked: _Asked) -> str:
    return keys if asked.as_of is None else f"{keys}&{urlencode({'asOf': asked.as_of})}"


def _version(asked: _Asked, view: RowView) -> str:
    return "consistency=latest" if asked.as_of is None else f"snapshot={view.then.snapshot}"


def place_of(record: RecordPlace) -> str:
    """What a record is called in addresses."""
    return f"{record.number}.{record.position}"


def _place_of_step(step: ExplainedStep) -> str:
    """The same of a step; nothing of an event."""
    return "" if step.record is None else place_of(step.record)


def _until(asked: _Asked, told: ExplainedRow) -> tuple[Sequence[ExplainedStep], Mapping[str, Any] | None, set[str]]:
    """The steps up to the one that is asked for, the row after it, and what it changed. Raises ``NotFound``."""
    if asked.step is None:
        return told.steps, told.row, set()
    if asked.step == _FIRST:
        return [], told.start.row, set()
    places = [_place_of_step(step) for step in told.steps]
    if asked.step not in places:
        raise NotFound(f"there is no step {asked.step[:50]!r} of this row (any more): open the row without step=")
    last = places.index(asked.step)
    step = told.steps[last]
    row = {**told.key, **{one.column: one.after for one in step.columns}} if step.exists else None
    changed = {one.column for one in step.columns if repr(one.before) != repr(one.after)}
    return told.steps[: last + 1], row, changed


def _stops(asked: _Asked, view: RowView) -> list[Stop]:
    """The moments of the row: before its first step, after each record, in each snapshot that has it, and now."""
    stops = [Stop(f"before these: {view.now.start.words}", asked.step_url(_FIRST), asked.step == _FIRST)]
    steps = view.now.steps
    for number, step in enumerate(steps):
        place = _place_of_step(step)
        if place:
            words = f"after {placed(step.record)}" if step.record else ""
            stops.append(Stop(words, asked.step_url(place), asked.step == place))
        following = steps[number + 1].snapshot if number + 1 < len(steps) else None
        if step.snapshot in view.snapshots and following != step.snapshot:
            here = asked.as_of is not None and view.then.snapshot == step.snapshot
            stops.append(Stop(f"in snapshot {step.snapshot}", asked.url(asOf=step.snapshot), here))
    stops.append(Stop("now", asked.url(), asked.as_of is None and asked.step is None))
    return stops


def _tries(asked: _Asked, trial: Trial, lanes: Sequence[StoryLane]) -> list[dict[str, Any]]:
    """The records that are tried, each with what it would do, and the address without it."""
    steps = [*trial.steps]
    told = []
    for number, text in enumerate(asked.tried):
        step = steps[number] if number < len(steps) else None
        others = [*asked.tried[:number], *asked.tried[number + 1 :]]
        told.append(
            {
                "record": text,
                "step": step,
                "cells": cells(lanes, step.columns) if step else [],
                "without": asked.url(**({"try": others} if others else {})) + "#what-if",
            }
        )
    return told


PAGES: Final = (
    Page("GET", "/console/tables/{database}/{table}/row", show_row),
    Page("GET", "/console/tables/{database}/{table}/row/sent", show_sent, whole=False),
)
