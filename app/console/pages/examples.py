"""The examples: loaded with one click, played record by record, dropped again."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response

from app.console.parts.curl import database_path, table_path
from app.console.site.visits import Page, Visit
from app.core.access import Role
from app.core.errors import NotFound
from app.http.uploads import stage
from app.services.batches.batches import Upload
from app.services.bodies.formats import JSON
from app.services.explaining.examples import (
    DATABASE,
    EXAMPLES,
    Example,
    drop_example,
    example_of,
    load_example,
    loaded_example,
)
from app.services.rows.lookups import Consistency, get_row

EXAMPLES_PATH: Final = "/console/examples"


def show_examples(visit: Visit) -> Response:
    """Show all examples."""
    return visit.page("pages/examples.html", examples=[*EXAMPLES.values()])


def show_example(visit: Visit) -> Response:
    """Show an example: its SQL, what its records did so far, and the next record."""
    example = example_of(visit.names["example"])
    visit.grant.check_table(Role.READ, DATABASE, example.name)
    loaded = loaded_example(visit.parts.database, example)
    played = 0 if loaded is None else loaded[1]
    steps = [*zip(example.says, example.records, example.steps(played), strict=False)]
    path, following = table_path(DATABASE, example.name), [*example.records[played:]]
    return visit.page(
        "pages/example.html",
        example=example,
        loaded=loaded is not None,
        played=played,
        steps=[
            (words, json.dumps(record), step, _changed(step.before, step.after), list(record))
            for words, record, step in steps
        ],
        following=json.dumps(following[0]) if following else None,
        row=_row(visit, example) if played else None,
        made_by=visit.curl("POST", database_path(DATABASE, "/tables:fromDdl"), {"ddl": example.ddl}),
        played_by=visit.curl("POST", f"{path}/batches", {"records": following[:1]}),
        read_by=visit.curl("GET", f"{path}/rows?key=1"),
        dropped_by=visit.curl("DELETE", path),
    )


def _changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> set[str]:
    """Return the columns in which the row is another one."""
    old, new = before or {}, after or {}
    return {name for name in new if old.get(name) != new[name]}


def _row(visit: Visit, example: Example) -> dict[str, Any] | None:
    """Return the row as the service answers it now, staged records included."""
    parts = visit.parts
    with parts.database.reading() as repository:
        table = repository.tables.get(DATABASE, example.name)
        try:
            return get_row(repository, parts.images, table, ["1"], Consistency.LATEST).row
        except NotFound:
            return None


def load(visit: Visit) -> Response:
    """Make its table."""
    example = example_of(visit.names["example"])
    visit.grant.check_database(Role.ADMIN, DATABASE)
    load_example(visit.parts.database, example, visit.grant.name, visit.parts.settings.catalog_bounds)
    visit.note("createTablesFromDdl", database=DATABASE, tables=[example.name])
    return visit.go(f"{EXAMPLES_PATH}/{example.name}")


def play(visit: Visit) -> Response:
    """Post its next record; pressed twice, the same record is posted once."""
    example = example_of(visit.names["example"])
    visit.grant.check_table(Role.WRITE, DATABASE, example.name)
    loaded = loaded_example(visit.parts.database, example)
    if loaded is None:
        raise NotFound("the example is not loaded: open its page and load it")
    wanted = visit.form.get("record", "")
    if wanted.isascii() and wanted.isdigit() and int(wanted[:9]) == loaded[1] < len(example.records):
        body = json.dumps({"records": [example.records[loaded[1]]]}).encode()
        upload = Upload(body, JSON, idempotency_key=f"example-{loaded[1]}")
        stage(visit.parts, (DATABASE, example.name), upload)
    return visit.go(f"{EXAMPLES_PATH}/{example.name}#next")


def drop(visit: Visit) -> Response:
    """Drop the table of an example."""
    example = example_of(visit.names["example"])
    visit.grant.check_database(Role.ADMIN, DATABASE)
    drop_example(visit.parts.database, visit.parts.warehouse, example)
    visit.note("dropTable", database=DATABASE, table=example.name)
    return visit.go("/")


PAGES: Final = (
    Page("GET", EXAMPLES_PATH, show_examples),
    Page("GET", f"{EXAMPLES_PATH}/{{example}}", show_example),
    Page("POST", f"{EXAMPLES_PATH}/{{example}}/load", load, Role.ADMIN),
    Page("POST", f"{EXAMPLES_PATH}/{{example}}/play", play, Role.WRITE),
    Page("POST", f"{EXAMPLES_PATH}/{{example}}/drop", drop, Role.ADMIN),
)
