"""Columns that may not be null and are not named: the first record of a key must name them (merge-semantics A.12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_decoder import REPORTED_VIOLATIONS, DecodedRecords
from app.core.table.keys import Key
from app.core.table.named_columns import bit_of, word_of
from app.core.table.option_entries import Consistency
from app.core.table.schema import Column
from app.services.lookups import find
from app.services.views import Views
from app.storage.images import Images
from app.storage.ingest.pieces import Piece

RowsThere = Callable[[Key], bool]
"""Whether a key has a row now, staged records included."""


def rows_there(views: Views, images: Images, name: tuple[str, str]) -> RowsThere:
    """The rows of the table ``name``."""

    def there(key: Key) -> bool:
        view = views.current(name, Consistency.LATEST)
        return find(view, images, key, view.columns).body is not None

    return there


def with_first_records(plan: MergePlan, pieces: Iterable[Piece], there: RowsThere | None) -> Iterable[Piece]:
    """``pieces``, which raise ``Invalid`` for every add of a key without a row that leaves out a column which may not
    be null and has no default. ``there`` is asked for such records only; None where nothing is known of any row.
    """
    columns = [column for column in plan.schema.columns if column.name in plan.omissible - plan.read_defaults.keys()]
    return _FirstRecords(plan, columns, there).checked(pieces) if columns else pieces


@dataclass
class _FirstRecords:
    """The records of one body; ``begun`` are the keys that records before have made rows of."""

    plan: MergePlan
    columns: list[Column]
    there: RowsThere | None
    begun: set[str] = field(default_factory=set)

    def checked(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            yield lambda piece=piece: self._checked(piece())  # type: ignore[misc]  # its own piece, not the last one

    def _checked(self, records: DecodedRecords) -> DecodedRecords:
        faults = [fault for place in range(len(records)) for fault in self._faults(records, place)]
        if faults:
            message = f"{len(faults)} fault(s) in the records; nothing was stored"
            told = faults[:REPORTED_VIOLATIONS]
            raise Invalid(message, code=ErrorCode.INVALID_RECORDS, violations=told, total_violations=len(faults))
        return records

    def _faults(self, records: DecodedRecords, place: int) -> Iterator[Violation]:
        if int(_plain(records.kinds[place])) & 1:
            return
        lacking = [c for c in self.columns if not int(_plain(records.words[word_of(c)][place])) & bit_of(c)]
        key = tuple(_plain(records.columns[name][place]) for name in self.plan.schema.primary_key)
        known = repr(key)  # NaN is one key
        if lacking and known not in self.begun and not (self.there and self.there(key)):
            row = int(_plain(records.positions[place]))
            for column in lacking:
                message = f"column {column.name!r} cannot be null, and no row of this key is there that has it"
                where = f"/records/{row}/{escape_pointer(column.name)}"
                yield Violation(where, FaultCode.MISSING_COLUMN, message, "send a value", row, column.name)
            return
        self.begun.add(known)


def _plain(value: Any) -> Any:
    """What a list holds, or an array of what reads whole columns."""
    return value.as_py() if hasattr(value, "as_py") else value
