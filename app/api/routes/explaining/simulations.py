"""``rows:simulate`` and ``merges:simulate``: the effect of records, with reasons."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Response

from app.api.document.components import SPELLED, Key, Row, RowKind, schema
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import whole_body
from app.api.shared.answers import Answer, From
from app.api.shared.deps import BoundsDep, ImagesDep
from app.api.shared.paths import CATALOG_PATH, TABLE_PATH
from app.api.shared.preferences import SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.services.explaining.simulations import simulate_merge, simulate_rows

router = Router(tags=["simulations"], responses=PROBLEM_RESPONSES)
Body = Annotated[bytes, Depends(whole_body)]


class ColumnStep(Answer):
    """The effect of one record on one column."""

    column: str
    before: Any
    after: Any
    reason: str


class Step(Answer):
    """One record, by its index in the request; ``ignored`` if the table drops it."""

    record: int
    kind: RowKind | None
    before: Row | None
    after: Row | None
    columns: list[ColumnStep]
    ignored: str | None


class SimulatedRow(Answer):
    """One key: its row before and after all records, null if there is none."""

    key: Key
    before: Row | None
    after: Row | None
    steps: list[Step]


class Simulation(Answer):
    """The rows that the records touch, in the order of their first record."""

    rows: Annotated[list[SimulatedRow], From(lambda rows: rows)]


_ANSWERS: dict[int | str, dict[str, Any]] = {200: {"headers": SPELLED}}


def _request_body(name: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema(name)}}}}


@router.post(
    f"{TABLE_PATH}/rows:simulate",
    operation_id="simulateRows",
    openapi_extra=_request_body("RecordList"),
    responses=_ANSWERS,
)
def post_rows_simulate(
    table: TableDep,
    body: Body,
    repository: Reading,
    images: ImagesDep,
    response: Response,
    spelling: SpellingDep,
) -> Simulation:
    """Fold records on the live rows. Return the rows before and after, and every step; nothing is stored."""
    response.headers.update(spelling.headers)
    return Simulation.from_value(simulate_rows(repository, images, table, body, spelling.integers))


@router.post(
    f"{CATALOG_PATH}/merges:simulate",
    operation_id="simulateMerge",
    openapi_extra=_request_body("Trial"),
)
def post_merges_simulate(body: Body, bounds: BoundsDep, response: Response, spelling: SpellingDep) -> Simulation:
    """Fold records into an empty table with the given schema; nothing is stored."""
    response.headers.update(spelling.headers)
    return Simulation.from_value(simulate_merge(body, bounds.table, spelling.integers))
