"""``T/rows:explain``: why a row has its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from app.api.document.components import SPELLED, Key, Row, RowKind
from app.api.middleware.routing import Router
from app.api.routes.rows.rows import Keys
from app.api.shared.answers import Answer, EpochMillis
from app.api.shared.deps import PartsDep
from app.api.shared.paths import TABLE_PATH, FullName
from app.api.shared.preferences import SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.core.table.history import BatchState
from app.services.explaining import explain as service
from app.services.explaining.explained import StepKind

router = Router(prefix=TABLE_PATH, tags=["explanations"], responses=PROBLEM_RESPONSES)

Columns = Annotated[
    list[str] | None, Query(alias="column", description="a column to explain; once for each, all without it")
]
AsOf = Annotated[
    str | None,
    Query(
        alias="asOf",
        description="a snapshot's number, a tag, or a time as 2026-03-01T12:00:00Z: the row at that time, without"
        " staged records",
    ),
]
Steps = Annotated[
    int,
    Query(
        ge=1, le=service.MOST_STEPS, description="the most records to explain, the newest ones; continue with `before`"
    ),
]
Before = Annotated[str | None, Query(description="the `before` of an answer: the records that came before its first")]


class ExplainedPlace(Answer):
    """A record by its batch, and its position in it, from 0."""

    batch: str
    number: int = Field(description="of the batch")
    position: int


class ExplainedRecord(ExplainedPlace):
    """A record, and how it came into the table; without merge and snapshot while it is staged."""

    state: BatchState
    accepted_at: EpochMillis
    accepted_by: str = Field(description="the name of the token that it was sent with, empty where none was needed")
    merge_id: str | None
    snapshot: int | None
    kind: RowKind


class ExplainedChange(Answer):
    """The effect of one step on one column."""

    column: str
    before: Any
    after: Any
    reason: str
    late: bool = Field(description="its sequence is older than that of the column's value")
    ignored: bool = Field(description="it took part in the column, and changed nothing")


class ExplainedStep(Answer):
    """One step: a record, or an event between records, which ``words`` describes."""

    what: StepKind
    words: str
    snapshot: int | None
    at: EpochMillis | None = Field(description="when the record was accepted, or the snapshot committed")
    exists: bool = Field(description="whether there is a row after it")
    record: ExplainedRecord | None
    columns: list[ExplainedChange]
    late: bool = Field(description="by its sequence it is older than what some column holds")
    ignored: bool = Field(description="it took part, and changed nothing")
    undone: list[ExplainedRecord] = Field(description="records that a rollback took out of the table, the newest ones")
    undone_left_out: int = Field(description="how many older ones it took out, too")


class ExplainedStart(Answer):
    """The beginning of the steps: the row in ``snapshot``; null before the first batch."""

    snapshot: int | None
    committed_at: EpochMillis | None
    words: str
    row: Row | None


class ExplainedColumn(Answer):
    """The sources of a column's value; an accumulated one has several records."""

    column: str
    value: Any
    start: bool = Field(description="the value, or a part of it, comes from the start")
    records: list[ExplainedPlace] = Field(description="the newest last")
    left_out: int = Field(description="how many older records, too")


class ExplainedRow(Answer):
    """A key, its row, the source of each value, and the steps that led to it, oldest first."""

    key: Key
    snapshot: int | None = Field(description="the snapshot that is explained; null before the first merge")
    row: Row | None = Field(description="the row of a lookup; null if there is none")
    exact: bool = Field(description="whether the steps come to that row")
    inexact: str | None = Field(description="why they may not")
    columns: list[ExplainedColumn]
    start: ExplainedStart
    steps: list[ExplainedStep]
    left_out: int = Field(description="how many records came before the first step")
    before: str | None = Field(description="requests them; null if there are none")


_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"headers": SPELLED}, **problems(409)}


def _answer(
    parts: PartsDep,
    name: tuple[str, str],
    texts: Sequence[str],
    columns: Sequence[str] | None,
    as_of: str | None,
    steps: int,
    before: str | None,
    spelling: SpellingDep,
    response: Response,
) -> ExplainedRow:
    response.headers.update(spelling.headers)
    question = service.Question(texts, columns or None, as_of, steps, before, spelling.integers)
    with parts.scans.place():
        return ExplainedRow.from_value(service.explain_row(parts.database, parts.images, name, question))


@router.get("/rows:explain", operation_id="explainRow", responses=_RESPONSES)
def get_explanation(
    name: FullName,
    key: Keys,
    parts: PartsDep,
    response: Response,
    spelling: SpellingDep,
    column: Columns = None,
    as_of: AsOf = None,
    steps: Steps = service.DEFAULT_STEPS,
    before: Before = None,
) -> ExplainedRow:
    """Explain the row of a key: list its kept records in merge order, the effect of each on each column with the
    reason, and the records that each value came from. Deleted rows are explained, too.
    """
    return _answer(parts, name, key, column, as_of, steps, before, spelling, response)


@router.get("/rows/{key:key}:explain", operation_id="explainRowByPath", responses=_RESPONSES)
def get_explanation_by_path(
    name: FullName,
    key: str,
    parts: PartsDep,
    response: Response,
    spelling: SpellingDep,
    column: Columns = None,
    as_of: AsOf = None,
    steps: Steps = service.DEFAULT_STEPS,
    before: Before = None,
) -> ExplainedRow:
    """Explain a row of a table with a single key column; keys that a path cannot carry need ``/rows:explain?key=``. To
    look up a key that ends in ``:explain``, use ``/rows?key=``.
    """
    return _answer(parts, name, [key], column, as_of, steps, before, spelling, response)
