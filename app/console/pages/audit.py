"""The last lines of the audit log, for callers who may do everything; how to have one where there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from app.console.pages.operations import OPERATIONS_PATH
from app.console.site.visits import Page, Visit
from app.core.access import Role
from app.services.operating.audit_log import STREAMS, last_lines

AUDIT_PATH: Final = f"{OPERATIONS_PATH}/audit"
MOST_LINES: Final = 200
_IN_COLUMNS: Final = ("time", "token", "user", "address", "operation", "outcome", "status")


def show_audit(visit: Visit) -> Response:
    """Show the lines, newest first."""
    visit.grant.check_service(Role.ADMIN)
    destination = visit.parts.settings.audit_log
    lines = [] if destination is None or destination in STREAMS else last_lines(destination, MOST_LINES)
    entries = [(line, _about(line)) for line in reversed(lines)]
    return visit.page("operations/audit.html", destination=destination, is_stream=destination in STREAMS, lines=entries)


def _about(line: Mapping[str, Any]) -> str:
    """Return the members that have no column, as JSON."""
    rest = {name: value for name, value in line.items() if name not in _IN_COLUMNS}
    return json.dumps(rest, ensure_ascii=False) if rest else ""


PAGES: Final = (Page("GET", AUDIT_PATH, show_audit, Role.ADMIN),)
