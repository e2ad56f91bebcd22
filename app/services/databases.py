"""Databases: list, create, show, alter and drop them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, Violation
from app.core.table.history import Database, Table
from app.core.table.schema import escape_pointer
from app.core.types.parser import is_text

LONGEST_NAME = 255

Named = TypeVar("Named", Database, Table)


@dataclass(frozen=True)
class PageRequest:
    """What part of a list is asked for: names LIKE ``pattern``, at most ``limit`` of them, after the name ``token``."""

    limit: int
    token: str | None = None
    pattern: str | None = None

    @property
    def after(self) -> str | None:
        """The last name of the page before, None on the first page."""
        return self.token or None

    @property
    def like(self) -> str | None:
        """The pattern: ``%`` any text, ``_`` any character, a backslash takes the next one literally.

        Raises ``Invalid`` when the last backslash has nothing to take.
        """
        pattern = self.pattern or ""
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            raise Invalid(f"the pattern {pattern!r} ends in a single backslash; write two for a literal one")
        return pattern or None


@dataclass(frozen=True)
class Page(Generic[Named]):
    """Items in name order; ``next_token`` asks for the next page and is None on the last one."""

    items: Sequence[Named]
    next_token: str | None


def page_of(found: Sequence[Named], limit: int) -> Page[Named]:
    """The first ``limit`` of ``found``, which is one longer where there are more."""
    items = found[:limit]
    return Page(items, items[-1].name if len(found) > limit else None)


@dataclass(frozen=True)
class DatabaseChange:
    """The option keys that an alter removed, set, and did not find."""

    removed: Sequence[str]
    updated: Sequence[str]
    missing: Sequence[str]


def name_violations(name: str, pointer: str, what: str) -> Iterator[Violation]:
    """What keeps ``name`` from naming a new database or table; ``what`` is the noun for messages."""
    if not name:
        yield Violation(pointer, FaultCode.EMPTY_NAME, f"the {what} name is empty", f"name the {what}")
    if len(name) > LONGEST_NAME:
        message = f"the {what} name has {len(name)} characters, {LONGEST_NAME} are possible"
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


def list_databases(repository: Repository, request: PageRequest) -> Page[Database]:
    """A page of databases. Raises ``Invalid`` for a pattern that cannot be read."""
    found = repository.databases.page(after=request.after, limit=request.limit + 1, like=request.like)
    return page_of(found, request.limit)


def create_database(repository: Repository, name: str, options: Mapping[str, str]) -> Database:
    """A new database. Raises ``Invalid`` with every fault, or ``AlreadyExists``."""
    faults = [*name_violations(name, "/name", "database"), *_option_violations(options, "/options")]
    if faults:
        raise Invalid("the database is not valid", violations=faults)
    return repository.databases.create(name, options)


def _option_violations(options: Mapping[str, str], pointer: str) -> Iterator[Violation]:
    if "location" in options:
        message = "Keyfold chooses the location of its databases"
        yield Violation(f"{pointer}/location", FaultCode.LOCATION_NOT_ALLOWED, message, "remove the option location")
    for key, text in options.items():
        if not is_text(key) or not is_text(text):
            yield _illegal_text(f"{pointer}/{escape_pointer(key)}")


def _illegal_text(pointer: str) -> Violation:
    message = "the text has half a surrogate pair, which no answer can carry"
    return Violation(pointer, FaultCode.ILLEGAL_TEXT, message, "remove it")


def get_database(repository: Repository, name: str) -> Database:
    """The database ``name``. Raises ``NotFound``."""
    return repository.databases.get(name)


def alter_database(
    repository: Repository, name: str, removals: Sequence[str], updates: Mapping[str, str]
) -> DatabaseChange:
    """Removes and sets options of the database, all or nothing. Raises ``Invalid`` or ``NotFound``."""
    faults = list(_option_violations(updates, "/updates"))
    faults += [_illegal_text(f"/removals/{index}") for index, key in enumerate(removals) if not is_text(key)]
    if faults:
        raise Invalid("the change of the database is not valid", violations=faults)
    present = repository.databases.get(name).options
    asked = list(dict.fromkeys(removals))
    repository.databases.update_options(name, asked, updates)
    removed = [key for key in asked if key in present]
    return DatabaseChange(removed, list(updates), [key for key in asked if key not in present])


def drop_database(repository: Repository, name: str) -> None:
    """Removes an empty database. Raises ``NotFound``, or ``Conflict`` when it has tables."""
    repository.databases.drop(name)
