"""CSV (RFC 4180): a header line, then one record a line. An empty field is null, ``""`` is empty text."""

from __future__ import annotations

import csv as text_csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import csv

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import KIND_MEMBER, REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.core.table.schema import Column
from app.storage.ingest.decoding import decode_columns
from app.storage.ingest.named import Words, without_nulls, words_of_columns
from app.storage.ingest.pieces import Piece, text_pieces
from app.storage.ingest.refusals import known_columns, name_faults, refuse_columns, unreadable
from app.storage.ingest.texts import CELL_READERS
from app.storage.ingest.vectors import NOWHERE, Places, Vector, nothing_known
from app.storage.staging.spool import Content

_FIX = "send a header line and comma-separated fields in UTF-8, quoted as RFC 4180 says"
_COMMA, _QUOTE, _LINE_FEED, _RETURN = 44, 34, 10, 13


def csv_pieces(
    decoder: RecordDecoder, content: Content, bounds: Bounds, *, empty_absent: bool = False
) -> Iterator[Piece]:
    """Yield the records of a CSV body. Raise ``Invalid`` for what is no such body, and ``TooLarge``.

    ``empty_absent``: a record does not name the columns whose fields are empty.
    """
    header = b""
    names: Sequence[str] = ()
    rows = lines = 0
    for place, part in text_pieces(content, bounds, _end_of_record):
        _check_text(part, place, lines)
        if not place:
            header = part[: _end_of_header(part) + 1]
            names = _header(header)
            refuse_columns(name_faults(names, decoder))
        text = header + part if place else part
        bounds.check_records(rows + (text.count(b"\n") - 1 if b'"' not in text else 0))
        table, wrong = _read(text, names)
        if wrong.count:
            yield partial(wrong.refuse, rows)
        else:
            for first in range(0, max(table.num_rows, 1), bounds.piece_records):
                some = table.slice(first, bounds.piece_records)
                yield partial(_decode, decoder, some, rows + first, empty_absent)
        rows, lines = rows + table.num_rows + wrong.count, lines + part.count(b"\n")
        bounds.check_records(rows)


def _check_text(part: bytes, place: int, lines: int) -> None:
    """Raise ``Invalid`` for what is no UTF-8, and for quotes inside fields; ``lines`` are before it in the body."""
    try:
        part.decode()
    except UnicodeDecodeError as error:
        where = f"byte {place + error.start} is no UTF-8 ({error.reason})"
        raise unreadable("CSV in UTF-8", where, _FIX) from error
    _check_quotes(part, lines, first=not place)


def _decode(decoder: RecordDecoder, table: pa.Table, first: int, empty_absent: bool) -> DecodedRecords:
    columns = {column.name: column for column, _ in decoder.columns}
    return decode_columns(decoder, SentCells(known_columns(table, decoder), columns, empty_absent), first)


def _end_of_record(part: bytes) -> int:
    """Return the place after the last line break outside quotes, 0 if there is none."""
    if b'"' not in part:
        return part.rfind(b"\n") + 1
    data = np.frombuffer(part, np.uint8)
    breaks = np.flatnonzero(data == _LINE_FEED)
    outside = breaks[np.searchsorted(np.flatnonzero(data == _QUOTE), breaks) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


class SentCells:
    """Columns of text; null if the field was empty, and then not named if it is ``empty_absent``."""

    def __init__(self, table: pa.Table, columns: dict[str, Column], empty_absent: bool) -> None:
        self._empty_absent = empty_absent
        self._texts = {name: _one(table.column(name)) for name in table.column_names}
        self._columns = columns
        self.rows = table.num_rows
        self.odd_rows: Places = NOWHERE

    def sends(self, column: Column) -> bool:
        """Return whether the column was sent."""
        return column.name in self._texts

    def vector(self, column: Column) -> Vector:
        """Return a column of the table that was sent."""
        read = CELL_READERS.get(column.type.family, nothing_known)
        return read(column.type, self._texts[column.name])

    def cells(self, column: Column, at: Places) -> Sequence[Any]:
        """Return the fields, each as a JSON value."""
        texts = self._texts[column.name].take(pa.array(at)).to_pylist()
        return [_json_value(column, text) for text in texts]

    def words(self, columns: Sequence[Column]) -> Words:
        """Return the words of the lines: each names all columns of the header, without its empty fields if these are
        absent.
        """
        words = words_of_columns(columns, self._texts.keys(), self.rows)
        if not self._empty_absent:
            return words
        present = {name: texts.is_valid().to_numpy(zero_copy_only=False) for name, texts in self._texts.items()}
        return without_nulls(columns, words, present)

    def kind_texts(self) -> pa.Array | None:
        """Return the column ``_kind``; an empty field is +I."""
        texts = self._texts.get(KIND_MEMBER)
        return None if texts is None else texts.fill_null("+I")

    def record(self, row: int) -> object:
        """Return one line as a JSON object."""
        cells = {name: texts[row].as_py() for name, texts in self._texts.items()}
        if self._empty_absent:
            cells = {name: text for name, text in cells.items() if text is not None}
        if cells.get(KIND_MEMBER, "") is None:
            del cells[KIND_MEMBER]
        return {
            name: text if text is None or name == KIND_MEMBER else _json_value(self._columns[name], text)
            for name, text in cells.items()
        }


def _json_value(column: Column, text: str) -> Any:
    """Return a field as the decoder of its column reads it: nested types are JSON."""
    if not column.type.nested:
        return column.type.entry.from_text(text)
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        return text


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _options(body: bytes) -> csv.ReadOptions:
    return csv.ReadOptions(use_threads=False, block_size=min(max(len(body), 1) + 1, 2**31 - 1))


def _header(body: bytes) -> Sequence[str]:
    """Return the names of the header line."""
    text = io.StringIO(body[: _end_of_header(body)].decode("utf-8-sig"), newline="")
    try:
        names = next(text_csv.reader(text, strict=True), [])
    except text_csv.Error as error:
        raise unreadable("CSV", f"its header line cannot be read ({error})", _FIX) from error
    if not names:
        raise unreadable("CSV", "it has no header line", _FIX)
    return names


def _end_of_header(body: bytes) -> int:
    """Return where the first line break outside quotes is."""
    start = quotes = 0
    while (end := body.find(b"\n", start)) != -1:
        quotes += body.count(b'"', start, end)
        if quotes % 2 == 0:
            return end
        start = end + 1
    return len(body)


@dataclass
class _Wrong:
    """The records that have more or fewer fields than the header: their number, and the first ones as (place behind
    the header, fields, fields of the header).
    """

    count: int = 0
    first: list[tuple[int, int, int]] = field(default_factory=list)

    def note(self, row: csv.InvalidRow) -> str:
        """Return one more; it is skipped."""
        self.count += 1
        if len(self.first) < REPORTED_VIOLATIONS:
            self.first.append((row.number - 2, row.actual_columns, row.expected_columns))
        return "skip"

    def refuse(self, before: int) -> NoReturn:
        """Raise ``Invalid`` with all of them; ``before`` records are before those of this part of the body."""
        faults = []
        for place, actual, expected in self.first:
            message = f"record {before + place} has {actual} fields, the header {expected}"
            fix = "send a field for each column; an empty one is null"
            row = before + place
            faults.append(Violation(f"/records/{row}", FaultCode.WRONG_FIELD_COUNT, message, fix, row))
        message = f"{self.count} record(s) have more or fewer fields than the header; nothing was stored"
        code = ErrorCode.INVALID_RECORDS
        raise Invalid(message, code=code, violations=faults, total_violations=self.count)


def _read(body: bytes, names: Sequence[str]) -> tuple[pa.Table, _Wrong]:
    """Return the fields of a header and records, and the records that have more or fewer than the header."""
    wrong = _Wrong()
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=wrong.note)
    try:
        table = csv.read_csv(pa.BufferReader(body), _options(body), parse, convert)
    except pa.ArrowInvalid as error:
        raise unreadable("CSV", error, _FIX) from error
    return table, wrong


def _check_quotes(body: bytes, lines: int, *, first: bool) -> None:
    """Quotes stand around whole fields, and twice inside them: what else a reader makes of them is a guess. The part
    of a body has ``lines`` before it; ``first``: it has the header.
    """
    if b'"' not in body:
        return
    data = np.frombuffer(body, np.uint8)
    at = np.flatnonzero(data == _QUOTE)
    if len(at) % 2:
        raise unreadable("CSV", f"the quote on line {lines + _line(body, int(at[-1]))} has no end", _FIX)
    opening, closing = at[::2], at[1::2]
    before = np.where(opening > 0, data[opening - 1], _LINE_FEED)
    after = np.where(closing + 1 < len(data), data[np.minimum(closing + 1, len(data) - 1)], _LINE_FEED)
    # A quote that follows the closing one at once is the second of two: text continues.
    doubled_before = np.zeros(len(opening), bool)
    doubled_before[1:] = closing[:-1] + 1 == opening[1:]
    bom = (first and body.startswith(b"\xef\xbb\xbf")) & (opening == 3)
    wrong_open = ~(np.isin(before, [_COMMA, _LINE_FEED, _RETURN]) | doubled_before | bom)
    wrong_close = ~np.isin(after, [_COMMA, _LINE_FEED, _RETURN, _QUOTE])
    wrong = np.concatenate([opening[wrong_open], closing[wrong_close]])
    if len(wrong):
        raise unreadable("CSV", f"line {lines + _line(body, int(wrong.min()))} has a quote inside a field", _FIX)


def _line(body: bytes, place: int) -> int:
    return body.count(b"\n", 0, place) + 1
