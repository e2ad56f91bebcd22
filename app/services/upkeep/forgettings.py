"""Forgettings: requested, listed, and completed when no file is left that may hold their keys (docs/decisions/0036)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, ErrorCode, Invalid
from app.core.table.calendar import later
from app.core.table.history import CHANGELOG_FOLDER, HISTORY_FOLDER, Table
from app.core.table.keys import keys_from_json
from app.core.table.names import name_violations
from app.core.table.published import Format
from app.core.table.upkeep.damage import DamagedFile
from app.core.table.upkeep.forgetting import Forgetting, Remnant, RemnantKind, prints_of
from app.files.folders import Entry, entries
from app.files.layout import Warehouse, table_folder
from app.services.publishing.publications import request_version
from app.services.shared.damage import noted
from app.services.shared.each_table import faults_kept
from app.services.shared.executor import MergeSite
from app.services.shared.pages import Page, PageRequest, page_of
from app.services.upkeep.forgotten_keys import release
from app.services.upkeep.sweeps import CLOCK_SKEW, GRACE, NamedOfTable, is_garbage_run, mark_run, named_of_table
from app.storage.iceberg.kept import is_live
from app.telemetry.entries import Upkeep


def ask_to_forget(
    repository: Repository,
    table: Table,
    keys: Sequence[Mapping[str, Any]],
    requested_by: str,
    reference: str | None = None,
) -> Forgetting:
    """Request that keys (JSON objects) are forgotten, in all records that were accepted until now.

    ``reference`` is the caller's name for the request: the keys are not stored. Raise ``Invalid`` with the faults of
    all keys, and ``Conflict`` if a publication that is turned off still keeps files.
    """
    faults = list(name_violations(reference, "/reference", "reference")) if reference is not None else []
    try:
        read = keys_from_json(table.schema, keys, "/keys")
    except Invalid as invalid:
        raise Invalid(invalid.message, code=invalid.code, violations=[*invalid.violations, *faults]) from invalid
    if faults:
        raise Invalid(faults[0].message, violations=faults)
    for form in Format:
        if not table.schema.parsed[form.publish] and repository.published.newest(table.id, form) is not None:
            raise Conflict(
                f"{form.publish} of {table.full_name} is turned off, so the files of its last version, with the keys,"
                " are never removed; turn it on, then forget the keys",
                code=ErrorCode.PUBLICATION_STOPPED,
            )
    salt = secrets.token_hex(16)
    prints = list(dict.fromkeys(prints_of(table.schema, read, salt)))
    return repository.forgettings.add(table.id, salt, prints, requested_by, reference)


def list_forgettings(repository: Repository, table: Table, request: PageRequest) -> Page[Forgetting]:
    """Return a page of the table's forgettings, newest first. Raise ``Invalid``."""
    listed = repository.forgettings.page(table.id, after=request.after, limit=request.and_one_more)
    return page_of(listed, request, lambda forgetting: forgetting.id)


logger = logging.getLogger(__name__)
_VERSIONS = {Format.DELTA: RemnantKind.DELTA_VERSION, Format.ICEBERG: RemnantKind.ICEBERG_VERSION}


def end_forgettings(site: MergeSite, grace: timedelta = GRACE) -> int:
    """Check which files may still hold forgotten keys, after a sweep that left files younger than ``grace``. Return
    how many forgettings are complete. Files that cannot be listed now are checked after the next sweep.
    """
    with site.database.reading() as repository:
        waiting = repository.forgettings.unended()
    ended = 0
    for forgetting in waiting:
        with faults_kept(site.database.metrics, Upkeep.FORGETTING, forgetting.table_id):
            ended += _end(site, forgetting, grace)
    return ended


def _end(site: MergeSite, forgetting: Forgetting, grace: timedelta) -> bool:
    remnants = [
        *_set_aside(site.database, forgetting),
        *_held(site, forgetting),
        *_files(site.database, site.warehouse, forgetting, grace),
    ]
    with site.database.transaction(wakes=False) as repository:
        now = repository.now()
        # By then every machine has dropped the images of its runs, and every reader has closed its files.
        over = forgetting.forgotten_at is not None and now >= forgetting.forgotten_at + grace
        if remnants or not over:
            repository.forgettings.note_remnants(forgetting, remnants)
            return False
        repository.forgettings.end(forgetting)
    logger.info(
        "forgetting %s is over: nothing that is kept of table %s has its keys", forgetting.id, forgetting.table_id
    )
    return True


def _set_aside(database: CatalogDatabase, forgetting: Forgetting) -> Iterator[Remnant]:
    """Yield the table's events that were set aside before the request."""
    with database.reading() as repository:
        count, first = repository.set_aside_events.before(forgetting.table_id, forgetting.requested_at)
    if count:
        yield Remnant(RemnantKind.SET_ASIDE_EVENT, count, first)


def _held(site: MergeSite, forgetting: Forgetting) -> Iterator[Remnant]:
    """Yield the older published versions that keep files with the keys."""
    try:
        held = release(site, forgetting, partial(mark_run, site.warehouse)) if forgetting.held else ()
    except DamagedFile as error:
        noted(site.database, error)
        yield Remnant(RemnantKind.DAMAGED_FILE, 1, error.file.path)
        return
    if held:
        with site.database.transaction() as repository:
            versions = [_versions(repository, forgetting.table_id, form, held) for form in Format]
            yield from [version for version in versions if version.count] or versions[:1]


def _versions(repository: Repository, table_id: str, form: Format, held: Sequence[int]) -> Remnant:
    """Return the versions of ``held`` snapshots; request a newer version if there is none."""
    retained = repository.tables.existing(table_id).schema.parsed[form.retained]
    versions = repository.published.page(table_id, form)
    holding = [version for version in versions if not version.keeps.isdisjoint(held)]
    after = next((version for version in versions if version.version > holding[-1].version), None) if holding else None
    if holding and after is None and not repository.tasks.compacts(table_id):
        request_version(repository, table_id, form)
    until = None if after is None else later(after.committed_at, retained)
    return Remnant(_VERSIONS[form], len(holding), f"version {holding[0].version}" if holding else "", until)


def _files(
    database: CatalogDatabase, warehouse: Warehouse, forgetting: Forgetting, grace: timedelta
) -> Iterator[Remnant]:
    """Yield the older files that nothing names any more, with or without the keys."""
    root = warehouse.path(*table_folder(forgetting.table_id))
    files = [entry for entry in entries(warehouse, root, recursive=True) if not entry.is_folder]
    # The names are read after the listing: named files that are not in the list are new.
    named = named_of_table(database, forgetting.table_id)
    before = (forgetting.forgotten_at or forgetting.requested_at) + CLOCK_SKEW
    left = [file for file in files if _is_left(file.path[len(root) + 1 :].split("/"), named) and _is_from(file, before)]
    if left:
        newest = max(remnant.changed_at for remnant in left if remnant.changed_at is not None)
        yield Remnant(RemnantKind.FILE, len(left), left[0].path[len(root) - len(forgetting.table_id) :], newest + grace)


def _is_from(entry: Entry, before: datetime) -> bool:
    return entry.changed_at is not None and entry.changed_at < before


def _is_left(path: Sequence[str], named: NamedOfTable) -> bool:
    """Return whether a file, by its path in the table's folder, is named by no snapshot and no batch."""
    match path:
        case ["staging", name]:
            return name not in named.staging_files
        case [folder, name] if folder == HISTORY_FOLDER:
            return name not in named.history_files
        case [folder, changelog, *_] if folder == CHANGELOG_FOLDER:
            return changelog not in named.changelog_folders
        case ["runs", *inner]:
            return any(is_garbage_run(tuple(inner[:depth]), named) for depth in (1, 2))
        case ["iceberg", "runs", folder, name]:  # bounds of columns in manifests
            return not is_live(folder, name, named.run_ids, named.changelog_folders)
    return False
