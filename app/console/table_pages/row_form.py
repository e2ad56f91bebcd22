"""The form that adds, changes or deletes a row: it stages a record of the row's key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response
from xxhash import xxh3_64_hexdigest

from app.console.parts.curl import table_path
from app.console.parts.field_words import field_words
from app.console.parts.lanes import Cell, cells
from app.console.parts.words import cut, shown
from app.console.site.tabs import address_of_table, key_texts
from app.console.site.visits import Page, Visit, new_once
from app.console.table_pages.table import table_name
from app.core.access import Role
from app.core.errors import KeyfoldError, Violation
from app.core.plan.explaining.explanations import column_words
from app.core.plan.explaining.story_lanes import story_lanes
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import Table
from app.core.table.records import RowKind
from app.core.table.schema import Column
from app.core.types.kinds import Family
from app.http.kinds import status_of
from app.http.uploads import ROW_FORM_PATHS, stage
from app.services.batches.batches import Upload
from app.services.batches.row_changes import RowChange, RowMethod
from app.services.batches.row_edits import can_be_null, folds_in, ordering_now, record_of, row_now
from app.services.bodies.formats import JSON
from app.services.bodies.json_bodies import json_text
from app.services.explaining.row_views import Trial, try_records, typed
from app.services.tables.rules import table_rules

NEW_PATH, EDIT_PATH, DELETE_PATH = ROW_FORM_PATHS
LONGEST_FIELD: Final = 20_000  # characters; a longer value is kept out of the form, and unchanged
LONGEST_COMMAND: Final = 20_000
_VALUE, _NULL, _EMPTY, _SEEN = "value.", "null.", "empty.", "seen."
# Values of the hidden field ``seen.*``, which says what a field showed: a digest of the text, or one of these.
_ABSENT, _WAS_NULL, _NOT_SHOWN, _FOLDS_IN = "-", "null", "kept", "folds"
# Characters that a form does not return unchanged from a browser.
_UNSHOWN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
EXAMPLES: Final[Mapping[Family, str]] = {
    Family.BOOLEAN: "true",
    Family.INTEGER: "7",
    Family.FLOATING: "2.5",
    Family.DECIMAL: "12.50",
    Family.TEXT: "",
    Family.BINARY: "base64",
    Family.DATE: "2026-03-01",
    Family.TIME: "10:05:00",
    Family.TIMESTAMP: "2026-03-01T10:05:00",
    Family.ARRAY: "JSON: [1, 2]",
    Family.MAP: 'JSON: {"a": 1}',
    Family.ROW: 'JSON: {"a": 1}',
}
"""By family of type: an example of how a value is written in the form."""


@dataclass(frozen=True)
class Field:
    """One column in the form.

    ``text`` is the content of the input. ``seen`` identifies the value that the input showed first: a digest, or one of
    the constants above. ``faults`` are the errors of the text. ``length`` (characters) is set if the value is too long
    to be shown; it is kept unless the user writes another. ``nullable`` means that a record can set the column to null.

    ``rule`` says how a written value is folded into the current one, ``now``; empty if it replaces it. ``does`` says
    the same in a few words, for functions that have such words.
    """

    column: Column
    text: str
    null: bool
    empty: bool
    seen: str
    faults: Sequence[Violation] = ()
    length: int | None = None
    rule: str = ""
    now: str = ""
    does: str = ""
    nullable: bool = True

    @property
    def family(self) -> Family:
        """The family of the column's type: it decides how a value is written."""
        return self.column.type.family

    @property
    def wide(self) -> bool:
        """Whether the input has several lines."""
        return self.family in (Family.TEXT, Family.ARRAY, Family.MAP, Family.ROW)

    @property
    def hint(self) -> str:
        """The placeholder of the empty input."""
        example = EXAMPLES[self.family]
        note = {_ABSENT: "left out", _WAS_NULL: "null"}.get(self.seen, "")
        if self.seen == _FOLDS_IN:
            note = f"{self.now or 'null'} now"
        if self.length is not None:
            note = f"{self.length} characters, kept unless you write here"
        return ", like ".join(part for part in (note, example) if part)


@dataclass(frozen=True)
class _Form:
    """The state of the page: the key (empty for a new row), the current row, and the form as it was sent, if it was."""

    table: Table
    plan: MergePlan
    texts: Sequence[str]
    key: Mapping[str, Any]
    row: Mapping[str, Any] | None
    kind: RowKind = RowKind.INSERT
    once: str = ""
    sent: Mapping[str, str] | None = None

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that can be written. An existing row keeps its key."""
        return self.table.schema.value_columns if self.texts else self.table.schema.columns

    def touched(self) -> dict[str, Any]:
        """Return the values of the columns that were edited in the form."""
        written = {column.name: _written(column, self.sent or {}) for column in self.columns}
        return {name: value for name, value in written.items() if value is not _UNTOUCHED}

    def record(self) -> dict[str, Any]:
        """Return the record that the edits make."""
        touched = self.touched()
        return record_of(self.plan, self.key, touched, self.kind, self.row)


_UNTOUCHED: Final = object()


def _written(column: Column, sent: Mapping[str, str]) -> Any:
    """Return the value written for ``column``; ``_UNTOUCHED`` if its input was not changed."""
    name = column.name
    if sent.get(_NULL + name):
        return None
    if sent.get(_EMPTY + name):
        return ""
    text, seen = _lines(sent.get(_VALUE + name, "")), sent.get(_SEEN + name, _ABSENT)
    if (text == "" and seen in (_ABSENT, _WAS_NULL, _NOT_SHOWN, _FOLDS_IN)) or _digest(text) == seen:
        return _UNTOUCHED
    if text == "" and column.type.family is not Family.TEXT:
        return None  # the user cleared the input
    return typed(column, text)


def _lines(text: str) -> str:
    """Return ``text`` with line feeds only: browsers send CR LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _digest(text: str) -> str:
    return xxh3_64_hexdigest(_lines(text).encode("utf-8", "replace"))


def show_new(visit: Visit) -> Response:
    """Show the form of a new row."""
    return _page(visit, _form(visit, []))


def show_edit(visit: Visit) -> Response:
    """Show the form of the row whose key is in the address, with its current values."""
    return _page(visit, _form(visit, visit.request.query_params.getlist("key")))


def send(visit: Visit) -> Response:
    """Try the record of the form, or stage it. Show errors at their fields."""
    form = _form(visit, visit.form.getlist("key"), visit.form)
    record, name = form.record(), table_name(visit)
    if visit.form.get("action") == "try":
        with visit.parts.database.reading() as repository:
            trial = try_records(repository, visit.parts.images, form.table, form.key, [record])
        return _page(visit, form, trial=trial, error=trial.error if trial else None)
    body = json_text({"records": [record]}).encode()
    upload = Upload(body, JSON, visit.once(xxh3_64_hexdigest(body)), sender=visit.grant.name)
    try:
        batch = stage(visit.parts, name, upload).batch
    except KeyfoldError as error:
        if status_of(error) >= 500:
            raise
        return _page(visit, form, error=error)
    texts = form.texts or key_texts(record[column] for column in form.table.schema.primary_key)
    return visit.go(_row_url(visit, texts, sent=batch.id))


def delete(visit: Visit) -> Response:
    """Stage a -D record of the row, with the values of its ordering columns: so it is not older than the row."""
    form = _form(visit, visit.form.getlist("key"), visit.form)
    body = json.dumps(ordering_now(form.plan, form.row)).encode()
    change = RowChange((*form.texts,), body, RowMethod.DELETE, visit.once("delete"), visit.grant.name)
    try:
        batch = stage(visit.parts, table_name(visit), change).batch
    except KeyfoldError as error:
        if status_of(error) >= 500:
            raise
        return _page(visit, _form(visit, form.texts), error=error)
    return visit.go(_row_url(visit, form.texts, sent=batch.id))


def _form(visit: Visit, texts: Sequence[str], sent: Mapping[str, str] | None = None) -> _Form:
    """Return the form of the row with the key ``texts``. Raise ``Invalid`` for texts that are no key."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        key, row = row_now(repository, visit.parts.images, table, texts) if texts else ({}, None)
    form = partial(_Form, table, compile_plan(table.schema), texts, key, row)
    if sent is None:
        return form(once=new_once())
    kind = next((kind for kind in RowKind if kind.text == sent.get("kind")), RowKind.INSERT)
    return form(kind, sent.get("once", ""), sent)


def _fields(form: _Form, faults: Sequence[Violation]) -> list[Field]:
    return [_field(form, column, [fault for fault in faults if fault.column == column.name]) for column in form.columns]


def _field(form: _Form, column: Column, faults: Sequence[Violation]) -> Field:
    name = column.name
    text, seen, length, now = "", _ABSENT, None, ""
    rule = column_words(form.plan, column) if folds_in(form.plan, name) else ""
    if form.row is not None and rule:
        now, seen = cut("" if form.row[name] is None else shown(form.row[name]), 60), _FOLDS_IN
    elif form.row is not None:
        value = form.row[name]
        text = "" if value is None else _lines(shown(value))
        seen = _WAS_NULL if value is None else _digest(text)
        if len(text) > LONGEST_FIELD or _UNSHOWN.search(text):
            text, seen, length = "", _NOT_SHOWN, len(text)
    does = field_words(form.table.schema, name, form.row[name]) if form.row is not None and form.kind.add else ""
    field = partial(Field, column, faults=faults, length=length, rule=rule, now=now, does=does)
    field = partial(field, nullable=column.nullable and can_be_null(form.plan, name))
    if form.sent is None:
        return field(text, False, False, seen)
    null, empty = bool(form.sent.get(_NULL + name)), bool(form.sent.get(_EMPTY + name))
    # Keep the digest of the first display: otherwise another user's change in between would count as an edit here.
    seen = form.sent.get(_SEEN + name, seen)
    return field(_lines(form.sent.get(_VALUE + name, "")), null, empty, seen)


def _page(visit: Visit, form: _Form, *, trial: Trial | None = None, error: KeyfoldError | None = None) -> Response:
    table, record = form.table, form.record()
    api = table_path(table.database, table.name)
    violations = error.violations if error else ()
    names = {column.name for column in form.columns}
    body = {"records": [record]}
    return visit.page(
        "row/row_form.html",
        200 if error is None else status_of(error),
        table=table,
        form=form,
        path=address_of_table(visit),
        key=", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in form.key.items()),
        fields=_fields(form, violations),
        error=error,
        others=[violation for violation in violations if violation.column not in names],
        kinds=[] if form.plan.row_kind_column else table_rules(table.schema).kinds,
        row_url=_row_url(visit, form.texts) if form.texts else None,
        trial=trial,
        cells=_trial_cells(form, trial),
        record=json_text(record, indent=0),
        sent_by=visit.curl("POST", f"{api}/batches", body) if len(json_text(body)) < LONGEST_COMMAND else None,
    )


def _trial_cells(form: _Form, trial: Trial | None) -> list[Cell]:
    """Return the effect of the trial on each column, lane by lane."""
    steps = trial.steps if trial else ()
    return [cell for step in steps for cell in cells(story_lanes(form.plan), step.columns)]


def _row_url(visit: Visit, texts: Sequence[str], **more: str) -> str:
    return address_of_table(visit, f"/row?{urlencode({'key': texts, **more}, doseq=True)}")


PAGES: Final = (
    Page("GET", NEW_PATH, show_new, Role.WRITE),
    Page("POST", NEW_PATH, send, Role.WRITE),
    Page("GET", EDIT_PATH, show_edit, Role.WRITE),
    Page("POST", EDIT_PATH, send, Role.WRITE),
    Page("POST", DELETE_PATH, delete, Role.WRITE),
)
