"""Partitions of a table: listed, dropped and expired; without reading files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import ErrorCode, FaultCode, Invalid, NotFound, Violation, escape_pointer
from app.core.hints import some_of
from app.core.table.history import Run, Snapshot, Table
from app.core.table.schema import TableSchema
from app.core.table.upkeep.partition_expiry import expired
from app.core.types.values import ValueFault
from app.services.shared.commits import Commit, commit_on_current
from app.services.shared.pages import Page, PageRequest, is_like, like, page_of


@dataclass(frozen=True)
class Partition:
    """One partition of the current snapshot: the values of its columns as JSON, and what its runs hold."""

    spec: Mapping[str, Any]
    rows: int
    files: int
    size_bytes: int
    runs: int
    changed_at: datetime | None


def list_partitions(
    repository: Repository, table: Table, request: PageRequest, pattern: str | None = None
) -> Page[Partition]:
    """Return a page of the table's partitions with a name LIKE ``pattern``, in the order of their JSON.

    A table without partition keys has none. Raise ``Invalid`` for the pattern.
    """
    wanted = like(pattern)
    runs = _runs_of(repository.snapshots.current(table.id))
    names = sorted(name for name in runs if name > (request.after or "") and is_like(_partition_name(name), wanted))
    page = page_of(names, request, lambda name: name)
    return Page([_partition(name, runs[name]) for name in page.items], page.next_token)


def _partition_name(name: str) -> str:
    """Return a partition's name as Paimon spells it, ``day=2024-05-01/shop=b``, from the JSON of its values."""
    values = json.loads(name).items()
    return "/".join(f"{column}={value if isinstance(value, str) else json.dumps(value)}" for column, value in values)


def _runs_of(snapshot: Snapshot | None) -> dict[str, list[Run]]:
    by_partition: dict[str, list[Run]] = {}
    for run in snapshot.runs if snapshot else ():
        if run.partition is not None:
            by_partition.setdefault(run.partition, []).append(run)
    return by_partition


def _partition(name: str, runs: Sequence[Run]) -> Partition:
    return Partition(
        json.loads(name),
        sum(run.rows for run in runs),
        sum(len(run.files) for run in runs),
        sum(run.size_bytes for run in runs),
        len(runs),
        max((run.changed_at for run in runs if run.changed_at), default=None),
    )


def drop_partitions(database: CatalogDatabase, name: tuple[str, str], specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Drop every partition of the table ``name`` (database, table) that one of ``specs`` (some or all partition
    columns, values as JSON or text) matches.

    Return the dropped partitions as JSON texts. Staged batches stay staged, and their merge creates a dropped
    partition again. Raise ``Invalid`` with every fault of the specs.
    """
    with database.reading() as repository:
        table = repository.tables.get(*name)
    wanted = _decoded_specs(table.schema, specs)
    return _drop(database, table, lambda values, _: any(spec.items() <= values.items() for spec in wanted))


def expire_partitions(database: CatalogDatabase, table: Table, now: datetime | None = None) -> list[str]:
    """Drop the partitions that ``partition.expiration-time`` no longer keeps; return them as JSON texts."""
    options = table.schema.parsed
    if options["partition.expiration-time"] is None or not table.schema.partition_keys:
        return []
    with database.reading() as repository:
        moment = now or repository.now()

    def outdated(values: Mapping[str, Any], changed_at: datetime | None) -> bool:
        return expired(options, table.schema.partition_keys, values, changed_at, moment)

    try:
        return _drop(database, table, outdated)
    except NotFound:
        return []  # the table was dropped meanwhile


def _drop(
    database: CatalogDatabase, table: Table, unwanted: Callable[[Mapping[str, Any], datetime | None], bool]
) -> list[str]:
    """Commit the table without its ``unwanted`` partitions (by values and last change)."""

    def prepare(_: Repository, snapshot: Snapshot | None) -> Commit[list[str]] | None:
        by_partition = _runs_of(snapshot)
        dropped = [
            name for name, runs in by_partition.items() if unwanted(json.loads(name), _partition(name, runs).changed_at)
        ]
        if snapshot is None or not dropped:
            return None
        base = snapshot

        def commit(repository: Repository) -> list[str]:
            repository.snapshots.drop_partitions(base, dropped)
            return sorted(dropped)

        return commit

    return commit_on_current(database, table.id, prepare) or []


def _decoded_specs(schema: TableSchema, specs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the specs with their values as ``partition_text`` writes them."""
    faults: list[Violation] = []
    decoded: list[dict[str, Any]] = []
    for index, spec in enumerate(specs):
        pointer = f"/specs/{index}"
        if not spec:
            message = "a spec names at least one partition column"
            faults.append(Violation(pointer, FaultCode.MISSING, message, f"partition columns: {_names(schema)}"))
        decoded.append(
            {
                name: _decoded(schema, name, value, f"{pointer}/{escape_pointer(name)}", faults)
                for name, value in spec.items()
            }
        )
    if faults:
        raise Invalid("the partitions are not valid", code=ErrorCode.INVALID_REQUEST, violations=faults)
    return decoded


def _decoded(schema: TableSchema, name: str, value: Any, pointer: str, faults: list[Violation]) -> Any:
    if name not in schema.partition_keys:
        message = f"{name!r} is not a partition column"
        faults.append(Violation(pointer, FaultCode.UNKNOWN_COLUMN, message, f"partition columns: {_names(schema)}"))
        return None
    data_type = schema.by_name[name].type
    try:
        read = data_type.text_decoder(value) if isinstance(value, str) else data_type.decoder(value)
        return data_type.encoder(read)
    except ValueFault as fault:
        faults.append(Violation(pointer, fault.code, f"partition column {name!r}: {fault}", fault.fix, column=name))
        return None


def _names(schema: TableSchema) -> str:
    return some_of(schema.partition_keys) or "none, the table has no partitionKeys"
