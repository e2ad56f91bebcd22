"""Records beyond the horizon, refused when they are posted (``sequence.late-records = refuse``; decision 20).

What is known when the records come decides: the table's rows with all that is staged, and the records before it in the
same body. What another request brings at the same moment is not known; a record that is too late by that alone is
accepted, and its log leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.core.errors import FaultCode, Violation, escape_pointer
from app.core.plan.columns.late_horizon import REFUSAL, bounded_logs
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.answers import joined_keys, key_texts
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, Check, DecodedRecords, invalid_records, no_check
from app.core.rules.lateness import Lateness
from app.core.rules.replays.replay import Replay
from app.core.rules.stepwise import Stepwise
from app.core.table.keys import Key
from app.core.table.named_columns import names_in
from app.core.table.options.entries import LateRecords
from app.core.table.records import Record, RowKind
from app.services.rows.known_rows import KnownRows

_KEYS_AT_ONCE = 1_000  # whose state rows are held together: each may have a long log
_Log = tuple[Replay | Stepwise, Lateness]


def check_of_late_records(plan: MergePlan, known: KnownRows) -> Check:
    """What raises ``Invalid`` for every record that comes too late for a log of its key, in tables that refuse it. It
    sees the records of one body, a piece after the other.
    """
    refuses = plan.schema.parsed[REFUSAL] is LateRecords.REFUSE
    logs = bounded_logs(plan.rules) if refuses else ()
    return _LateRefusals(plan, logs, known).check if logs else no_check


@dataclass
class _LateRefusals:
    """The records of one body. ``highest``: of each key that was seen, the highest sequence of each log."""

    plan: MergePlan
    logs: Sequence[_Log]
    known: KnownRows
    highest: dict[bytes, list[Any]] = field(default_factory=dict)

    def check(self, records: DecodedRecords) -> None:
        """Look at the next piece."""
        found = list(self._faults(records))
        if found:
            raise invalid_records(found[:REPORTED_VIOLATIONS], len(found))

    def _faults(self, records: DecodedRecords) -> Iterator[Violation]:
        values = {name: _listed(column) for name, column in records.columns.items()}
        keys: Sequence[Key] = list(zip(*(values[name] for name in self.plan.schema.primary_key), strict=True))
        texts = joined_keys(key_texts(self.plan.schema, keys))
        self._look_up(keys, texts)
        words = {word: _listed(bits) for word, bits in records.words.items()}
        kinds = np.asarray(records.kinds, np.int8).tolist()
        for place, position in enumerate(_listed(records.positions)):
            named = names_in(self.plan.schema, {word: bits[place] for word, bits in words.items()})
            of_record = {name: column[place] for name, column in values.items()}
            record = Record(RowKind(kinds[place]), of_record, named=named)
            yield from self._come_late(record, self.highest[texts[place]], position)

    def _look_up(self, keys: Sequence[Key], texts: Sequence[bytes]) -> None:
        unknown = {text: key for text, key in zip(texts, keys, strict=True) if text not in self.highest}
        for start in range(0, len(unknown), _KEYS_AT_ONCE):
            some = list(unknown)[start : start + _KEYS_AT_ONCE]
            for text, state in zip(some, self.known.states([unknown[text] for text in some]), strict=True):
                self.highest[text] = [None if state is None else rule.highest(state) for rule, _ in self.logs]

    def _come_late(self, record: Record, highest: list[Any], position: int) -> Iterator[Violation]:
        if self.plan.row.removes(record):
            highest[:] = [None] * len(highest)
            return
        told: set[str] = set()
        for place, (rule, late) in enumerate(self.logs):
            name = late.column.name
            value = record.values[name]
            if isinstance(rule, Stepwise) and not rule.part.takes(record):
                continue
            if not late.is_closed(highest[place], value):
                highest[place] = value if highest[place] is None else max(highest[place], value)
            elif name not in told:
                told.add(name)
                yield _violation(late, highest[place], value, position)


def _violation(late: Lateness, highest: Any, value: Any, position: int) -> Violation:
    name, shown = late.column.name, late.column.type.encoder
    told = "null" if value is None else str(shown(value))
    message = f"column {name!r}: {told} comes too late: {late.words} of its key, {shown(highest)}"
    fix = f"leave the record out, or set {REFUSAL} = ignore"
    where = f"/records/{position}/{escape_pointer(name)}"
    return Violation(where, FaultCode.LATE_RECORD, message, fix, position, name)


def _listed(column: Any) -> Sequence[Any]:
    return column if isinstance(column, list) else column.to_pylist()
