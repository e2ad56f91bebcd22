"""JSON bodies as Python values, numbers exact."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.storage.ingest.lists import decode_records
from app.storage.ingest.pieces import Piece, text_pieces
from app.storage.staging.spool import Content


def parse_json(body: bytes) -> object:
    """Return the JSON of a body, numbers exact. Raise ``Invalid``."""
    try:
        if body[:1] == b"[":
            return _parsed_list(body)
        return _parsed(body) if len(body) <= _PARSED_AT_ONCE else _loads(body)
    except (ValueError, RecursionError) as error:
        raise unreadable("", error) from error


def _parsed_list(text: bytes) -> object:
    """Parse the values of a list one by one, so that other threads can run in between."""
    try:
        return [_value_decoder.decode(raw) for raw in _list_decoder.decode(text)]
    except (ValueError, RecursionError, InvalidOperation):
        return _loads(text)


_PARSED_AT_ONCE: Final = 2**16  # bytes that are parsed while other threads wait
_encoder = msgspec.json.Encoder(decimal_format="number")


def json_text(value: object, indent: int = -1) -> str:
    """Return a value of ``parse_json`` as JSON, with exact numbers. Text that UTF-8 cannot carry makes it one line of
    ASCII, with fractional numbers as text. ``indent`` is that of ``msgspec.json.format``: 0 is one line with spaces.
    """
    try:
        return msgspec.json.format(_encoder.encode(value), indent=indent).decode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str)


class _Records(msgspec.Struct, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


_records_decoder = msgspec.json.Decoder(_Records)
_value_decoder = msgspec.json.Decoder(float_hook=Decimal)
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


# Longest whole number in JSON, below the limit of Python itself.
MOST_DIGITS: Final = 4000
NESTED_BOUND: Final = "about 900 levels are read, and types have at most 50"


class _Shape(msgspec.Struct):
    """Any object."""


class _Shapes(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_Shape]


_shape_decoder = msgspec.json.Decoder(_Shapes)
_shapes_decoder = msgspec.json.Decoder(list[_Shape])
_OBJECTS_OF_A_RECORD = 8  # its own and nested ones, on average over a large body
_MOST_MEMBERS = 100_000
_COUNTED = 2**22
Numbered = tuple[int, bytes | msgspec.Raw]
"""The text of a record with the number that a message names it by."""


_SPACE: Final = 1000  # before a list; anyone who sends more has a body of another shape


def is_list(content: Content) -> bool:
    """Return whether a body of JSON is a list."""
    return content[:_SPACE].lstrip()[:1] == b"["


def json_records(body: bytes) -> Sequence[object]:
    """Return the records of ``{"records": […]}``, or of the list alone. Raise ``Invalid``."""
    try:
        # One by one, so that other threads can run while a large body is parsed.
        return [_value_decoder.decode(raw) for raw in _records_decoder.decode(body).records]
    except (ValueError, RecursionError, InvalidOperation):
        return _json_records(body)


def _json_records(body: bytes) -> Sequence[object]:
    parsed = parse_json(body)
    if isinstance(parsed, list):
        return parsed
    records = parsed.get("records") if isinstance(parsed, dict) else None
    if not isinstance(parsed, dict) or not isinstance(records, list):
        raise _no_records()
    _check_members(parsed)
    return records


def _no_records() -> Invalid:
    fault = Violation("/records", FaultCode.MISSING, "the body has no list of records", 'send {"records": [{…}, …]}')
    return Invalid("the body is not a batch of records", violations=[fault])


def _check_members(body: Collection[str]) -> None:
    unknown = [name for name in body if name != "records"]
    if unknown:
        faults = [
            Violation(f"/{escape_pointer(name)}", FaultCode.UNKNOWN_MEMBER, f"unknown member {name!r}", "remove it")
            for name in unknown[:REPORTED_VIOLATIONS]
        ]
        raise Invalid("the body is not a batch of records", violations=faults, total_violations=len(unknown))


def json_pieces(decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """Yield the records of ``{"records": […]}``, or of the list alone, as many senders have it. Raise ``Invalid`` for
    another body, and ``TooLarge``.
    """
    bounds.check_whole(len(content))
    small = len(content) <= bounds.piece_bytes
    large = raw_list if is_list(content) else _raw_records
    raws = _small_records(bytes(content)) if small else large(content, bounds)
    bounds.check_records(len(raws))
    if small and len(raws) <= bounds.piece_records:
        yield partial(_decode_small, decoder, bytes(content), bounds)
        return
    yield from raw_record_pieces(decoder, raws, bounds)


def raw_record_pieces(decoder: RecordDecoder, raws: Sequence[msgspec.Raw], bounds: Bounds) -> Iterator[Piece]:
    """Yield the JSON texts of the records of a body. Raise ``TooLarge``."""
    bounds.check_records(len(raws))
    for first, last in groups_of(raws, bounds):
        yield partial(_decode_raws, decoder, raws[first:last], first)


def _decode_small(decoder: RecordDecoder, body: bytes, bounds: Bounds) -> DecodedRecords:
    records = json_records(body)
    bounds.check_records(len(records))  # Python's parser may have found some where msgspec's found none
    return decode_records(decoder, records)


def _small_records(body: bytes) -> Sequence[msgspec.Raw]:
    """Return the JSON texts of the records of a small body; empty if the body is not a batch: ``json_records`` then
    reports why.
    """
    try:
        return _list_decoder.decode(body) if is_list(body) else _records_decoder.decode(body).records
    except (ValueError, RecursionError):
        return ()


def _raw_records(content: Content, bounds: Bounds) -> Sequence[msgspec.Raw]:
    """Return the JSON texts of the records of a large body. Its faults are reported by msgspec: Python's parser would
    take too much memory.
    """
    try:
        _check_shape(content, _shape_decoder, bounds)
        return _records_decoder.decode(content).records
    except msgspec.ValidationError as error:
        members = _few_members(content)
        if "records" in members:
            _check_members(members)
        raise _no_records() from error
    except (ValueError, RecursionError) as error:
        raise unreadable("", error) from error


def raw_list(content: Content, bounds: Bounds) -> Sequence[msgspec.Raw]:
    """Return the JSON texts of the objects of a large body that is a list. Raise ``Invalid``, and ``TooLarge``."""
    try:
        _check_shape(content, _shapes_decoder, bounds)
        return _list_decoder.decode(content)
    except (ValueError, RecursionError) as error:
        raise unreadable("", error) from error


def _check_shape(content: Content, decoder: msgspec.json.Decoder[Any], bounds: Bounds) -> None:
    """Raise ``TooLarge`` if the body has more objects than the memory bound allows: an object may take only three
    bytes. Raise what ``decoder`` raises for other values, of which there could be even more.
    """
    most = _OBJECTS_OF_A_RECORD * bounds.records
    objects = count_of(content, b"{")
    if objects > most:
        bounds.check_records(objects // _OBJECTS_OF_A_RECORD)
    if count_of(content, b",") > most:
        decoder.decode(content)


def _few_members(content: Content) -> Collection[str]:
    """Return the members of a body that is an object, unless they are so many that they would fill the memory."""
    try:
        return _members_decoder.decode(content) if count_of(content, b":") < _MOST_MEMBERS else ()
    except msgspec.ValidationError:
        return ()


def count_of(content: Content, byte: bytes) -> int:
    """Return the number of occurrences of the byte in a body."""
    return sum(content[place : place + _COUNTED].count(byte) for place in range(0, len(content), _COUNTED))


def groups_of(raws: Sequence[bytes | msgspec.Raw], bounds: Bounds) -> Iterator[tuple[int, int]]:
    """Yield the range of the records in each piece. Raise ``TooLarge`` for a single record that is too large."""
    sizes = [len(raw) for raw in raws]
    bounds.check_record(max(sizes, default=0))
    return _groups(sizes, bounds.piece_bytes, bounds.piece_records)


def _groups(sizes: Sequence[int], most: int, most_records: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of groups of items with these ``sizes``. No group is larger than ``most``, unless it is a single
    item, or has more than ``most_records``; there is at least one group.
    """
    first = size = 0
    for place, one in enumerate(sizes):
        if (size + one > most and place > first) or place - first >= most_records:
            yield first, place
            first, size = place, 0
        size += one
    yield first, len(sizes)


def _decode_raws(decoder: RecordDecoder, raws: Sequence[msgspec.Raw], first: int) -> DecodedRecords:
    rows = range(first, first + len(raws))
    return decode_records(decoder, parsed_each(enumerate(raws, first), "record", rows), first)


def ndjson_pieces(decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """Yield one record a line; blank lines are skipped. Raise ``TooLarge``."""
    for texts, rows in ndjson_lines(content, bounds):
        bounds.check_records(rows + len(texts))
        for first in range(0, max(len(texts), 1), bounds.piece_records):
            yield partial(_decode_lines, decoder, texts[first : first + bounds.piece_records], rows + first)


def ndjson_lines(content: Content, bounds: Bounds) -> Iterator[tuple[Sequence[Numbered], int]]:
    """Yield the lines that are not blank, a piece at a time, each piece with the number of lines before it."""
    lines = rows = 0
    for _, part in text_pieces(content, bounds, lambda text: text.rfind(b"\n") + 1):
        split = part.splitlines()
        texts = _present(split, lines)
        yield texts, rows
        lines, rows = lines + len(split), rows + len(texts)


def _decode_lines(decoder: RecordDecoder, lines: Sequence[Numbered], first: int) -> DecodedRecords:
    return decode_records(decoder, parsed_each(lines, "line", range(first, first + len(lines))), first)


def _present(lines: Sequence[bytes], before: int) -> Sequence[Numbered]:
    """Return the lines that are not blank, after the ``before`` lines of earlier pieces."""
    return [(number, line) for number, line in enumerate(lines, before + 1) if line.strip()]


def parsed_each(texts: Iterable[Numbered], noun: str, rows: Sequence[int]) -> Sequence[object]:
    """Return the parsed value of each text. Raise ``Invalid`` with every text that is not JSON.

    ``rows`` are the numbers of the records in the body, ``noun`` is the word for a record in messages.
    """
    records: list[object] = []
    faults: list[Violation] = []
    total = 0
    for number, text in texts:
        try:
            records.append(_parsed(text))
        except (ValueError, RecursionError) as error:
            total += 1
            row = rows[len(records)]
            records.append(None)
            if len(faults) < REPORTED_VIOLATIONS:
                pointer, fix = f"/records/{row}", "send one JSON object a line" if noun == "line" else _FIX
                faults.append(replace(_fault(error, f"{noun} {number}", fix), pointer=pointer, row=row))
    if total:
        code = ErrorCode.INVALID_RECORDS
        message = f"{total} {noun}(s) are not JSON; nothing was stored"
        raise Invalid(message, code=code, violations=faults, total_violations=total)
    return records


def _parsed(text: bytes | msgspec.Raw) -> object:
    try:
        return _value_decoder.decode(text)
    except (ValueError, RecursionError, InvalidOperation):
        return _loads(bytes(text))  # whose messages clients already know


_FIX = "send JSON in UTF-8"


class _Constant(ValueError):
    """NaN, Infinity or -Infinity as a number, as Python's ``json.dumps`` writes it."""


class _TooManyDigits(ValueError):
    """A whole number with too many digits: parsing takes quadratic time in them."""


def unreadable(pointer: str, error: Exception) -> Invalid:
    """Return the error for a body that is not JSON, with the place that ``error`` names."""
    fault = replace(_fault(error, "the body", _FIX), pointer=pointer)
    return Invalid(fault.message, violations=[fault])


def _fault(error: Exception, what: str, fix: str) -> Violation:
    """Return why ``what`` cannot be read."""
    if isinstance(error, RecursionError):
        message = f"{what} is nested too deeply: {NESTED_BOUND}"
        return Violation("", FaultCode.NESTED_TOO_DEEPLY, message, "nest fewer levels")
    if isinstance(error, _TooManyDigits):
        return Violation("", FaultCode.INT_PARSING_SIZE, f"{what} has {error}", "send a number that some type holds")
    if isinstance(error, _Constant):
        return Violation("", FaultCode.NOT_JSON, f"{what} is not JSON: {error} is no number of JSON", f'send "{error}"')
    return Violation("", FaultCode.NOT_JSON, f"{what} is not JSON: {error}", fix)


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise _TooManyDigits(f"a whole number of {len(text)} digits, at most {MOST_DIGITS} are read")
    return int(text)


def _refuse_constant(name: str) -> NoReturn:
    raise _Constant(name)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent with too many digits") from None


def _unchanged(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return the object unchanged. This Python call for each object lets other threads run while a body is parsed."""
    return parsed


def _loads(text: bytes) -> Any:
    """JSON with exact numbers: those with a fraction or exponent become Decimal; NaN and Infinity are refused."""
    return json.loads(
        text.decode("utf-8"),
        object_hook=_unchanged,
        parse_int=_whole,
        parse_float=_decimal,
        parse_constant=_refuse_constant,
    )
