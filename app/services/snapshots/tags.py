"""Tags: created, listed, read, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from app.catalog.repository import Repository
from app.core.errors import AlreadyExists, FaultCode, Invalid, Violation, first_of
from app.core.table.history import Table, Tag
from app.core.table.names import name_violations
from app.core.table.options.entries import TABLE_OPTIONS
from app.services.shared.pages import Page, PageRequest, page_of
from app.services.snapshots.snapshots import (
    EARLIEST,
    LATEST,
    DescribedSnapshot,
    check_not_to_forget,
    describe,
    is_number,
)


@dataclass(frozen=True)
class DescribedTag:
    """A tag and the snapshot that it keeps."""

    tag: Tag
    kept: DescribedSnapshot


RETAINED = TABLE_OPTIONS["tag.default-time-retained"]


def create_tag(
    repository: Repository,
    table: Table,
    name: str,
    number: int | None = None,
    time_retained: str | None = None,
    *,
    ignore_if_exists: bool = False,
) -> DescribedTag:
    """Return a tag on snapshot ``number`` (the current one), kept for ``time_retained`` or as the table's option says.

    Raise ``Invalid`` with every fault, ``NotFound`` for the snapshot, ``Conflict`` for one with forgotten keys, and
    ``AlreadyExists``, also for the same snapshot, unless ``ignore_if_exists``, which returns the existing tag.
    """
    retained, faults = _retained(table, time_retained)
    faults = [*_name_violations(name), *faults]
    if faults:
        raise Invalid(f"the tag is not valid: {first_of(faults)}", violations=faults)
    if number is not None:
        check_not_to_forget(repository, table, number)
    try:
        return _described(repository, table, repository.tags.create(table.id, name, number, retained))
    except AlreadyExists:
        if not ignore_if_exists:
            raise
        return get_tag(repository, table, name)


def get_tag(repository: Repository, table: Table, name: str) -> DescribedTag:
    """Return the table's tag of this name. Raise ``NotFound``."""
    return _described(repository, table, repository.tags.get(table.id, name))


def _described(repository: Repository, table: Table, tag: Tag) -> DescribedTag:
    snapshot = repository.snapshots.get(table.id, tag.snapshot_id)
    return DescribedTag(tag, describe(repository, table, [snapshot])[0])


def _name_violations(name: str) -> Iterator[Violation]:
    yield from name_violations(name, "/tagName", "tag")
    if name and not name.strip():
        yield Violation("/tagName", FaultCode.ILLEGAL_NAME, "the tag name is blank", "name the tag")
    if name in (EARLIEST, LATEST) or is_number(name):
        message = f"the tag name {name!r} means a snapshot already"
        yield Violation(
            "/tagName", FaultCode.RESERVED_NAME, message, "choose a name with letters, as in v1 or 2024-01-31"
        )


def _retained(table: Table, text: str | None) -> tuple[timedelta | None, list[Violation]]:
    if text is None:
        options = table.schema.parsed
        default: timedelta | None = options[RETAINED.key]
        return default, []
    try:
        retained: timedelta = RETAINED.parse(text)
    except ValueError as error:
        return None, [Violation("/timeRetained", FaultCode.ILLEGAL_DURATION, f"{text!r} is not a duration", str(error))]
    if not retained:
        return None, [
            Violation("/timeRetained", FaultCode.ILLEGAL_DURATION, "the tag would expire at once", "write 1 d")
        ]
    return retained, []


def list_tags(repository: Repository, table: Table, request: PageRequest, prefix: str = "") -> Page[Tag]:
    """Return a page of the table's tags that begin with ``prefix``, in name order."""
    listed = repository.tags.page(table.id, after=request.after, limit=request.and_one_more, prefix=prefix)
    return page_of(listed, request, lambda tag: tag.name)
