"""Forgettings: the keys to forget, the progress, and the replacements of files that held them (docs/decisions/0036)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import (
    batches,
    changelog_files,
    forgettings,
    history_files,
    merges,
    runs,
    snapshot_runs,
    snapshots,
)
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.snapshots.snapshots import Snapshots
from app.catalog.tables.tables import Tables
from app.core.errors import Invalid, NotFound, Resource, not_found
from app.core.table.history import Batch, ChangelogFile, HistoryFile, Run, TaskState
from app.core.table.upkeep.forgetting import BLANKED, Forgetting, KeyPrint, Remnant, RemnantKind

_PENDING = forgettings.c.forgotten_at.is_(None)
_UNENDED = forgettings.c.gone_at.is_(None)
_BATCH: Final = ("file", "records", "size_bytes", "digest")
_HISTORY: Final = ("name", "records", "size_bytes", "digest", "block_digests")
_CHANGES: Final = ("name", "rows", "size_bytes", "digest", "block_digests")


def _forgetting(row: AnyRow) -> Forgetting:
    values = dict(row._mapping)
    values["prints"] = [KeyPrint(*members) for members in values["prints"]]
    values["remnants"] = [_remnant(remnant) for remnant in values["remnants"]]
    return Forgetting(**values)


def _remnant(stored: Mapping[str, Any]) -> Remnant:
    until = stored["until"]
    at = None if until is None else datetime.fromtimestamp(until, UTC)
    return Remnant(RemnantKind(stored["kind"]), stored["count"], stored["example"], at)


def _stored(remnants: Sequence[Remnant]) -> list[dict[str, Any]]:
    return [
        {
            "kind": remnant.kind.value,
            "count": remnant.count,
            "example": remnant.example,
            "until": None if remnant.until is None else remnant.until.timestamp(),
        }
        for remnant in remnants
    ]


@dataclass(frozen=True)
class Replacements:
    """The replacements of files that held keys: runs and history files by id and name, None if nothing is left; the
    changelogs of snapshots by number; batches in their new form.
    """

    runs: Mapping[str, Run | None]
    changelogs: Mapping[int, Sequence[ChangelogFile]]
    history: Mapping[str, HistoryFile]
    batches: Sequence[Batch]

    def __bool__(self) -> bool:
        """Return whether there is any replacement."""
        return bool(self.runs or self.changelogs or self.history or self.batches)


@dataclass(frozen=True)
class Forgettings:
    """Reads and writes forgettings."""

    transaction: Transaction
    tables: Tables
    snapshots: Snapshots

    def add(
        self, table_id: str, salt: str, prints: Sequence[KeyPrint], requested_by: str, reference: str | None
    ) -> Forgetting:
        """Return a new forgetting, for all records that were accepted until now. Raise ``NotFound`` if the table was
        dropped.
        """
        until = self.tables.lock(table_id).last_batch_number
        now = self.transaction.now()
        new = Forgetting(uuid.uuid4().hex, table_id, salt, prints, len(prints), until, now, requested_by, reference)
        values = {
            "id": new.id,
            "table_id": table_id,
            "salt": salt,
            "prints": [[key_print.token, key_print.digest] for key_print in prints],
            "keys": new.keys,
            "until_batch": until,
            "requested_at": now,
            "requested_by": requested_by,
            "reference": reference,
            "held": [],
            "remnants": [],
        }
        self.transaction.execute(forgettings.insert().values(values))
        return new

    def get(self, table_id: str, forgetting_id: str) -> Forgetting:
        """Return the table's forgetting with this id. Raise ``NotFound``."""
        condition = (forgettings.c.table_id == table_id) & (forgettings.c.id == forgetting_id)
        row = self.transaction.execute(sa.select(forgettings).where(condition)).first()
        if row is None:
            raise not_found(Resource.FORGETTING, forgetting_id)
        return _forgetting(row)

    def page(self, table_id: str, *, after: str | None = None, limit: int) -> list[Forgetting]:
        """Return up to ``limit`` forgettings of the table, newest first, from the one after the id ``after`` on.

        Raise ``Invalid`` if ``after`` does not exist.
        """
        query = sa.select(forgettings).where(forgettings.c.table_id == table_id)
        place = (forgettings.c.requested_at, forgettings.c.id)
        if after is not None:
            try:
                last = self.get(table_id, after)
            except NotFound as error:
                raise Invalid("the page token is not from this list; send a nextPageToken of it, or none") from error
            at = sa.literal(last.requested_at, forgettings.c.requested_at.type)
            query = query.where(sa.tuple_(*place) < sa.tuple_(at, last.id))
        query = query.order_by(*(column.desc() for column in place)).limit(limit)
        return [_forgetting(row) for row in self.transaction.execute(query)]

    def pending(self, table_id: str) -> list[Forgetting]:
        """Return the table's forgettings that have not begun, the oldest first."""
        query = sa.select(forgettings).where(forgettings.c.table_id == table_id, _PENDING)
        return [_forgetting(row) for row in self.transaction.execute(query.order_by(forgettings.c.requested_at))]

    def tables_pending(self) -> list[str]:
        """Return the ids of the tables with pending forgettings."""
        return list(self.transaction.execute(sa.select(forgettings.c.table_id).where(_PENDING).distinct()).scalars())

    def pending_since(self, table_id: str) -> datetime | None:
        """Return when the oldest pending one was requested; None if there is none."""
        oldest = sa.select(sa.func.min(forgettings.c.requested_at)).where(forgettings.c.table_id == table_id, _PENDING)
        since: datetime | None = self.transaction.execute(oldest).scalar_one()
        return since

    def unended(self, table_id: str | None = None) -> list[Forgetting]:
        """Return the forgettings whose keys are unreadable but not yet gone from all files, of one table or all."""
        query = sa.select(forgettings).where(_UNENDED, sa.not_(_PENDING))
        if table_id is not None:
            query = query.where(forgettings.c.table_id == table_id)
        return [_forgetting(row) for row in self.transaction.execute(query.order_by(forgettings.c.requested_at))]

    def any_after(self, table_id: str, snapshot_id: int) -> bool:
        """Return whether keys were forgotten in a snapshot after the one of this number."""
        later = (forgettings.c.table_id == table_id) & (forgettings.c.snapshot_id > snapshot_id)
        return self.transaction.execute(sa.select(forgettings.c.id).where(later).limit(1)).first() is not None

    def naming(self, table_id: str, run_ids: Collection[str]) -> set[int]:
        """Return the snapshots that name one of the runs."""
        condition = (snapshot_runs.c.table_id == table_id) & snapshot_runs.c.run_id.in_(run_ids)
        return set(
            self.transaction.execute(sa.select(snapshot_runs.c.snapshot_id).where(condition).distinct()).scalars()
        )

    def replace_runs(self, table_id: str, replaced: Mapping[str, Run | None], numbers: Collection[int]) -> None:
        """Replace runs in the snapshots of these ``numbers``. Of the old and the new runs, those that no snapshot
        names are deleted: a published version may still keep all snapshots of an old one. The caller holds the
        table's lock.
        """
        new_runs = [run for run in replaced.values() if run is not None]
        self.snapshots.add_runs(table_id, new_runs)
        condition = (snapshot_runs.c.table_id == table_id) & snapshot_runs.c.snapshot_id.in_(numbers)
        for old, new in replaced.items():
            named = condition & (snapshot_runs.c.run_id == old)
            if new is None:
                self.transaction.execute(snapshot_runs.delete().where(named))
            else:
                self.transaction.execute(snapshot_runs.update().where(named).values(run_id=new.id))
        self.note_rewritten(table_id, numbers)
        named_still = sa.select(snapshot_runs.c.run_id).where(snapshot_runs.c.table_id == table_id)
        both = [*replaced, *(run.id for run in new_runs)]
        gone = (runs.c.table_id == table_id) & runs.c.id.in_(both) & runs.c.id.not_in(named_still)
        self.transaction.execute(runs.delete().where(gone))

    def note_rewritten(self, table_id: str, numbers: Collection[int]) -> None:
        """Mark these snapshots as changed, so that caches of them are invalid."""
        changed = (snapshots.c.table_id == table_id) & snapshots.c.id.in_(numbers)
        self.transaction.execute(snapshots.update().where(changed).values(rewritten=snapshots.c.rewritten + 1))
        named = sa.select(snapshot_runs.c.run_id).where(
            snapshot_runs.c.table_id == table_id, snapshot_runs.c.snapshot_id == sa.bindparam("number")
        )
        for number, schema_id in self.transaction.execute(
            sa.select(snapshots.c.id, snapshots.c.schema_id).where(changed)
        ):
            run_ids = self.transaction.execute(named.order_by(snapshot_runs.c.position), {"number": number}).scalars()
            checksum = checksums.of_snapshot(table_id, number, schema_id, [*run_ids])
            condition = (snapshots.c.table_id == table_id) & (snapshots.c.id == number)
            self.transaction.execute(snapshots.update().where(condition).values(checksum=checksum))

    def replace_files(self, table_id: str, by: Replacements) -> None:
        """Replace the files in ``by`` that are not of runs. The caller holds the table's lock."""
        for batch in by.batches:
            values = {**{name: getattr(batch, name) for name in _BATCH}, "checksum": checksums.of_batch(batch)}
            self.transaction.execute(batches.update().where(batches.c.id == batch.id).values(values))
        for name, file in by.history.items():
            condition = (history_files.c.table_id == table_id) & (history_files.c.name == name)
            if file.records:
                new = {column: getattr(file, column) for column in _HISTORY}
                self.transaction.execute(history_files.update().where(condition).values(new))
            else:
                self.transaction.execute(history_files.delete().where(condition))
        for number, files in by.changelogs.items():
            self._replace_changelog(table_id, number, files)
        self.note_rewritten(table_id, set(by.changelogs))

    def _replace_changelog(self, table_id: str, number: int, files: Sequence[ChangelogFile]) -> None:
        condition = (changelog_files.c.table_id == table_id) & (changelog_files.c.snapshot_id == number)
        self.transaction.execute(changelog_files.delete().where(condition))
        key = {"table_id": table_id, "snapshot_id": number}
        values = [
            {**key, "position": place, **{name: getattr(file, name) for name in _CHANGES}}
            for place, file in enumerate(files)
        ]
        if values:
            self.transaction.execute(changelog_files.insert(), values)

    def blank_texts(self, table_id: str) -> None:
        """Blank the errors of failed tasks and the faults of faulty batches of the table: they may name a key."""
        self.transaction.erase()
        over = merges.c.state.in_((TaskState.FAILED, TaskState.CANCELLED)) & merges.c.error.is_not(None)
        self.transaction.execute(merges.update().where(merges.c.table_id == table_id, over).values(error=BLANKED))
        faulty = (batches.c.table_id == table_id) & batches.c.fault.is_not(None)
        self.transaction.execute(batches.update().where(faulty).values(fault=BLANKED))

    def note_forgotten(
        self, forgetting: Forgetting, snapshot_id: int | None, rows: int, records: int, held: Collection[int]
    ) -> None:
        """Record that readers of the table no longer find its keys."""
        self._change(
            forgetting.id,
            forgotten_at=self.transaction.now(),
            snapshot_id=snapshot_id,
            rows=rows,
            records=records,
            held=sorted(held),
            remnants=[],
        )

    def note_remnants(self, forgetting: Forgetting, remnants: Sequence[Remnant]) -> None:
        """Store which files and versions may still hold its keys."""
        self._change(forgetting.id, remnants=_stored(remnants))

    def note_held(self, forgetting: Forgetting, held: Collection[int]) -> None:
        """Store the older snapshots that still hold its keys."""
        self._change(forgetting.id, held=sorted(held))

    def end(self, forgetting: Forgetting) -> None:
        """End the forgetting, once nothing holds its keys. Erase the salt and the digests of the keys."""
        self.transaction.erase()
        now = self.transaction.now()
        self._change(forgetting.id, gone_at=now, salt="", prints=[], held=[], remnants=[])

    def _change(self, forgetting_id: str, **values: Any) -> None:
        self.transaction.execute(forgettings.update().where(forgettings.c.id == forgetting_id).values(values))
