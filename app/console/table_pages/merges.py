"""A table's merges and compactions: how far they are, started and cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.console.site.tabs import address_of_table
from app.console.site.visits import Page, Visit
from app.console.table_pages.table import PAGE_ITEMS, TABLE_PAGE, table_name, table_page
from app.core.access import Role
from app.core.errors import Invalid
from app.core.table.history import TaskState
from app.services.merging.compactions import ask_for_compaction
from app.services.merging.merges import ask_for_merge, list_merges
from app.services.operating.stats import table_stats
from app.services.shared.pages import PageRequest

MERGES_PATH: Final = f"{TABLE_PAGE}/merges"
_FRAGMENT: Final = "parts/merges.html"
TONES: Final[Mapping[TaskState, str]] = {
    TaskState.PENDING: "",
    TaskState.RUNNING: "",
    TaskState.SUCCEEDED: "good",
    TaskState.FAILED: "bad",
    TaskState.CANCELLED: "",
}
"""How a state looks."""


def show_merges(visit: Visit) -> Response:
    """Newest first, with buttons that ask for another one."""
    context = _context(visit)
    return table_page(visit, "merges", digest=visit.digest(_FRAGMENT, **context), **context)


def show_list(visit: Visit) -> Response:
    """Show the part that changes, which is polled."""
    return visit.fragment(_FRAGMENT, **_context(visit))


def start(visit: Visit) -> Response:
    """Request a merge, or a compaction: of all runs, or of those that the policy picks."""
    database, name = table_name(visit)
    job = visit.form.get("job", "")
    if job not in ("merge", "compaction", "full"):
        raise Invalid("choose what to start: merge, compaction or full")
    with visit.parts.database.transaction() as repository:
        table = repository.tables.get(database, name)
        if job == "merge":
            ask_for_merge(repository, table.id)
        else:
            ask_for_compaction(repository, table.id, full=job == "full")
    return visit.go(address_of_table(visit, "/merges"))


def cancel(visit: Visit) -> Response:
    """Stop a merge; its batches stay staged."""
    database, name = table_name(visit)
    merge = visit.form.get("merge", "")
    with visit.parts.database.transaction() as repository:
        repository.tasks.request_cancel(repository.tables.get(database, name).id, merge)
    return visit.go(address_of_table(visit, "/merges"))


def _context(visit: Visit) -> dict[str, Any]:
    after = visit.param("after")
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        page = list_merges(repository, table, PageRequest(PAGE_ITEMS, after or None))
        stats = table_stats(repository, table, spark_answers=visit.parts.spark_ready())
        failure = repository.overview.merge_failures([table.id]).get(table.id)
    return {
        "base": address_of_table(visit),
        "path": address_of_table(visit, "/merges"),
        "changes": address_of_table(visit, "/snapshots/changes"),
        "after": after,
        "items": [(merge, TONES[merge.state]) for merge in page.items],
        "older": urlencode({"after": page.next_token}) if page.next_token else None,
        "staged": stats.staged,
        "runs": len(stats.snapshot.runs) if stats.snapshot else 0,
        "failure": failure,
        "waits": stats.merges_wait,
        "spark_ready": visit.parts.spark_ready(),
        "may_change": visit.may(Role.WRITE, *table_name(visit)),
    }


PAGES: Final = (
    Page("GET", MERGES_PATH, show_merges),
    Page("GET", f"{MERGES_PATH}/list", show_list, whole=False),
    Page("POST", MERGES_PATH, start, Role.WRITE),
    Page("POST", f"{MERGES_PATH}/cancel", cancel, Role.WRITE),
)
