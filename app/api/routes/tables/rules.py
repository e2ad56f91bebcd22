"""``GET T/rules``: the treatment of records by the table, in words."""

from __future__ import annotations

from app.api.document.components import RowKind, Treatment
from app.api.document.payloads import TableWarning
from app.api.middleware.routing import Router
from app.api.shared.answers import Answer
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import TableDep
from app.core.table.options.entries import MergeEngine
from app.services.tables.rules import table_rules

router = Router(prefix=f"{TABLE_PATH}/rules", tags=["rules"], responses=PROBLEM_RESPONSES)


class KindRule(Answer):
    """The treatment of records of one row kind: accepted, ignored or refused."""

    kind: RowKind
    treatment: Treatment
    reason: str | None
    fix: str | None


class ColumnRule(Answer):
    """One column's rule; ``dependsOnArrival``: only the order of arrival decides between its records."""

    column: str
    rule: str
    default: str | None
    depends_on_arrival: bool


class Rules(Answer):
    """The rules of a table; ``hiddenColumns`` are the state columns in its data files."""

    merge_engine: MergeEngine
    row: str
    order: str
    kinds: list[KindRule]
    columns: list[ColumnRule]
    hidden_columns: list[str]
    warnings: list[TableWarning]


@router.get("", operation_id="getRules")
def get_rules(table: TableDep) -> Rules:
    """Return the rule of each column, the treatment of each row kind, and warnings."""
    return Rules.from_value(table_rules(table.schema))
