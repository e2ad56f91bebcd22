"""The playground: a schema and records, folded step by step, in any order and any cut; nothing of it is stored."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response

from app.console.parts.lanes import cells
from app.console.site.visits import Page, Visit
from app.core.errors import KeyfoldError
from app.http.kinds import status_of
from app.services.bodies.json_bodies import json_text
from app.services.explaining.examples import EXAMPLES
from app.services.explaining.playground import Played, play

PLAYGROUND_PATH: Final = "/console/playground"
_EXAMPLE: Final = EXAMPLES["parcels"]
_RECORDS: Final = "\n".join(json.dumps(record) for record in _EXAMPLE.records)


def show_playground(visit: Visit) -> Response:
    """Show the page with an example; the page's script replaces it by the input in the fragment of the address."""
    return _page(visit, _EXAMPLE.ddl, _RECORDS, _RECORDS)


def play_records(visit: Visit) -> Response:
    """Fold the records of the form; the page's script replaces only the parts of the page that changed."""
    form = visit.form
    records = form.get("records", "")
    return _page(visit, form.get("schema", ""), records, form.get("posted", "") or records)


def _page(visit: Visit, schema: str, records: str, posted: str) -> Response:
    status = 200
    context: dict[str, Any] = {"played": None, "error": None, "steps": [], "command": None}
    try:
        context |= _steps_context(visit, play(schema, records, posted, visit.parts.settings.catalog_bounds))
    except KeyfoldError as error:
        status, context["error"] = status_of(error), error
        if status == 500:
            raise
    template = "pages/playground_played.html" if visit.has_script else "pages/playground.html"
    return visit.page(template, status, schema=schema, records=records, posted=posted, **context)


def _steps_context(visit: Visit, played: Played) -> dict[str, Any]:
    by_record = {step.record: (row, step) for row in played.rows for step in row.steps}
    batch_of = [number for number, batch in enumerate(played.batches, 1) for _ in batch]
    lines = [line for batch in played.batches for line in batch]
    steps = [
        (line, batch_of[number], by_record[number][0].key, step, cells(played.lanes, step.columns))
        for number, line in enumerate(lines)
        for step in [by_record[number][1]]
    ]
    # The records as they were written: numbers stay exact, and what is deep is not made longer.
    records = ",\n  ".join(lines)
    body = f'{{"schema": {json_text(played.schema.to_json(), indent=1)},\n "records": [\n  {records}\n]}}'
    return {"played": played, "steps": steps, "command": visit.curl("POST", "/v1/catalog/merges:simulate", body)}


PAGES: Final = (
    Page("GET", PLAYGROUND_PATH, show_playground),
    Page("POST", PLAYGROUND_PATH, play_records, reads=True),
)
