"""The settings of a table: its options and its columns, checked while they are written, and altered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from app.console.parts.option_fields import OptionField, OptionFilter, changes_of, grouped, option_fields
from app.console.site.tabs import address_of_table, of_table
from app.console.site.visits import Page, Visit
from app.console.table_pages.table import TABLE_PAGE, table_name, table_page
from app.core.access import Role
from app.core.errors import AlreadyExists, Conflict, FaultCode, Invalid, KeyfoldError, PreconditionFailed, Violation
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.table.history import Table
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS
from app.http.kinds import status_of
from app.services.tables.tables import alter_table, has_rows, version_of

MOST_OFFERED: Final = 20  # columns whose options are offered by name: each has a dozen
NEW: Final = "new"  # the place of the faults of the option that somebody wrote himself
_PAGE: Final = f"{TABLE_PAGE}/settings"
Change = Mapping[str, Any]
Faults = Mapping[object, Sequence[Violation]]


@dataclass(frozen=True)
class SettingsVerdict:
    """The faults and warnings of the changes of a form. ``faults`` are by the number of their field, by ``NEW``, or by
    None if they belong to no field. ``warnings`` are those that the table would have in addition to its present
    ones, of which there are ``present``.
    """

    changes: Sequence[Change]
    faults: Faults
    warnings: Sequence[Violation] = ()
    present: int = 0
    error: KeyfoldError | None = None

    @property
    def count(self) -> int:
        """Faults in all."""
        return sum(len(violations) for violations in self.faults.values())


def show_settings(visit: Visit) -> Response:
    """Show every option with its value, its default and its meaning; the columns."""
    return _form(visit, {})


def check_settings(visit: Visit) -> Response:
    """Return the faults and warnings of the form while it is written, each fault next to its field."""
    table, fields = _fields(visit, visit.form)
    verdict = _judged(visit, table, fields, visit.form)
    return visit.page("table/settings_checked.html", **of_table(visit), **_context(visit, fields, verdict))


def send_settings(visit: Visit) -> Response:
    """Alter the options; show the form with every fault if that cannot be."""
    table, fields = _fields(visit, visit.form)
    verdict = _judged(visit, table, fields, visit.form)
    if verdict.error is not None:
        return _form(visit, visit.form, verdict.error)
    try:
        if verdict.changes:
            _alter(visit, verdict.changes)
    except (Invalid, AlreadyExists, Conflict, PreconditionFailed) as error:
        return _form(visit, visit.form, error)
    return visit.go(address_of_table(visit, "/settings") + _filter(visit).query)


def _filter(visit: Visit) -> OptionFilter:
    return OptionFilter(visit.param("q").strip()[:255], bool(visit.param("changed")))


def send_columns(visit: Visit) -> Response:
    """Add, change or drop a column; show the page with every fault if that cannot be."""
    try:
        _alter(visit, _column_changes(visit.form))
    except (Invalid, AlreadyExists, Conflict, PreconditionFailed) as error:
        return _form(visit, {}, error, visit.form)
    return visit.go(address_of_table(visit, "/settings") + "#columns")


def _column_changes(form: Mapping[str, str]) -> list[Change]:
    """Return the changes that a form of columns requests. Raise ``Invalid``."""
    column, text = form.get("column", ""), form.get("text", "").strip()
    readers: Mapping[str, Change] = {
        "add": {"action": "addColumn", "fieldNames": [column.strip()], "dataType": text},
        "rename": {"action": "renameColumn", "fieldNames": [column], "newName": text},
        "widen": {"action": "updateColumnType", "fieldNames": [column], "newDataType": text, "keepNullability": True},
        "describe": {"action": "updateColumnComment", "fieldNames": [column], "newComment": text or None},
        "drop": {"action": "dropColumn", "fieldNames": [column]},
    }
    what = form.get("what", "")
    if what not in readers:
        raise Invalid("the form does not say what to do with the column: open the page again")
    if what == "drop" and form.get("typed", "").strip() != column.strip():
        raise Invalid(f"column {column!r} stays, for its name was not typed: type it to drop the column and its values")
    return [readers[what]]


def _alter(visit: Visit, changes: Sequence[Change]) -> None:
    """Raise as ``alter_table`` does, and ``PreconditionFailed`` for a table that the form does not show any more."""
    bounds = visit.parts.settings.catalog_bounds.table
    check = _unchanged(visit.form.get("seen", ""))
    alter_table(visit.parts.database, table_name(visit), changes, by=visit.grant.name, bounds=bounds, check=check)
    database, table = table_name(visit)
    shown = [
        {member: change[member] for member in ("action", "key", "fieldNames") if member in change} for change in changes
    ]
    visit.note("alterTable", database=database, table=table, changes=shown)


def _unchanged(seen: str) -> Callable[[Table], None]:
    def check(table: Table) -> None:
        if seen != version_of(table):
            raise PreconditionFailed(
                f"table {table.full_name} was altered since this form was shown: the page has its present values now; "
                "look whether your changes are still right, and send them again"
            )

    return check


def _fields(visit: Visit, form: Mapping[str, str]) -> tuple[Table, list[OptionField]]:
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        filled = has_rows(repository, table)
    return table, option_fields(table.schema, form, filled)


def _judged(visit: Visit, table: Table, fields: Sequence[OptionField], form: Mapping[str, str]) -> SettingsVerdict:
    changes = changes_of(fields, form)
    bounds = visit.parts.settings.catalog_bounds.table
    try:
        altered = alter_table(visit.parts.database, table_name(visit), changes, validate_only=True, bounds=bounds)
    except (Invalid, AlreadyExists) as error:
        return SettingsVerdict(changes, _placed(error, changes, fields), error=error)
    known = {warning.message for warning in table_warnings(table.schema)}
    warnings = table_warnings(altered.schema)
    new = [warning for warning in warnings if warning.message not in known]
    return SettingsVerdict(changes, {}, new, len(warnings) - len(new))


def _placed(error: KeyfoldError, changes: Sequence[Change], fields: Sequence[OptionField]) -> Faults:
    """Return the faults by the field of the change that brought them about."""
    numbers = {field.key: field.number for field in fields if field.change is not None}
    by_place: dict[object, list[Violation]] = {}
    faults = error.violations or (Violation("", FaultCode.ILLEGAL_OPTION_VALUE, error.message),)
    for fault in faults:
        segments = fault.pointer.split("/")
        change = segments[2] if len(segments) > 2 and segments[1] == "changes" and segments[2].isdigit() else None
        key = None if change is None else str(changes[int(change)].get("key"))
        place = None if key is None else numbers.get(key, NEW)
        by_place.setdefault(place, []).append(fault)
    return by_place


def _context(visit: Visit, fields: Sequence[OptionField], verdict: SettingsVerdict) -> dict[str, Any]:
    database, table = table_name(visit)
    path = of_table(visit)["api"]
    before = {field.key: field.text for field in fields}
    return {
        "fields": fields,
        "verdict": verdict,
        "before": before,
        "may": visit.may(Role.ADMIN, database, table),
        "altered_by": visit.curl("POST", path, {"changes": verdict.changes}) if verdict.changes else None,
    }


def _form(
    visit: Visit,
    form: Mapping[str, str],
    error: KeyfoldError | None = None,
    of_column: Mapping[str, str] | None = None,
) -> Response:
    table, fields = _fields(visit, form)
    verdict = _judged(visit, table, fields, form)
    wanted = _filter(visit)
    shown = [field for field in fields if wanted.takes(field)]
    columns = [column.name for column in table.schema.columns]
    offered = [f"fields.{name}.{suffix}" for name in columns[:MOST_OFFERED] for suffix in FIELD_OPTIONS]
    return table_page(
        visit,
        "settings",
        status=HTTPStatus.OK if error is None else status_of(error),
        table=table,
        seen=version_of(table),
        wanted=wanted,
        groups=grouped(shown),
        fixed=[option_field for option_field in shown if option_field.fixed is not None],
        offered=[*TABLE_OPTIONS, *offered],
        form=form,
        error=None if error is verdict.error or _same(error, verdict.error) else error,
        of_column=of_column or {},
        **_context(visit, fields, verdict),
    )


def _same(error: KeyfoldError | None, other: KeyfoldError | None) -> bool:
    """Return whether the verdict shows the error already, next to its fields."""
    return error is not None and other is not None and error.violations == other.violations


PAGES: Final = (
    Page("GET", _PAGE, show_settings),
    Page("POST", _PAGE, send_settings, Role.ADMIN),
    Page("POST", f"{_PAGE}/check", check_settings, Role.ADMIN, reads=True),
    Page("POST", f"{_PAGE}/columns", send_columns, Role.ADMIN),
)
