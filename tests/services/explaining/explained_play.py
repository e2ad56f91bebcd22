"""A table that is played with, what it must come to by the oracle, and what an explanation of it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any

from app.catalog.database import CatalogDatabase
from app.core.plan.checks.option_checks import check_options
from app.core.table.history import Table
from app.services.explaining.explain import MOST_STEPS, Question, explain_row
from app.services.explaining.explained import ExplainedRow, ExplainedStep, StepKind
from app.services.rows.lookups import Consistency, Images, get_rows
from app.services.shared.executor import MergeSite
from app.services.snapshots.snapshots import roll_back
from app.services.tables.tables import alter_table
from tests import oracle
from tests.builders import schema_of
from tests.histories import rewritten, widened_table
from tests.oracle import Change, TableCase
from tests.oracle_sketches import MEANINGS
from tests.services.builders import add_table, compact, merge_staged, post

Place = tuple[int, int]  # batch number, position


@dataclass(frozen=True)
class Posted:
    """A change that was posted, where it is, and the key that it is of."""

    place: Place
    change: Change
    key: tuple[Any, ...]


@dataclass
class Play:
    """The table ``case``, and what of the changes is in effect at each of its snapshots."""

    site: MergeSite
    images: Images
    case: TableCase
    table: Table
    staged: list[Posted] = field(default_factory=list)
    at: dict[int, list[Posted]] = field(default_factory=lambda: {0: []})
    called: dict[str, str] = field(default_factory=dict)  # by the column of ``case`` what it is called by now
    written: list[Mapping[str, Callable[[Any], Any]]] = field(default_factory=list)  # how values are by now
    batches: int = 0

    @classmethod
    def begin(cls, site: MergeSite, images: Images, case: TableCase) -> Play:
        """A new table ``shop.wide``."""
        return cls(site, images, case, add_table(site.database, schema_of(case)))

    @property
    def database(self) -> CatalogDatabase:
        """The catalog."""
        return self.site.database

    def now(self) -> Table:
        """The table as it is by now."""
        with self.database.reading() as repository:
            return repository.tables.existing(self.table.id)

    @property
    def current(self) -> int:
        """The number of the current snapshot, 0 before the first."""
        return self.now().snapshot_id or 0

    def post(self, changes: Sequence[Change]) -> None:
        """One batch of changes of the table as it began."""
        types = {column.name: column.type for column in self.now().schema.columns}
        records = []
        for written in self.written:
            changes = [rewritten(change, written) for change in changes]
        for one in changes:
            shown = {
                self.called.get(name, name): types[self.called.get(name, name)].encoder(value)
                for name, value in one.values.items()
                if one.named is None or name in one.named
            }
            records.append({"_kind": one.kind, **shown})
        post(self.database, self.site.warehouse, *records)
        self.batches += 1
        for position, one in enumerate(changes):
            if one.add or not oracle.dropped(self.case.options, one):
                key = tuple(one.values[name] for name in self.case.primary_key)
                self.staged.append(Posted((self.batches, position), one, key))

    def merge(self) -> None:
        """Merge what is staged."""
        before = self.current
        merge_staged(self.database, self.site.warehouse, self.table.id)
        if self.current != before:
            self.at[self.current] = [*self.at[before], *self.staged]
            self.staged = []

    def compact(self) -> None:
        """Combine all runs."""
        before = self.current
        compact(self.site, self.table)
        self.at[self.current] = self.at[before]

    def roll_back(self, number: int) -> None:
        """Go back to a snapshot."""
        with self.database.transaction() as repository:
            roll_back(repository, self.now(), number=number)
        self.at[self.current] = self.at[number]

    def forget(self) -> None:
        """Let the history begin with what is there now."""
        with self.database.transaction() as repository:
            repository.tables.lock(self.table.id)
            repository.history.begin_after(self.table.id, self.current, [self.current])
            repository.rewrites.forget(self.table.id, self.current)

    def widen(self, random: Random) -> None:
        """Wider types for some columns; what came before is written in them."""
        wide, written = widened_table(random, self.case)
        if check_options(schema_of(wide)):
            return  # a horizon that cannot measure wider sequences
        now = dict(self.case.columns)
        self.alter(
            *(
                {"action": "updateColumnType", "fieldNames": [self.called.get(name, name)], "newDataType": kind}
                for name, kind in wide.columns
                if kind != now[name]
            )
        )
        self.case = wide
        self.written.append(written)
        again = lambda all_of: [replace(one, change=rewritten(one.change, written)) for one in all_of]  # noqa: E731
        self.staged = again(self.staged)
        self.at = {number: again(posted) for number, posted in self.at.items()}

    def rename(self, column: str, name: str) -> None:
        """Call a column otherwise."""
        self.alter({"action": "renameColumn", "fieldNames": [self.called.get(column, column)], "newName": name})
        self.called[column] = name

    def alter(self, *changes: Mapping[str, Any]) -> None:
        """Change the table's schema."""
        if changes:
            alter_table(self.database, ("shop", "wide"), list(changes))

    def of_key(self, key: tuple[Any, ...], number: int | None = None) -> list[Posted]:
        """What is in effect of a key in a snapshot; now, with what is staged, without one."""
        posted = [*self.at[self.current], *self.staged] if number is None else self.at[number]
        return [one for one in posted if one.key == key]

    def every_key(self) -> list[tuple[Any, ...]]:
        """Every key that was ever posted."""
        posted = [*self.staged, *(one for of_snapshot in self.at.values() for one in of_snapshot)]
        return list(dict.fromkeys(one.key for one in posted))

    def explain(self, key: tuple[Any, ...], **asked: Any) -> ExplainedRow:
        """The explanation of a key."""
        question = Question([str(value) for value in key], **{"steps": MOST_STEPS, **asked})
        return explain_row(self.database, self.images, ("shop", "wide"), question)

    def looked_up(self, key: tuple[Any, ...]) -> dict[str, Any] | None:
        """What a lookup answers now."""
        with self.database.reading() as repository:
            table = repository.tables.existing(self.table.id)
            return get_rows(repository, self.images, table, [key], Consistency.LATEST)[0].row

    def expected(self, posted: Sequence[Posted]) -> dict[str, Any] | None:
        """What changes of one key come to, by the oracle, as JSON; without columns whose bytes are not unique."""
        row = oracle.fold(self.case, [one.change for one in posted])
        return None if row is None else self.as_json(row)

    def as_json(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the oracle as JSON, by what the columns are called now."""
        return {
            self.called.get(name, name): self.shown(name, value)
            for name, value in row.items()
            if not is_sketch(self.case, name)
        }

    def shown(self, name: str, value: Any) -> Any:
        """A value of a column as JSON."""
        kind = self.now().schema.by_name[self.called.get(name, name)].type
        if isinstance(value, Decimal):
            value = value.quantize(Decimal(1).scaleb(-kind.scale))
        return kind.encoder(value)


def is_sketch(table: TableCase, column: str) -> bool:
    """Whether the column holds a bitmap or a sketch, whose bytes are not unique."""
    return oracle.function_of(table, column) in MEANINGS


def records_of(explained: ExplainedRow) -> list[ExplainedStep]:
    """The steps that are records."""
    return [step for step in explained.steps if step.what is StepKind.RECORD]


def places_of(explained: ExplainedRow) -> list[Place]:
    """Where the records of the steps are."""
    return [(step.record.number, step.record.position) for step in records_of(explained) if step.record]
