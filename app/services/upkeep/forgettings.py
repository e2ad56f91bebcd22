"""Forgettings as clients see them: asked for, listed, watched (docs/decisions/0036)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from app.catalog.repository import Repository
from app.core.errors import Conflict, ErrorCode, Invalid
from app.core.table.history import Table
from app.core.table.keys import keys_from_json
from app.core.table.names import name_violations
from app.core.table.upkeep.forgetting import Forgetting, prints_of
from app.services.shared.pages import Page, PageRequest, page_of


def ask_to_forget(
    repository: Repository,
    table: Table,
    keys: Sequence[Mapping[str, Any]],
    requested_by: str,
    reference: str | None = None,
) -> Forgetting:
    """Keys (JSON objects) are to be forgotten, of all records that were accepted until now.

    ``reference`` is a name of the caller's own for the request: the keys are stored nowhere. Raises ``Invalid`` with
    the faults of all keys, and ``Conflict`` where a Delta log that nobody writes any more keeps what it has.
    """
    faults = list(name_violations(reference, "/reference", "reference")) if reference is not None else []
    try:
        read = keys_from_json(table.schema, keys, "/keys")
    except Invalid as invalid:
        raise Invalid(invalid.message, code=invalid.code, violations=[*invalid.violations, *faults]) from invalid
    if faults:
        raise Invalid(faults[0].message, violations=faults)
    if not table.schema.parsed["delta.publish"] and repository.delta.newest(table.id) is not None:
        raise Conflict(
            f"the Delta log of {table.full_name} is turned off and keeps the files of its last version for ever; turn"
            " delta.publish on, so that a version follows without the keys, and then forget them",
            code=ErrorCode.DELTA_LOG_STOPPED,
        )
    salt = secrets.token_hex(16)
    prints = list(dict.fromkeys(prints_of(table.schema, read, salt)))
    return repository.forgettings.add(table.id, salt, prints, requested_by, reference)


def list_forgettings(repository: Repository, table: Table, request: PageRequest) -> Page[Forgetting]:
    """A page of the table's, newest first. Raises ``Invalid``."""
    found = repository.forgettings.page(table.id, after=request.after, limit=request.and_one_more)
    return page_of(found, request, lambda one: one.id)
