"""What clients were answered, and what a table must hold therefore: every acknowledged batch exactly once, whole, in
its order, and nothing of what was never sent whole.

Pure: the service's answers are given to it. What it knows of a batch is what its client was answered; only of one whose
client heard nothing it takes the word of the list of batches, and then asks for all of its records.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.oracle import Change, TableCase, fold

Row = Mapping[str, Any]
Key = tuple[Any, ...]
DELETED = "deleted"
SERIALS = "serials"  # a column that collects the serial of each record: shows which one is lost or doubled


class Outcome(Enum):
    """What the client of a batch knows of it."""

    NOTHING = "nothing"  # no answer came: the batch is there or not
    ACCEPTED = "accepted"
    CUT = "cut"  # its body never ended: it must not be there
    WITHDRAWN = "withdrawn"  # it was accepted, and taken back before a merge had it


@dataclass
class Sent:
    """A batch under its Idempotency-Key."""

    key: str
    records: Sequence[Row]
    outcome: Outcome = Outcome.NOTHING
    number: int = 0  # once it was answered


@dataclass(frozen=True)
class Listed:
    """A batch as the service lists it; ``snapshot`` is the one that merged it."""

    id: str
    key: str | None
    number: int
    state: str
    snapshot: int | None


@dataclass
class Comparison:
    """How a table differs from what it must hold."""

    rows: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        """All of it in words."""
        kinds = {"lost": self.lost, "doubled": self.doubled, "wrong": self.wrong}
        return [f"{kind}: {what}" for kind, every in kinds.items() for what in every]


class Ledger:
    """The batches that were sent to one table. Clients of several threads may write to it."""

    def __init__(self, case: TableCase) -> None:
        self.case = case
        self.sent: dict[str, Sent] = {}
        self.rollbacks: list[tuple[int, int]] = []  # (snapshot that was gone back to, snapshot that was made)
        self._lock = threading.Lock()

    def send(self, key: str, records: Sequence[Row], outcome: Outcome = Outcome.NOTHING) -> Sent:
        """A batch that is about to be sent."""
        sent = Sent(key, records, outcome)
        with self._lock:
            self.sent[key] = sent
        return sent

    def accept(self, sent: Sent, number: int) -> str | None:
        """The client was answered with this number; what is wrong with that."""
        with self._lock:
            before, sent.number = sent.number, number
            sent.outcome = Outcome.ACCEPTED
        if before not in {0, number}:
            return f"batch {sent.key} was answered as number {before}, then as {number}"
        return None

    def retried(self, key: str, number: int) -> None:
        """A batch that was set aside has this number from now on."""
        with self._lock:
            self.sent[key].outcome, self.sent[key].number = Outcome.ACCEPTED, number

    def accepted(self) -> int:
        """How many batches were acknowledged."""
        with self._lock:
            return sum(sent.outcome is Outcome.ACCEPTED for sent in self.sent.values())

    def compare(self, listed: Sequence[Listed], rows: Iterable[Row]) -> Comparison:
        """The table, all of whose batches are merged, with what it must hold."""
        comparison = Comparison()
        by_key = self._listed_once(listed, comparison)
        for key, sent in self.sent.items():
            self._check(sent, by_key.get(key), comparison)
        self._check_rows(self._expected(by_key), rows, comparison)
        return comparison

    def _listed_once(self, listed: Sequence[Listed], comparison: Comparison) -> dict[str, Listed]:
        by_key: dict[str, Listed] = {}
        for batch in listed:
            if batch.key is None or batch.key not in self.sent:
                comparison.wrong.append(f"no client sent {batch}")
            elif batch.key in by_key:
                comparison.doubled.append(f"two batches of one key: {by_key[batch.key]}, {batch}")
            else:
                by_key[batch.key] = batch
        return by_key

    def _check(self, sent: Sent, batch: Listed | None, comparison: Comparison) -> None:
        """What the list says of a batch, against what its client was answered."""
        if batch is None:
            if sent.outcome is Outcome.ACCEPTED:
                comparison.lost.append(f"batch {sent.number} ({sent.key}) is not listed")
        elif sent.outcome is Outcome.CUT:
            comparison.wrong.append(f"a body that was cut became {batch}")
        elif batch.state == DELETED:
            if sent.outcome is Outcome.ACCEPTED:
                comparison.lost.append(f"no client has withdrawn {batch}")
        elif sent.outcome is Outcome.WITHDRAWN:
            comparison.wrong.append(f"it was withdrawn: {batch}")
        elif sent.outcome is Outcome.ACCEPTED and sent.number != batch.number:
            comparison.wrong.append(f"batch {sent.key} was answered as number {sent.number} and is {batch}")
        elif batch.state != "merged":
            comparison.lost.append(f"not merged: {batch}")

    def _seen(self, listed: Iterable[Listed]) -> set[int]:
        """The snapshots whose batches rollbacks have left in sight: the way back from the newest one, which jumps where
        one was made; a rollback may lead to what an earlier one had taken out of sight.
        """
        jumps = {made: to for to, made in self.rollbacks}
        seen: set[int] = set()
        at = max([*(batch.snapshot or 0 for batch in listed), *jumps], default=0)
        while at > 0:
            if at in jumps:
                at = jumps[at]
            else:
                seen.add(at)
                at -= 1
        return seen

    def _expected(self, by_key: Mapping[str, Listed]) -> dict[Key, Row]:
        """The rows, by key."""
        seen = self._seen(by_key.values())
        gone = {
            key
            for key, batch in by_key.items()
            if batch.state == DELETED or (batch.snapshot is not None and batch.snapshot not in seen)
        }
        kept = [
            (sent.number or by_key[key].number, sent)
            for key, sent in self.sent.items()
            if (sent.outcome is Outcome.ACCEPTED or key in by_key)
            and sent.outcome is not Outcome.WITHDRAWN
            and key not in gone
        ]
        histories: dict[Key, list[Change]] = defaultdict(list)
        for _, sent in sorted(kept, key=lambda one: one[0]):
            for record in sent.records:
                values = {name: record.get(name) for name, _ in self.case.columns}
                histories[self._key(record)].append(Change(str(record.get("_kind", "+I")), values))
        folded = {key: fold(self.case, history) for key, history in histories.items()}
        return {key: row for key, row in folded.items() if row is not None}

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.case.primary_key)

    def _check_rows(self, expected: Mapping[Key, Row], rows: Iterable[Row], comparison: Comparison) -> None:
        seen: set[Key] = set()
        for row in rows:
            key = self._key(row)
            comparison.rows += 1
            if key in seen:
                comparison.doubled.append(f"two rows of {key}")
            seen.add(key)
            _compare_row(key, expected.get(key), row, comparison)
        comparison.lost += [f"row {key}, {expected[key]}" for key in expected.keys() - seen]


def _compare_row(key: Key, expected: Row | None, row: Row, comparison: Comparison) -> None:
    if expected is None:
        comparison.wrong.append(f"a row that must not be: {row}")
        return
    wanted, had = (Counter(one.get(SERIALS) or ()) for one in (expected, row))
    comparison.lost += [f"{count} of serial {serial} in row {key}" for serial, count in (wanted - had).items()]
    comparison.doubled += [f"{count} more of serial {serial} in row {key}" for serial, count in (had - wanted).items()]
    # Columns that an ALTER has added are null.
    others = {name: value for name, value in row.items() if value is not None or name in expected}
    if wanted == had and others != dict(expected):
        comparison.wrong.append(f"row {key} is {row}, not {expected}")


class Follower:
    """A reader of a changelog: the changes of each snapshot, once each, make its rows."""

    def __init__(self, case: TableCase) -> None:
        self.case = case
        self.rows: dict[Key, Row] = {}
        self.snapshot = 0  # the last one that was read

    def follow(self, changes: Iterable[Row], comparison: Comparison) -> None:
        """Further changes, as the changelog has them."""
        names = [name for name, _ in self.case.columns]
        for change in changes:
            row = {name: change[name] for name in names}
            key = tuple(row[name] for name in self.case.primary_key)
            earlier = self.rows.pop(key, None)
            removes = change["_kind"] in {"-U", "-D"}
            if removes and earlier != row:
                comparison.wrong.append(f"the changelog takes away {change}, and there was {earlier}")
            if not removes and earlier is not None:
                comparison.doubled.append(f"the changelog adds {change} although there was {earlier}")
            if not removes:
                self.rows[key] = row
            self.snapshot = max(self.snapshot, change["_snapshot"])

    def compare(self, rows: Iterable[Row], comparison: Comparison) -> None:
        """What it has made of the changes, with the rows of the table."""
        names = [name for name, _ in self.case.columns]
        wanted = {
            tuple(row[name] for name in self.case.primary_key): {name: row[name] for name in names} for row in rows
        }
        for key in wanted.keys() | self.rows.keys():
            if wanted.get(key) != self.rows.get(key):
                comparison.wrong.append(f"by the changelog {key} is {self.rows.get(key)}, not {wanted.get(key)}")
