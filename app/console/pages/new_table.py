"""Make a table: of SQL, of a schema in JSON, of a sample of its records, or of a form of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from app.console.pages.new_columns import BEGINNING, columns_context, columns_sent, lines_sent
from app.console.parts.curl import database_path
from app.console.parts.words import segment
from app.console.site.visits import Page, Visit
from app.core.access import Role
from app.core.errors import AlreadyExists, Conflict, Invalid, KeyfoldError, NotFound
from app.http.kinds import status_of
from app.services.shared.pages import PageRequest
from app.services.tables.column_forms import ColumnForm
from app.services.tables.databases import create_database, list_databases
from app.services.tables.ddl import create_declared, declared_tables
from app.services.tables.drafts import Draft, DraftKind, Verdict, body_of, judged
from app.services.tables.guesses import Guess, guessed
from app.services.tables.tables import create_table

NEW_PATH: Final = "/console/new"
SAMPLE: Final = "sample"
COLUMNS: Final = "columns"
_WRITTEN: Final = (DraftKind.SQL.value, DraftKind.JSON.value)
# Most databases that the form offers; any other can be typed.
_MOST_DATABASES: Final = 200
_REPAIR: Final = "repair-"
_BEGINNINGS: Final = {
    DraftKind.SQL.value: """CREATE TABLE orders (
  id      BIGINT,
  edited  TIMESTAMP(3), status STRING, city STRING,
  booked  TIMESTAMP(3), paid   DECIMAL(10, 2),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'merge-engine' = 'partial-update',
  'fields.edited.sequence-group' = 'status,city',
  'fields.booked.sequence-group' = 'paid',
  'record.absent-columns' = 'unchanged'
)""",
    DraftKind.JSON.value: """{
  "fields": [
    {"name": "id", "type": "BIGINT NOT NULL"},
    {"name": "note", "type": "STRING"}
  ],
  "primaryKeys": ["id"],
  "options": {"merge-engine": "deduplicate"}
}""",
    SAMPLE: """{"id": 7, "edited": "2026-03-01T10:05:00", "status": "packed", "city": "Lyon"}
{"id": 7, "booked": "2026-03-01T10:01:00", "paid": "25.00"}""",
    COLUMNS: "",
}


@dataclass(frozen=True)
class _Form:
    """The content of the form; ``kind`` is a ``DraftKind``, a sample, or columns."""

    kind: str
    database: str
    name: str
    text: str

    @property
    def draft(self) -> Draft:
        """The draft to check."""
        return Draft(DraftKind(self.kind), self.database, self.text, self.name)


def show_form(visit: Visit) -> Response:
    """Show the form, with something to begin with."""
    kind = visit.param("kind", DraftKind.SQL.value)
    kind = kind if kind in _BEGINNINGS else DraftKind.SQL.value
    known = _databases(visit)
    # Of several none is chosen in advance: a table in the wrong one is found late.
    database = visit.param("database") or (known[0] if len(known) == 1 else "" if known else "shop")
    return _page(visit, _Form(kind, database, "orders", _BEGINNINGS[kind]))


def check_draft(visit: Visit) -> Response:
    """Return the warnings and faults of the draft, while it is typed."""
    form = _sent(visit)
    verdict = _verdict(visit, form)
    return visit.page("parts/verdict.html", verdict=verdict, form=form, curls=_curls(visit, form, verdict))


def show_examples(visit: Visit) -> Response:
    """Show what the function of each column does, while the form is filled in."""
    lines = lines_sent(visit.form, visit.parts.settings.catalog_bounds.table)
    return visit.page("new/column_examples.html", lines=lines)


def send_form(visit: Visit) -> Response:
    """Check, mend or make the tables of the form, or guess one from a sample."""
    form, action = _sent(visit), visit.form.get("action", "")
    if form.kind == SAMPLE:
        return _guess(visit, form)
    if form.kind == COLUMNS:
        return _fill_in(visit, form, columns_sent(form.name, visit.form), action)
    if action == "make":
        return _make(visit, form)
    if action.startswith(_REPAIR):
        form = replace(form, text=_mended(visit, form, action.removeprefix(_REPAIR)))
    return _page(visit, form)


def _sent(visit: Visit) -> _Form:
    fields = {name: visit.form.get(name, "") for name in ("kind", "database", "name", "text")}
    fields["kind"] = fields["kind"] if fields["kind"] in _BEGINNINGS else DraftKind.SQL.value
    fields["text"] = fields["text"].replace("\r\n", "\n")  # as forms send the ends of lines
    return _Form(fields["kind"], fields["database"].strip(), fields["name"].strip(), fields["text"])


def _verdict(visit: Visit, form: _Form) -> Verdict | None:
    return None if form.kind not in _WRITTEN else judged(form.draft, visit.parts.settings.catalog_bounds)


def _page(
    visit: Visit,
    form: _Form,
    *,
    guess: Guess | None = None,
    columns: ColumnForm = BEGINNING,
    error: KeyfoldError | None = None,
) -> Response:
    known, verdict = _databases(visit), _verdict(visit, form)
    return visit.page(
        "new/table.html",
        HTTPStatus.OK if error is None else status_of(error),
        form=form,
        databases=known,
        verdict=verdict,
        guess=guess,
        error=error,
        curls=_curls(visit, form, verdict),
        **(columns_context(columns, visit.parts.settings.catalog_bounds.table) if form.kind == COLUMNS else {}),
    )


def _databases(visit: Visit) -> Sequence[str]:
    with visit.parts.database.reading() as repository:
        return list_databases(repository, PageRequest(_MOST_DATABASES), None, visit.grant.scope.shown_databases).items


def _curls(visit: Visit, form: _Form, verdict: Verdict | None) -> list[str]:
    """Return the commands that create the table of the form; none if it has faults."""
    if verdict is None or verdict.faults:
        return []
    made = visit.curl("POST", "/v1/catalog/databases", {"name": form.database})
    if form.kind == DraftKind.SQL:
        return [made, visit.curl("POST", database_path(form.database, "/tables:fromDdl"), {"ddl": form.text})]
    # The schema as it was understood: the text may hold anything else, however deep.
    schema = verdict.tables[0].schema.to_json()
    body = {"identifier": {"database": form.database, "object": form.name}, "schema": schema}
    return [made, visit.curl("POST", database_path(form.database, "/tables"), body)]


def _guess(visit: Visit, form: _Form) -> Response:
    try:
        guess = guessed(form.name or "orders", form.text)
    except Invalid as invalid:
        return _page(visit, form, error=invalid)
    return _page(visit, replace(form, kind=DraftKind.SQL.value, text=guess.ddl), guess=guess)


def _fill_in(visit: Visit, form: _Form, columns: ColumnForm, action: str) -> Response:
    """Return the table as SQL, to check and create; the form again if it has faults, or if more lines are requested."""
    if action == "more":
        return _page(visit, form, columns=columns)
    try:
        ddl = columns.ddl(visit.parts.settings.catalog_bounds.table)
    except Invalid as invalid:
        return _page(visit, form, columns=columns, error=invalid)
    return _page(visit, replace(form, kind=DraftKind.SQL.value, text=ddl))


def _mended(visit: Visit, form: _Form, place: str) -> str:
    """Return the text with one of its faults repaired; unchanged if that fault is gone."""
    faults = judged(form.draft, visit.parts.settings.catalog_bounds).faults
    number = int(place) if place.isascii() and place.isdigit() and len(place) < 6 else len(faults)
    repair = faults[number].repair if number < len(faults) else None
    return form.text if repair is None else repair.text


def _make(visit: Visit, form: _Form) -> Response:
    """Makes the database, if it is not there, and the tables; shows the form again where that is not possible."""
    try:
        names = _made(visit, form)
    except (Invalid, AlreadyExists, Conflict, NotFound) as error:
        return _page(visit, form, error=error)
    return visit.go(f"/console/tables/{segment(form.database)}/{segment(names[0])}")


def _made(visit: Visit, form: _Form) -> list[str]:
    """Return the names of the tables, which are made. Raise ``Invalid``, ``AlreadyExists``, ``Conflict``,
    ``Forbidden``.
    """
    bounds, by = visit.parts.settings.catalog_bounds, visit.grant.name
    if form.kind == DraftKind.SQL:
        declared = declared_tables(form.database, form.text, None, bounds)
        names = [declared_table.name for declared_table in declared]
        _make_room(visit, form.database, names)
        create_declared(visit.parts.database, form.database, declared, by, bounds)
        visit.note("createTablesFromDdl", database=form.database, tables=names)
        return names
    body = body_of(form.draft)
    _make_room(visit, form.database, [form.name])
    create_table(visit.parts.database, form.database, form.name, body, by, bounds)
    visit.note("createTable", database=form.database, table=form.name)
    return [form.name]


def _make_room(visit: Visit, database: str, names: Sequence[str]) -> None:
    """The database, if it is not there. Raise ``Forbidden``, ``Invalid``, ``Conflict``."""
    for name in names:
        visit.grant.check_table(Role.ADMIN, database, name)
    with visit.parts.database.reading() as repository:
        if list(repository.databases.names(limit=1, among=[database])):
            return
    visit.grant.check_database(Role.ADMIN, database)
    with suppress(AlreadyExists):
        with visit.parts.database.transaction() as repository:
            create_database(repository, database, {}, visit.grant.name, visit.parts.settings.catalog_bounds)
        visit.note("createDatabase", database=database)


PAGES: Final = (
    Page("GET", NEW_PATH, show_form, Role.READ),
    Page("POST", NEW_PATH, send_form, Role.READ),
    Page("POST", f"{NEW_PATH}/check", check_draft, Role.READ, reads=True),
    Page("POST", f"{NEW_PATH}/examples", show_examples, Role.READ, reads=True),
)
