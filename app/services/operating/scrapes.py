"""Metrics that are read from catalog and disk at each scrape."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain as chained
from pathlib import Path

from cryptography import x509

from app import __version__
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.upkeep.stats import StagedTable
from app.core.errors import KeyfoldError
from app.core.table.upkeep.overdue import Overdue, OverdueReason
from app.files.layout import Warehouse
from app.files.writable import free_bytes, free_bytes_at
from app.services.merging.overdue import overdue_tables
from app.services.publishing.publications import seconds_behind
from app.storage.images import Images
from app.telemetry.entries import OTHERS, SPARK_SERVES, Measured
from app.telemetry.exposition import Reading


def build_info(database: CatalogDatabase) -> Reading:
    """Return the versions of the parts that run here."""
    return Reading(Measured.BUILD, (__version__, platform.python_version(), database.kind), 1.0)


def scrape_readings(
    database: CatalogDatabase, warehouse: Warehouse, images: Images, most_tables: int, chain: Path | None = None
) -> list[Reading]:
    """Return the gauges of a scrape: the largest ``most_tables`` staging areas and the rest together; failing, waiting
    and overdue tables; the lag of publications; records set aside and damaged files; the age of backups; the expiry of
    tokens and of the certificate in ``chain``; images and disk space of this machine. If the catalog does not answer,
    only that is reported.
    """
    readings = [*_images(images), *_rooms(warehouse, images), *certificate_expiry(chain)]
    try:
        with database.reading() as repository:
            areas, failing = staged_areas(repository, most_tables), repository.stats.failing_tables()
            waiting = Reading(Measured.WAITING_TABLES, (), repository.stops.count())
            readings += [*_troubles(repository), *_ages(repository)]
            readings += [
                Reading(Measured.PUBLISHED_BEHIND, (form,), age) for form, age in seconds_behind(repository).items()
            ]
            late = overdue_tables(repository, spark_answers=database.metrics.spark in SPARK_SERVES)
    except KeyfoldError:
        return [*readings, Reading(Measured.CATALOG_UP, (), 0.0)]
    troubled = [Reading(Measured.FAILING_TABLES, (), failing), waiting, *_overdue(late)]
    return [*readings, Reading(Measured.CATALOG_UP, (), 1.0), *troubled, *areas]


def staged_areas(repository: Repository, most_tables: int) -> list[Reading]:
    """Return the largest ``most_tables`` staging areas, and the sum of all others."""
    shares, now = _shares(repository.stats.staged_tables(), most_tables), repository.now().timestamp()
    return [*chained.from_iterable(_area(names, tables, now) for names, tables in shares)]


def _troubles(repository: Repository) -> Iterator[Reading]:
    """Yield the gauges of problems that need an operator."""
    yield Reading(Measured.SET_ASIDE_BATCHES, (), repository.stats.set_aside_batches())
    yield Reading(Measured.SET_ASIDE_EVENTS, (), repository.set_aside_events.count())
    yield Reading(Measured.DAMAGED_FILES, (), repository.stats.damaged_files())
    since, now = repository.stats.unclaimed_since(), repository.now()
    yield Reading(Measured.UNCLAIMED_SECONDS, (), 0.0 if since is None else max(0.0, (now - since).total_seconds()))


def _ages(repository: Repository) -> Iterator[Reading]:
    """Yield the age of the last backup, and the expiry of the next token, if there is one."""
    now, backup, expiry = repository.now(), repository.tokens.backed_up_at(), repository.tokens.next_expiry()
    if backup is not None:
        yield Reading(Measured.BACKUP_AGE, (), max(0.0, (now - backup).total_seconds()))
    if expiry is not None:
        yield Reading(Measured.EXPIRES_SECONDS, ("token",), (expiry - now).total_seconds())


def certificate_expiry(chain: Path | None) -> list[Reading]:
    """Return when the certificate in a PEM file expires; empty without one, or if the file cannot be read."""
    if chain is None:
        return []
    try:
        ends = x509.load_pem_x509_certificate(chain.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return []
    return [Reading(Measured.EXPIRES_SECONDS, ("certificate",), (ends - datetime.now(UTC)).total_seconds())]


def _overdue(tables: Sequence[Overdue]) -> Iterator[Reading]:
    counts = Counter(table.reason for table in tables)
    yield from (Reading(Measured.OVERDUE_TABLES, (reason,), counts[reason]) for reason in OverdueReason)


def _images(images: Images) -> Iterator[Reading]:
    count, size = images.on_disk()
    yield Reading(Measured.IMAGES, (), count)
    yield Reading(Measured.IMAGE_BYTES, (), size)


def _rooms(warehouse: Warehouse, images: Images) -> Iterator[Reading]:
    rooms = {"warehouse": free_bytes(warehouse), "data": free_bytes_at(str(images.folder.parent))}
    yield from (Reading(Measured.FREE_BYTES, (disk,), room) for disk, room in rooms.items() if room is not None)


def _shares(staged: Sequence[StagedTable], most_tables: int) -> Iterator[tuple[tuple[str, str], Sequence[StagedTable]]]:
    for staged_table in staged[:most_tables]:
        yield (staged_table.database, staged_table.table), [staged_table]
    yield (OTHERS, OTHERS), staged[most_tables:]


def _area(names: tuple[str, str], tables: Sequence[StagedTable], now: float) -> Iterator[Reading]:
    areas = [table.staged for table in tables]
    yield Reading(Measured.STAGED_BATCHES, names, sum(area.batches for area in areas))
    yield Reading(Measured.STAGED_RECORDS, names, sum(area.records for area in areas))
    yield Reading(Measured.STAGED_BYTES, names, sum(area.size_bytes for area in areas))
    oldest = min((area.oldest_accepted_at for area in areas if area.oldest_accepted_at), default=None)
    yield Reading(Measured.STAGED_AGE, names, max(0.0, now - oldest.timestamp()) if oldest else 0.0)
