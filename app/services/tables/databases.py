"""Databases: list, create, show, alter and drop them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, Violation, escape_pointer, first_of
from app.core.table.history import Database
from app.core.table.names import name_violations
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds, long_option, options_faults
from app.core.types.parser import is_text
from app.services.shared.pages import Page, PageRequest, like, page_of


@dataclass(frozen=True)
class DatabaseChange:
    """The option keys that an ALTER removed, set, and did not find."""

    removed: Sequence[str]
    updated: Sequence[str]
    missing: Sequence[str]


def list_databases(
    repository: Repository, request: PageRequest, pattern: str | None = None, among: Collection[str] | None = None
) -> Page[str]:
    """Return a page of database names that are LIKE ``pattern`` and in ``among``, in name order. Raise ``Invalid`` for
    the pattern.
    """
    listed = repository.databases.names(
        after=request.after, limit=request.and_one_more, like=like(pattern), among=among
    )
    return page_of(listed, request, lambda name: name)


def create_database(
    repository: Repository,
    name: str,
    options: Mapping[str, str],
    by: str = "",
    bounds: CatalogBounds = DEFAULT_BOUNDS,
) -> Database:
    """Return a new database, made by the bearer of ``by``. Raise ``Invalid`` with every fault, ``AlreadyExists``, or
    ``Conflict`` if there are too many.
    """
    faults = [
        *name_violations(name, "/name", "database"),
        *_option_violations(options, "/options"),
        *options_faults(options, "/options"),
    ]
    if faults:
        raise Invalid(f"the database is not valid: {first_of(faults)}", violations=faults)
    bounds.check_databases(repository.databases.count())
    return repository.databases.create(name, options, by)


def _option_violations(options: Mapping[str, str], pointer: str) -> Iterator[Violation]:
    if "location" in options:
        message = "Keyfold chooses the location of its databases"
        yield Violation(f"{pointer}/location", FaultCode.LOCATION_NOT_ALLOWED, message, "remove the option location")
    for key, text in options.items():
        if not is_text(key) or not is_text(text):
            yield _illegal_text(f"{pointer}/{escape_pointer(key)}")
        yield from long_option(key, text, pointer)


def _illegal_text(pointer: str) -> Violation:
    message = "the text has half a surrogate pair, which no answer can carry"
    return Violation(pointer, FaultCode.ILLEGAL_TEXT, message, "remove it")


def get_database(repository: Repository, name: str) -> Database:
    """Return the database ``name``. Raise ``NotFound``."""
    return repository.databases.get(name)


def alter_database(
    repository: Repository, name: str, removals: Sequence[str], updates: Mapping[str, str], by: str = ""
) -> DatabaseChange:
    """Remove and set options of the database, all or nothing. Raise ``Invalid`` or ``NotFound``."""
    faults = list(_option_violations(updates, "/updates"))
    faults += [_illegal_text(f"/removals/{index}") for index, key in enumerate(removals) if not is_text(key)]
    if faults:
        raise Invalid(f"the change of the database is not valid: {first_of(faults)}", violations=faults)
    present = repository.databases.get(name).options
    unset = list(dict.fromkeys(removals))
    too_many = [*options_faults({**{key: present[key] for key in present.keys() - set(unset)}, **updates}, "/updates")]
    if too_many and updates:
        raise Invalid(too_many[0].message, violations=too_many)
    repository.databases.update_options(name, unset, updates, by)
    removed = [key for key in unset if key in present]
    return DatabaseChange(removed, list(updates), [key for key in unset if key not in present])
