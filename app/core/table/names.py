"""Names of databases, tables and tags."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from app.core.errors import FaultCode, Violation
from app.core.table.schema_bounds import LONGEST_NAME


def name_violations(name: str, pointer: str, what: str) -> Iterator[Violation]:
    """Yield the faults of ``name`` as the name of a new database, table or tag; ``what`` is the noun for messages."""
    if not name:
        yield Violation(pointer, FaultCode.EMPTY_NAME, f"the {what} name is empty", f"name the {what}")
    if len(name) > LONGEST_NAME:
        message = f"the {what} name has {len(name)} characters, at most {LONGEST_NAME} are allowed"
        yield Violation(pointer, FaultCode.NAME_TOO_LONG, message, "choose a shorter name")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        message = f"the {what} name {name!r} has control characters or half a surrogate pair"
        yield Violation(pointer, FaultCode.ILLEGAL_NAME, message, "remove them")
    if "/" in name or name in (".", ".."):
        message = f"the {what} name {name!r} cannot be a segment of a URL path"
        yield Violation(pointer, FaultCode.ILLEGAL_NAME, message, "choose a name without '/' that is not '.' or '..'")
    if "$" in name:
        message = f"the {what} name {name!r} has a '$', which Paimon reserves for branches and system tables"
        yield Violation(pointer, FaultCode.RESERVED_NAME, message, "choose a name without '$'")
