"""Records as posted: read strictly against the schema, every fault of the request at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.hints import cut, some_of
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.faulty_events import FaultyEvents
from app.core.plan.records.unknown_columns import FoundColumns
from app.core.table.keys import normalised
from app.core.table.named_columns import named_words, words_naming
from app.core.table.records import KINDS_BY_TEXT, KINDS_BY_WORD, Record, RowKind
from app.core.table.schema import Column
from app.core.types.kinds import Family
from app.core.types.values import ValueFault

KIND_MEMBER = "_kind"
REPORTED_VIOLATIONS = 100
LONGEST_KEY = 2**14  # bytes of a key column: three times as many fit into the line and headers of a request
KEYS_OF_ANY_LENGTH = (Family.TEXT, Family.BINARY)


class Note(StrEnum):
    """A kind of records that may surprise the sender of a request; the answer counts them."""

    SKIPPED_EVENTS = "skipped_events"
    NULL_OR_DEFAULT = "null_sent_as_default"
    WITHOUT_SEQUENCE = "records_without_sequence"


@dataclass
class DecodedRecords:
    """The records of one request that are to be staged, column by column; ``positions`` are their indexes in the
    request. The columns are lists, or arrays of what reads whole columns. ``words`` say which columns each record
    names, where the table's records say (``app.core.table.named_columns``).
    """

    columns: Mapping[str, Any]
    kinds: Sequence[int] = ()
    positions: Sequence[int] = ()
    ignored: int = 0
    words: Mapping[str, Any] = field(default_factory=dict)
    notes: dict[Note, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kinds)


@dataclass
class _Kept:
    """The records read so far, by column, to be staged."""

    columns: dict[str, list[Any]]
    words: dict[str, list[int]]
    kinds: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ignored: int = 0


class _Faults:
    """Counts every violation, keeps the first hundred."""

    def __init__(self) -> None:
        self.kept: list[Violation] = []
        self.total = 0

    def add(
        self, row: int, column: str | None, code: FaultCode, message: str, fix: str, path: tuple[str, ...] = ()
    ) -> None:
        self.total += 1
        if not self.full:
            segments = [str(row), *([column] if column is not None else []), *path]
            pointer = "/records/" + "/".join(escape_pointer(cut(segment)) for segment in segments)
            self.kept.append(Violation(pointer, code, message, fix, row, column))

    @property
    def full(self) -> bool:
        """Whether further faults are counted, and not reported."""
        return len(self.kept) >= REPORTED_VIOLATIONS


def invalid_records(reported: Sequence[Violation], total: int, *, more: bool = False) -> Invalid:
    """Return the refusal of records with ``total`` faults, of which the first are ``reported``.

    With ``more`` there may be more: the others were not looked for.
    """
    message = f"{'at least ' if more else ''}{total} fault(s) in the records; nothing was stored"
    return Invalid(message, code=ErrorCode.INVALID_RECORDS, violations=reported, total_violations=total)


Check = Callable[[DecodedRecords], None]
"""Raises ``Invalid`` for records that are legal by themselves, but not where they come."""


def no_check(_: DecodedRecords) -> None:
    """Accept all records: those that are legal by themselves are legal here."""


class RecordDecoder:
    """Reads the records of one table; made once for its plan, with a ``check`` once for a body.

    With ``unknown_columns`` values for columns that the table does not have are noted there, and left out; without it
    they are faults. With ``faulty`` change events that have faults are kept there, and none of their records is stored.
    """

    def __init__(
        self,
        plan: MergePlan,
        check: Check = no_check,
        unknown_columns: FoundColumns | None = None,
        faulty: FaultyEvents | None = None,
    ) -> None:
        self.plan = plan
        self.check = check
        self.unknown_columns = unknown_columns
        self.faulty = faulty
        self.columns = tuple((column, _column_decoder(plan, column)) for column in plan.schema.columns)
        self.names = frozenset({column.name for column in plan.schema.columns} | {KIND_MEMBER})

    def decode(self, records: Iterable[object], first: int = 0) -> DecodedRecords:
        """Return the records to stage, from the index ``first`` on. Raise ``Invalid`` naming row, column and reason of
        the first hundred faults, and their number.
        """
        decoded = self.decode_at(enumerate(records, first))
        self.check(decoded)
        return decoded

    def decode_at(self, records: Iterable[tuple[int, object]]) -> DecodedRecords:
        """Return the same for some records of a request, each with its index in it."""
        schema = self.plan.schema
        kept = _Kept({column.name: [] for column in schema.columns}, {word: [] for word in named_words(schema)})
        faults = _Faults()
        for row, raw in records:
            if not isinstance(raw, dict):
                faults.add(row, None, FaultCode.NOT_AN_OBJECT, "a record is a JSON object", 'send {"column": value, …}')
                continue
            before = faults.total
            values = self._values(row, raw, faults)
            kind = self._kind(row, raw, values, faults)
            if faults.total == before and kind is not None:
                self._keep(row, Record(kind, values, named=self.named(raw)), kept, faults)
        if faults.total:
            raise invalid_records(faults.kept, faults.total)
        return DecodedRecords(kept.columns, kept.kinds, kept.positions, kept.ignored, kept.words)

    def named(self, raw: Collection[str]) -> frozenset[str] | None:
        """Return the columns that a record with these members names; None if records do not say."""
        return frozenset(raw) & self.names if self.plan.schema.absent_unchanged else None

    def _values(self, row: int, raw: dict[str, Any], faults: _Faults) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for column, decode in self.columns:
            if column.name not in raw and column.name in self.plan.omissible:
                values[column.name] = None
                continue
            try:
                values[column.name] = decode(raw.get(column.name))
            except ValueFault as fault:
                if fault.code == FaultCode.NULL_IN_NOT_NULL and self._is_omissible(column, raw):
                    values[column.name] = None
                    continue
                missing = column.name not in raw and fault.code == FaultCode.NULL_IN_NOT_NULL
                code = FaultCode.MISSING_COLUMN if missing else fault.code
                message = (
                    f"column {column.name!r} is missing and cannot be null"
                    if missing
                    else f"column {column.name!r}: {fault}"
                )
                faults.add(row, column.name, code, message, fault.fix, fault.path)
        if not raw.keys() <= self.names:
            if self.unknown_columns is None:
                self._refuse_unknown(row, raw.keys() - self.names, raw, faults)
            else:
                self.unknown_columns.note(raw, raw.keys() - self.names)
        return values

    def _is_omissible(self, column: Column, raw: Mapping[str, Any]) -> bool:
        """Return whether the record is a retract that may leave the column out."""
        if column.name not in self.plan.omissible_in_retracts or raw.get(column.name) is not None:
            return False
        kind_column = self.plan.row_kind_column
        kind = self.kind_of(raw.get(KIND_MEMBER, "+I") if kind_column is None else raw.get(kind_column))
        return kind is not None and not kind.add

    def _refuse_unknown(self, row: int, unknown: AbstractSet[str], raw: Mapping[str, Any], faults: _Faults) -> None:
        """Note the members of ``raw`` that are no columns, in their order, as far as they are reported."""
        reported = 0
        for name in raw:
            if faults.full:
                break
            if name in unknown:
                message = f"the table has no column {cut(name)!r}"
                faults.add(
                    row, cut(name), FaultCode.UNKNOWN_COLUMN, message, other_name(self.plan.schema.by_name, name)
                )
                reported += 1
        faults.total += len(unknown) - reported

    def _kind(self, row: int, raw: Mapping[str, Any], values: Mapping[str, Any], faults: _Faults) -> RowKind | None:
        """Return the row kind: of ``rowkind.field`` where the table has one, else of ``_kind``; +I if there is
        none.
        """
        column = self.plan.row_kind_column
        if column is None:
            text, where = raw.get(KIND_MEMBER, "+I"), KIND_MEMBER
        else:
            text, where = values.get(column), column
            if column not in values:
                return None  # the value itself is already reported
        kind = self.kind_of(text)
        if kind is None:
            message = "the row kind cannot be null" if text is None else f"{text!r} is not a row kind"
            fix = "send +I, -U, +U or -D" if column else "send +I, -U, +U, -D, insert, update or delete"
            faults.add(row, where, FaultCode.BAD_ROW_KIND, message, fix)
        return kind

    def kind_of(self, text: object) -> RowKind | None:
        """Return the row kind that ``rowkind.field`` or ``_kind`` says with ``text``, None if it says none."""
        if self.plan.row_kind_column is not None:
            text = self.plan.row_kind_default if text is None else text
            return KINDS_BY_TEXT.get(text.upper()) if isinstance(text, str) else None
        return KINDS_BY_TEXT.get(text, KINDS_BY_WORD.get(text.lower())) if isinstance(text, str) else None

    def _keep(self, row: int, record: Record, kept: _Kept, faults: _Faults) -> None:
        if record.kind in self.plan.dropped:
            kept.ignored += 1
            return
        refusal = self.plan.refusal_of(record)
        if refusal is not None:
            where = refusal.column or self.plan.row_kind_column or KIND_MEMBER
            code = FaultCode.UNFOLDABLE_VALUE if refusal.column else FaultCode.REFUSED_ROW_KIND
            faults.add(row, where, code, refusal.reason, refusal.fix)
            return
        for name, column in kept.columns.items():
            column.append(record.values[name])
        if kept.words:
            for word, bits in words_naming(self.plan.schema.columns, record.named).items():
                kept.words[word].append(bits)
        kept.kinds.append(int(record.kind))
        kept.positions.append(row)


def other_name(known: Collection[str], name: str) -> str:
    """Return the fix of a name that is no column: the column that it may have meant, or all."""
    if ";" in name and ";" not in "".join(known):
        return "separate the fields of CSV by commas"
    near = next((member for member in known if member.lower() == name.strip().lower()), None)
    return f"did you mean {cut(near)}?" if near else f"columns: {some_of(known)}"


def _column_decoder(plan: MergePlan, column: Column) -> Callable[[Any], Any]:
    """Return a function that reads values of one column: it applies the default, checks values that are padded, and
    normalises and bounds key values.
    """
    decode = column.type.decoder
    if column.name in plan.write_defaults:
        decode = _with_default(decode, plan.write_defaults[column.name])
    if column.name in plan.required_columns:
        decode = _then(decode, lambda value: _padded(column, value))
    if column.name in plan.schema.primary_key and column.type.family is Family.FLOATING:
        decode = _then(decode, lambda value: normalised(column, value))
    if column.name in plan.schema.primary_key and column.type.family in KEYS_OF_ANY_LENGTH:
        decode = _then(decode, _short)
    return decode


def _short(value: Any) -> Any:
    """Return a key value. Raise ``ValueFault`` if it is too long for the URL of its row."""
    size = len(value.encode() if isinstance(value, str) else value or b"")
    if size > LONGEST_KEY:
        message = f"a key of {size} bytes, at most {LONGEST_KEY} are allowed"
        raise ValueFault(FaultCode.TOO_LONG, message, "use its digest as the key, and store the text in another column")
    return value


def _with_default(decode: Callable[[Any], Any], default: Any) -> Callable[[Any], Any]:
    return lambda raw: default if raw is None else decode(raw)


def _then(decode: Callable[[Any], Any], step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda raw: step(decode(raw))


def _padded(column: Column, value: Any) -> Any:
    if value is None:
        message = "null cannot be padded (sequence.auto-padding)"
        raise ValueFault(FaultCode.NULL_IN_PADDED_SEQUENCE, message, "send a sequence value")
    if column.type.family is Family.TEXT and not re.fullmatch(r"[+-]?[0-9]{1,37}", value):
        message = f"{value!r} cannot be padded (sequence.auto-padding)"
        raise ValueFault(FaultCode.NOT_A_NUMBER, message, "send a whole number of at most 37 digits as text")
    if column.type.family is Family.FLOATING and not -(2.0**63) <= value < 2.0**63:
        message = f"{value!r} is out of the range of a padded sequence"
        raise ValueFault(FaultCode.OUT_OF_RANGE, message, "send a number that BIGINT holds")
    return value
