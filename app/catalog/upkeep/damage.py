"""Recorded damage: files that the catalog names and that are missing or damaged, and since when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa

from app.catalog.batches.history import unfiled
from app.catalog.shared.models import batches, changelog_files, damages, data_files, history_files, runs
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import Tables
from app.core.errors import NotFound
from app.core.table.history import CHANGELOG_FOLDER, HISTORY_FOLDER, UNMERGED
from app.core.table.upkeep.damage import Damage, DamagedFile, FileKind, NamedFile

_COLUMNS = tuple(damages.c[field.name] for field in fields(Damage))


_history_path = history_files.c.table_id + f"/{HISTORY_FOLDER}/" + history_files.c.name
_changelog_path = changelog_files.c.table_id + f"/{CHANGELOG_FOLDER}/" + changelog_files.c.name


def _needed(columns: Any) -> Mapping[FileKind, sa.ColumnElement[bool]]:
    """Return for each kind of file the condition that it is still needed: by a staged batch, a run in a snapshot, a
    snapshot's changes, or kept history. ``columns`` are those of the row that names the file.
    """
    changes = changelog_files.c
    return {
        FileKind.STAGING: sa.exists().where(batches.c.id == columns["batch_id"], batches.c.state.in_(UNMERGED)),
        FileKind.RUN: sa.exists().where(runs.c.table_id == columns["table_id"], runs.c.id == columns["run_id"]),
        FileKind.CHANGELOG: sa.exists().where(
            changes.table_id == columns["table_id"],
            changes.snapshot_id == columns["snapshot_id"],
            _changelog_path == columns["path"],
        ),
        FileKind.HISTORY: sa.or_(
            sa.exists().where(batches.c.id == columns["batch_id"], unfiled()),
            sa.exists().where(history_files.c.table_id == columns["table_id"], _history_path == columns["path"]),
        ),
    }


def _rows(file: NamedFile) -> tuple[sa.Table, sa.ColumnElement[bool]]:
    """Return the catalog's table of files of the kind, and the condition for the rows with the owner of ``file``."""
    if file.batch_id is not None:
        return batches, batches.c.id == file.batch_id
    if file.kind is FileKind.HISTORY:
        return history_files, (history_files.c.table_id == file.table_id) & (_history_path == file.path)
    file_table, column, owner = (
        (data_files, data_files.c.run_id, file.run_id)
        if file.kind is FileKind.RUN
        else (changelog_files, changelog_files.c.snapshot_id, file.snapshot_id)
    )
    return file_table, (file_table.c.table_id == file.table_id) & (column == owner)


def _is_needed() -> sa.ColumnElement[bool]:
    return sa.or_(*((damages.c.kind == kind) & condition for kind, condition in _needed(damages.c).items()))


@dataclass(frozen=True)
class Damages:
    """Reads and writes recorded damage."""

    transaction: Transaction
    tables: Tables

    def note(self, errors: Sequence[DamagedFile]) -> None:
        """Record damaged files; for a known one keep the time of the first finding.

        Files of dropped tables are ignored.
        """
        for error in errors:
            try:
                self.tables.lock(error.file.table_id)  # a concurrent record of the same file waits
            except NotFound:
                continue
            self._note(error)

    def _note(self, error: DamagedFile) -> None:
        file = error.file
        values = {"reason": error.reason, "expected": file.expected, "found": error.found}
        condition = (damages.c.table_id == file.table_id) & (damages.c.path == file.path)
        if self.transaction.execute(damages.update().where(condition).values(values)).rowcount:
            return
        identity = {name: value for name, value in asdict(file).items() if name in damages.c}
        self.transaction.execute(damages.insert().values({**identity, **values, "found_at": self.transaction.now()}))

    def clear(self, table_id: str, paths: Collection[str]) -> None:
        """Delete the damage of files that were found intact."""
        well = damages.delete().where(damages.c.table_id == table_id, damages.c.path.in_(paths))
        self.transaction.execute(well)

    def sum_up(self, file: NamedFile, digest: str, block_digests: bytes) -> None:
        """Store the digests of a file that has none yet."""
        file_table, condition = _rows(file)
        sums = {"digest": digest, "block_digests": block_digests}
        values = {name: value for name, value in sums.items() if name in file_table.c}
        name = file_table.c.file if file_table is batches else file_table.c.name
        for row in self.transaction.execute(
            sa.select(name.label("name")).where(condition, file_table.c.digest.is_(None))
        ).all():
            if file.path.endswith(f"/{row.name}"):
                self.transaction.execute(file_table.update().where(condition, name == row.name).values(values))

    def forget_unneeded(self) -> int:
        """Delete the damage of files that nothing needs any more; return how many."""
        return self.transaction.execute(damages.delete().where(sa.not_(_is_needed()))).rowcount

    def is_recorded(self, error: DamagedFile) -> bool:
        """Return whether this file is recorded as damaged for this reason; the digests may differ."""
        query = sa.select(sa.literal(1)).where(
            damages.c.table_id == error.file.table_id,
            damages.c.path == error.file.path,
            damages.c.reason == error.reason,
        )
        return self.transaction.execute(query).first() is not None

    def page(self, table_id: str, *, after: str | None = None, limit: int) -> list[Damage]:
        """Return up to ``limit`` damages of files that are still needed, by path, after the path ``after``."""
        query = sa.select(*_COLUMNS).where(damages.c.table_id == table_id, _is_needed())
        if after is not None:
            query = query.where(damages.c.path > after)
        return [Damage(*row) for row in self.transaction.execute(query.order_by(damages.c.path).limit(limit))]

    def paths(self) -> dict[str, set[str]]:
        """Return the paths of files that are known to be damaged, by table id; tables without damage are left out."""
        by_table: dict[str, set[str]] = defaultdict(set)
        for row in self.transaction.execute(sa.select(damages.c.table_id, damages.c.path)):
            by_table[row.table_id].add(row.path)
        return by_table

    def is_needed(self, file: NamedFile) -> bool:
        """Return whether the catalog still needs the file."""
        return bool(self.transaction.execute(sa.select(_needed(vars(file))[file.kind])).scalar_one())
