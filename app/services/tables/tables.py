"""Tables: list, create, show, alter, rename and drop them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from app import __version__
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.alter.changes import alter_schema
from app.core.alter.draft import type_depth
from app.core.errors import (
    About,
    AlreadyExists,
    Conflict,
    ErrorCode,
    FaultCode,
    Invalid,
    Resource,
    Violation,
    escape_pointer,
    first_of,
    not_found,
)
from app.core.plan.merging.evolution import same_fold
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Table
from app.core.table.names import name_violations
from app.core.table.options.parsed import misspelt_options
from app.core.table.schema import Column, TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds, SchemaBounds
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.files.layout import Warehouse, table_folder
from app.services.publishing.publications import follow_alter
from app.services.shared.pages import Page, PageRequest, fitting, like, page_of

# Paimon's clients show these among a table's options and send them back in the schema of the next table. Only they
# get the last one (docs/decisions/0030).
ECHOED_OPTIONS = frozenset({"owner", "createdAt", "createdBy", "updatedAt", "updatedBy", "query-auth.enabled"})
DEEPEST_TYPE = 50
Check = Callable[[Table], None]
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def no_check(_: Table) -> None:
    """Accept the table in any state."""


def list_tables(
    repository: Repository,
    database: str,
    request: PageRequest,
    pattern: str | None = None,
    table_type: str | None = None,
    among: Collection[str] | None = None,
) -> Page[str]:
    """Return a page of the database's table names that are LIKE ``pattern`` and in ``among``, in name order.

    ``table_type`` is Paimon's option ``type``; all of Keyfold's tables have the type ``table``. Raise ``NotFound`` for
    the database, ``Invalid`` for the pattern.
    """
    listed = repository.tables.names(
        database, after=request.after, limit=request.and_one_more, like=like(pattern), among=among
    )
    return page_of(listed if table_type in (None, "", "table") else [], request, lambda name: name)


def detailed(repository: Repository, database: str, page: Page[str]) -> Page[Table]:
    """Return the tables of a page of names; fewer if their schemas would exceed ``MOST_PAGE_BYTES``."""
    sizes = repository.tables.schema_sizes(database, page.items)
    names = page.items[: fitting(sizes)]
    listed = repository.tables.page(database, limit=len(names), among=names)
    return Page(listed, names[-1] if len(names) < len(sizes) else page.next_token)


def create_table(
    catalog: CatalogDatabase,
    database: str,
    name: str,
    body: Mapping[str, Any],
    by: str = "",
    bounds: CatalogBounds = DEFAULT_BOUNDS,
) -> Table:
    """Return a new table with the schema that ``body`` (Paimon's JSON) declares, made by the bearer of the token
    ``by``.

    Raise ``Invalid`` with every fault of name, schema and options, ``NotFound`` for the database, ``AlreadyExists``,
    and ``Conflict`` if there are too many tables.
    """
    schema = validate_table(name, body, bounds.table)  # before the transaction: compiling takes no lock
    with catalog.transaction() as repository:
        bounds.check_tables(repository.tables.count())
        return repository.tables.create(database, name, schema, by)


def validate_table(name: str, body: Mapping[str, Any], bounds: SchemaBounds = DEFAULT_BOUNDS.table) -> TableSchema:
    """Return the schema of a table to create; read only the request.

    Raise ``Invalid`` with every fault of name, schema and options; pointers are into ``{identifier, schema}``. A
    schema beyond ``bounds`` is not read any further.
    """
    _check_size(body, bounds)
    faults = [*name_violations(name, "/identifier/object", "table"), *_text_violations(body, "/schema")]
    declared, external = _own_options(body)
    schema = _read_schema(declared, faults)
    faults += [] if schema is None else _in_schema(bounds.faults(schema))
    faults += external
    faults += _in_schema(misspelt_options(_option_keys(declared)))
    if schema is None or faults:
        of_options = [fault.about.option is not None for fault in faults]
        codes = {ErrorCode.INVALID_OPTIONS if only else ErrorCode.INVALID_SCHEMA for only in of_options}
        code = codes.pop() if len(codes) == 1 else ErrorCode.INVALID_SCHEMA
        raise Invalid(f"the table is not valid: {first_of(faults)}", code=code, violations=faults)
    return schema


def _check_size(body: Mapping[str, Any], bounds: SchemaBounds) -> None:
    try:
        bounds.check_declared(body)
    except Invalid as invalid:
        raise Invalid(invalid.message, code=invalid.code, violations=[*_in_schema(invalid.violations)]) from invalid


def _own_options(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Violation]]:
    """Return ``body`` without options that belong to no table, and the faults of those that request the impossible."""
    options = body.get("options")
    if not isinstance(options, Mapping):
        return body, []
    set_options = {key: value for key, value in options.items() if key not in ECHOED_OPTIONS and key != "path"}
    faults = []
    if "path" in options:
        message = "Keyfold chooses the path of its tables"
        pointer, fix = "/schema/options/path", "remove the option path"
        faults.append(Violation(pointer, FaultCode.PATH_NOT_ALLOWED, message, fix, about=About(option="path")))
    return {**body, "options": set_options}, faults


def _read_schema(body: Mapping[str, Any], faults: list[Violation]) -> TableSchema | None:
    """Return the schema, or None with all its ``faults``; columns at fault do not hide faults of the options."""
    try:
        schema = TableSchema.from_json(body)
    except Invalid as invalid:
        faults += _in_schema(invalid.violations)
        faults += _in_schema(_unreadable_options(body))
        return None
    faults += _depth_violations(schema)
    try:
        compile_plan(schema)
    except Invalid as invalid:
        faults += _in_schema(invalid.violations)
    return schema


def _option_keys(body: Mapping[str, Any]) -> list[str]:
    options = body.get("options")
    return [key for key in options if isinstance(key, str)] if isinstance(options, Mapping) else []


def _in_schema(violations: Iterable[Violation]) -> Iterator[Violation]:
    return (replace(violation, pointer=f"/schema{violation.pointer}") for violation in violations)


def _unreadable_options(body: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return the faults of options that no types and keys of the columns could avoid.

    While the columns are wrong, options can only be checked against the column names.
    """
    options, fields = body.get("options"), body.get("fields")
    if not isinstance(options, Mapping) or not isinstance(fields, list):
        return ()
    names = [field["name"] for field in fields if isinstance(field, Mapping) and isinstance(field.get("name"), str)]
    columns = tuple(Column(number, name, DataType(Kind.STRING)) for number, name in enumerate(names))
    readable = {key: value for key, value in options.items() if isinstance(value, str)}
    return TableSchema(columns, (), (), readable).parsed.faults


def _text_violations(body: Mapping[str, Any], pointer: str) -> Iterator[Violation]:
    """Yield the faults of values in ``body`` that should be text and are not, or are text that catalog or answers
    cannot hold.
    """
    unseen: list[tuple[str, About, Any]] = [(pointer, About(), body)]
    while unseen:
        where, about, value = unseen.pop()
        if isinstance(value, Mapping):
            inside = [(key, _about_member(about, key, value is body), inner) for key, inner in value.items()]
            unseen += [(f"{where}/{escape_pointer(key)}", of_key, inner) for key, of_key, inner in inside]
            yield from _comment_violations(value, where, about)
            value = "".join(value)  # its keys
        elif isinstance(value, list):
            unseen += [(f"{where}/{index}", about, inner) for index, inner in enumerate(value)]
        if isinstance(value, str) and _UNSTORABLE.search(value):
            message = "the text has U+0000 or half a surrogate pair, which cannot be stored"
            yield Violation(where, FaultCode.ILLEGAL_TEXT, message, "remove it", about=about)


def _about_member(about: About, key: str, of_schema: bool) -> About:
    """Return the subject of a member of an object whose subject is ``about``."""
    if of_schema:
        return About(option="") if key == "options" else about
    return About(option=key) if about.option == "" else about


def _comment_violations(value: Mapping[str, Any], where: str, about: About) -> Iterator[Violation]:
    """Yield the faults of comments and descriptions, of the table, its columns and their fields, that are not text."""
    for key in ("comment", "description"):
        if about.option != "" and not isinstance(value.get(key), str | None):
            message, fix = f"the {key} is not text", "send a string or leave it out"
            yield Violation(f"{where}/{key}", FaultCode.NOT_TEXT, message, fix, about=about)


def _depth_violations(schema: TableSchema) -> Iterator[Violation]:
    """Yield the faults of types that are too deep for JSON writers and Parquet readers, which recurse."""
    for index, column in enumerate(schema.columns):
        if type_depth(column.type) > DEEPEST_TYPE:
            message = f"the type of column {column.name!r} is nested more than {DEEPEST_TYPE} levels deep"
            yield Violation(f"/schema/fields/{index}/type", FaultCode.NESTED_TOO_DEEPLY, message, "flatten the type")


def location_of(warehouse: Warehouse, table: Table) -> str:
    """Return the URI of the folder of the table's files."""
    return warehouse.uri(*table_folder(table.id))


def version_of(table: Table) -> str:
    """Return a text that changes with the table's definition in the catalog, but not with merges."""
    facts = (table.id, table.database, table.name, table.schema_id, table.updated_at, table.updated_by, __version__)
    return f"{table.schema_id}-{blake2b(repr(facts).encode('utf-8', 'backslashreplace'), digest_size=8).hexdigest()}"


def get_table_by_id(repository: Repository, table_id: str) -> Table:
    """Return the table that has this id, also after a rename. Raise ``NotFound``."""
    table = repository.tables.find(table_id)
    if table is None:
        raise not_found(Resource.TABLE, table_id, f"no table has the id {table_id!r}")
    return table


def table_under(repository: Repository, table: Table, number: str) -> Table:
    """Return the table with the schema of this number. Raise ``NotFound``."""
    if not number.isascii() or not number.isdigit() or len(number) > 9 or int(number) > table.schema_id:
        raise not_found(Resource.SCHEMA, number)
    return repository.tables.under(table, int(number))


def alter_table(
    catalog: CatalogDatabase,
    name: tuple[str, str],
    changes: Sequence[object],
    *,
    validate_only: bool = False,
    by: str = "",
    bounds: SchemaBounds = DEFAULT_BOUNDS.table,
    check: Check = no_check,
) -> Table:
    """Return the table ``name`` (database, table) after all ``changes`` (Paimon's JSON) in their order, or none of
    them.

    ``check`` raises if the table has changed since the caller read it. ``validate_only`` stores nothing, and ignores
    staged batches: they may be merged a moment later. Raise ``Invalid`` with every fault of the request, ``NotFound``
    for database or table, ``AlreadyExists`` for a column, ``Conflict`` if another ALTER came first, or if the new
    schema would fold staged batches differently.
    """
    if validate_only:
        with catalog.reading() as repository:
            table = repository.tables.get(*name)
            check(table)
            return replace(table, schema=altered_schema(repository, table, changes, bounds))
    with catalog.transaction() as repository:
        table = repository.tables.get(*name)
        check(table)
        return alter_within(repository, table, changes, by, bounds)


def alter_within(
    repository: Repository, table: Table, changes: Sequence[object], by: str, bounds: SchemaBounds
) -> Table:
    """Alter the table as ``alter_table`` does, in the caller's transaction. Raise the same errors."""
    was_empty = not has_rows(repository, table)
    schema = altered_schema(repository, table, changes, bounds)
    if schema == table.schema:
        return table
    altered = repository.tables.alter(table.id, table.schema_id, schema, by)
    # The lock of the ALTER keeps new batches out until this transaction ends.
    if was_empty and has_rows(repository, table):
        raise _conflict(table, "got its first batch just now: read the table again and repeat the change")
    # Otherwise they are read by column id: their values are widened, and columns that they lack are null in them.
    if not same_fold(table.schema, schema) and repository.batches.unmerged(table.id):
        raise _conflict(
            table,
            "has staged batches, which the new schema would fold differently:"
            " POST …/merges, wait until the merge has succeeded, then alter the table again",
            ErrorCode.TABLE_HAS_STAGED_BATCHES,
        )
    follow_alter(repository, table, altered)
    return altered


def _conflict(table: Table, reason: str, code: ErrorCode = ErrorCode.COMMIT_CONFLICT) -> Conflict:
    return Conflict(f"table {table.full_name} {reason}", code=code, resource_type="TABLE", resource_name=table.name)


def has_rows(repository: Repository, table: Table) -> bool:
    """Return whether the table ever accepted a batch."""
    return table.snapshot_id is not None or bool(repository.batches.page(table.id, limit=1))


def altered_schema(
    repository: Repository, table: Table, changes: Sequence[object], bounds: SchemaBounds
) -> TableSchema:
    """Return the table's schema after ``changes``. Raise as ``alter_table`` does for the request."""
    highest_id = repository.tables.highest_field_id(table)
    filled = has_rows(repository, table)
    unstorable = [*_text_violations({"changes": list(changes)}, "")]
    try:
        schema = alter_schema(table.schema, changes, highest_id=highest_id, has_rows=filled, deepest_type=DEEPEST_TYPE)
    except (Invalid, AlreadyExists) as refused:
        if not unstorable:
            raise
        faults = [*refused.violations, *_elsewhere(unstorable, refused.violations)]
        raise Invalid(refused.message, code=ErrorCode.INVALID_SCHEMA, violations=faults) from refused
    if unstorable:
        message = f"the table cannot be altered: {unstorable[0].message}"
        raise Invalid(message, code=ErrorCode.INVALID_SCHEMA, violations=unstorable)
    too_large = [replace(fault, pointer="/changes") for fault in bounds.faults(schema, table.schema)]
    if too_large:
        message = f"the table cannot be altered: {too_large[0].message}"
        raise Invalid(message, code=ErrorCode.INVALID_SCHEMA, violations=too_large)
    return schema


def _elsewhere(faults: Iterable[Violation], reported: Iterable[Violation]) -> Iterator[Violation]:
    """Return the faults at places that are not in ``reported``."""
    places = {violation.pointer for violation in reported}
    return (fault for fault in faults if fault.pointer not in places)


def rename_table(repository: Repository, source: tuple[str, str], destination: tuple[str, str], by: str = "") -> Table:
    """Return the table ``source`` (database, name) under its new name; its id and its files stay.

    Raise ``Invalid``, ``NotFound`` for the table or the new database, ``AlreadyExists``.
    """
    faults = [*name_violations(destination[1], "/destination/object", "table")]
    if faults:
        raise Invalid(faults[0].message, violations=faults)
    return repository.tables.rename(*source, *destination, by)
