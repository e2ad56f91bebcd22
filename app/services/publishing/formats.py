"""The files of published versions, written and removed as each format requires (decisions 31, 53)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.catalog.repository import Repository
from app.catalog.snapshots.published_versions import runs_of
from app.core.table.published import FileCounts, Format, Published, PublishedVersion
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.storage.delta.checkpoints import forget_versions, name_checkpoint, write_checkpoint
from app.storage.delta.log import write_version
from app.storage.iceberg.kept import forget_files, published_files
from app.storage.iceberg.metadata import write_metadata
from app.storage.iceberg.snapshots import write_snapshot

CHECKPOINT_EVERY = 10  # versions, after which a format looks through its files: Delta has a checkpoint then


def published_of(repository: Repository, version: PublishedVersion) -> Published:
    """Return the content that a version shows. Raise ``NotFound`` if the table was dropped."""
    runs = runs_of(version, repository.snapshots.get(version.table_id, version.snapshot_id))
    changes = repository.published.changes_of(version)
    written = {run.schema_id for run in runs} | {change.schema_id for change in changes}
    schemas = {
        schema_id: repository.tables.schema_at(version.table_id, schema_id)
        for schema_id in {*written, version.schema_id}
    }
    return Published(version, schemas[version.schema_id], runs, changes, schemas)


def iceberg_versions(
    repository: Repository, table_id: str, *, up_to: int | None = None
) -> tuple[Sequence[PublishedVersion], Mapping[int, TableSchema]]:
    """Return the versions that are kept, up to the number ``up_to``, and their schemas by id."""
    versions = repository.published.page(table_id, Format.ICEBERG)
    versions = [version for version in versions if up_to is None or version.version <= up_to]
    return versions, {
        number: repository.tables.schema_at(table_id, number) for number in {version.schema_id for version in versions}
    }


@dataclass(frozen=True)
class Kept:
    """The written versions of a table from ``first`` on, in order; those before it expire."""

    written: Sequence[PublishedVersion]

    @property
    def first(self) -> PublishedVersion:
        """The oldest version that is kept."""
        return self.written[0]


Forget = Callable[[Repository, Sequence[PublishedVersion]], None]
"""Remove the files of forgotten versions; ``known`` are those that the catalog has now, under the table's lock."""


Write = Callable[[], FileCounts | None]
"""Write the files of a version. Return what they come to, where later versions say it again."""


class VersionFiles(ABC):
    """The files of a format's versions."""

    @abstractmethod
    def write(self, repository: Repository, warehouse: Warehouse, version: PublishedVersion) -> Write:
        """Return a function that writes the version's files. Only the call itself reads ``repository``."""

    @abstractmethod
    def keep(self, repository: Repository, warehouse: Warehouse, kept: Kept) -> Callable[[], Forget]:
        """Return a function that prepares the removal of versions before ``kept.first`` and returns the removal.

        Only the call itself reads ``repository``, and only the removal runs under the table's lock.
        """


class _DeltaFiles(VersionFiles):
    """A log; it begins with a checkpoint, unless it begins with version 0."""

    def write(self, repository: Repository, warehouse: Warehouse, version: PublishedVersion) -> Write:
        before = repository.published.get(version.table_id, version.format, version.version - 1)
        earlier = None if before is None else published_of(repository, before)
        return partial(write_version, warehouse, published_of(repository, version), earlier)

    def keep(self, repository: Repository, warehouse: Warehouse, kept: Kept) -> Callable[[], Forget]:
        newest = kept.written[-1].version
        numbers = {kept.first.version, max(newest - newest % CHECKPOINT_EVERY, kept.first.version)} - {0}
        checkpoints = [published_of(repository, version) for version in kept.written if version.version in numbers]

        def written() -> Forget:
            sizes = [write_checkpoint(warehouse, version) for version in checkpoints]

            def forget(_: Repository, known: Sequence[PublishedVersion]) -> None:
                last = checkpoints[-1].version if checkpoints else None
                if last is not None and last.version in {version.version for version in known}:
                    name_checkpoint(warehouse, last.table_id, last.version, sizes[-1])
                forget_versions(warehouse, kept.first.table_id, kept.first.version)

            return forget

        return written


class _IcebergFiles(VersionFiles):
    """A list of manifests for each version, and manifests of each run."""

    def write(self, repository: Repository, warehouse: Warehouse, version: PublishedVersion) -> Write:
        published = published_of(repository, version)
        kept, schemas = iceberg_versions(repository, version.table_id, up_to=version.version)
        before = kept[:-1]

        def write() -> FileCounts:
            counts = write_snapshot(warehouse, published, before[-1] if before else None)
            write_metadata(warehouse, [*before, replace(version, counts=counts)], schemas)
            return counts

        return write

    def keep(self, _: Repository, warehouse: Warehouse, kept: Kept) -> Callable[[], Forget]:
        first = kept.first

        def listed() -> Forget:
            # Runs are read after the listing: live files that are not in the list are new.
            files = published_files(warehouse, first.table_id)

            def forget(repository: Repository, known: Sequence[PublishedVersion]) -> None:
                if known and known[0].version < first.version:
                    _, schemas = iceberg_versions(repository, first.table_id)
                    written = [kept for kept in known if kept.version >= first.version and kept.written_at is not None]
                    write_metadata(warehouse, written, schemas)  # without the snapshots whose files now go
                runs = {run for _, run in repository.snapshots.live_run_ids(first.table_id)}
                changelogs = {name.partition("/")[0] for name in repository.changelogs.live_files(first.table_id)}
                forget_files(warehouse, files, first.version, runs, changelogs)

            return forget

        return listed


FILES: Mapping[Format, VersionFiles] = {Format.DELTA: _DeltaFiles(), Format.ICEBERG: _IcebergFiles()}
