"""NOT NULL columns that a record leaves out: the first record of a key must name them (docs/decisions/0022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from app.core.errors import FaultCode, Violation, escape_pointer
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, Check, DecodedRecords, invalid_records, no_check
from app.core.table.keys import Key
from app.core.table.named_columns import bit_of, word_of
from app.core.table.records import RowKind
from app.core.table.schema import Column
from app.files.tokens import Tokens, tokens_of_keys
from app.services.rows.known_rows import KnownRows

_NO_TOKENS: Tokens = np.empty(0, np.int64)
_Mask = npt.NDArray[np.bool_]


def check_of_first_records(plan: MergePlan, known: KnownRows) -> Check:
    """Return a check that raises ``Invalid`` for each first add of a key that leaves out a column which is NOT NULL
    and has no default. The check takes the records of one body, piece by piece, and calls ``known`` for such adds
    only.
    """
    columns = [column for column in plan.schema.columns if column.name in plan.omissible - plan.read_defaults.keys()]
    return _FirstRecords(plan, columns, known).check if columns else no_check


@dataclass
class _FirstRecords:
    """The records of one body. ``unread`` are the keys of pieces in which nothing was left out; they are read only if
    a later piece leaves something out. ``begun`` and ``removed`` are the tokens of keys whose rows the body has
    created and deleted.
    """

    plan: MergePlan
    columns: list[Column]
    known: KnownRows
    unread: list[Mapping[str, Any]] = field(default_factory=list)
    begun: Tokens = field(default_factory=lambda: _NO_TOKENS)
    removed: Tokens = field(default_factory=lambda: _NO_TOKENS)

    def check(self, records: DecodedRecords) -> None:
        """Check the next piece of the body. Raise ``Invalid``."""
        kinds = np.asarray(records.kinds, np.int8)
        lacking = self._lacking(records) & (kinds & 1 == 0)
        removing = kinds == int(RowKind.DELETE) if self.plan.row.removes_on_delete else np.zeros(len(kinds), bool)
        keys = {name: records.columns[name] for name in self.plan.schema.primary_key}
        if not lacking.any() and not removing.any():
            self.unread.append(keys)
            return
        for earlier in self.unread:
            self.begun = np.union1d(self.begun, self._tokens(earlier))
        self.unread = []
        faults = list(self._faults(records, lacking, removing, kinds))
        if faults:
            raise invalid_records(faults[:REPORTED_VIOLATIONS], len(faults))

    def _lacking(self, records: DecodedRecords) -> _Mask:
        lacking = np.zeros(len(records), bool)
        for column in self.columns:
            lacking |= self._unnamed(records, column)
        return lacking

    @staticmethod
    def _unnamed(records: DecodedRecords, column: Column) -> _Mask:
        unnamed: _Mask = np.asarray(records.words[word_of(column)], np.int64) & bit_of(column) == 0
        return unnamed

    def _keys(self, columns: Mapping[str, Any]) -> list[Key]:
        values = [columns[name] for name in self.plan.schema.primary_key]
        return list(zip(*(v if isinstance(v, list) else v.to_pylist() for v in values), strict=True))

    def _tokens(self, columns: Mapping[str, Any]) -> Tokens:
        return tokens_of_keys(self.plan.schema, self._keys(columns))

    def _faults(
        self, records: DecodedRecords, lacking: _Mask, removing: _Mask, kinds: npt.NDArray[np.int8]
    ) -> Iterator[Violation]:
        keys = self._keys(records.columns)
        tokens = tokens_of_keys(self.plan.schema, keys)
        known = dict.fromkeys(self.begun[np.isin(self.begun, tokens)].tolist(), True)
        known |= dict.fromkeys(self.removed[np.isin(self.removed, tokens)].tolist(), False)
        unknown: dict[int, list[int]] = {}
        wanting: list[int] = []
        for place, token in enumerate(tokens.tolist()):
            if removing[place]:
                known[token] = False
            elif lacking[place] and token not in known:
                unknown.setdefault(token, []).append(place)
            elif lacking[place] and not known[token]:
                wanting.append(place)
            elif kinds[place] & 1 == 0:
                known[token] = True
        states = self.known([keys[places[0]] for places in unknown.values()]) if unknown else ()
        for (token, places), has_begun in zip(unknown.items(), states, strict=True):
            wanting += [] if has_begun else places
            known.setdefault(token, has_begun)
        self._note(known)
        for place in sorted(wanting):
            yield from self._faults_at(records, place)

    def _note(self, known: Mapping[int, bool]) -> None:
        begun = np.array([token for token, has_begun in known.items() if has_begun], np.int64)
        removed = np.array([token for token, has_begun in known.items() if not has_begun], np.int64)
        self.begun = np.setdiff1d(np.union1d(self.begun, begun), removed)
        self.removed = np.setdiff1d(np.union1d(self.removed, removed), begun)

    def _faults_at(self, records: DecodedRecords, place: int) -> Iterator[Violation]:
        position = records.positions[place]
        row = position if isinstance(position, int) else position.as_py()
        for column in self.columns:
            if self._unnamed(records, column)[place]:
                message = f"column {column.name!r} cannot be null, and the table has no row of this key with a value"
                where = f"/records/{row}/{escape_pointer(column.name)}"
                yield Violation(where, FaultCode.MISSING_COLUMN, message, "send a value", row, column.name)
