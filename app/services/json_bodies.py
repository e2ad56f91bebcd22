"""JSON bodies as Python values, numbers exact."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, NoReturn

import msgspec

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.bounds import Bounds
from app.core.plan.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.storage.ingest.lists import decode_records
from app.storage.ingest.pieces import Piece, text_pieces
from app.storage.spool import Content


def parse_json(body: bytes) -> object:
    """The JSON of a body, numbers exact. Raises ``Invalid``."""
    try:
        return _loads(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable("", error) from error


class _Records(msgspec.Struct, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


_records_decoder = msgspec.json.Decoder(_Records)
_value_decoder = msgspec.json.Decoder(float_hook=Decimal)
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])
Numbered = tuple[int, bytes | msgspec.Raw]
"""The text of a record with the number that a message names it by."""


def json_records(body: bytes) -> Sequence[object]:
    """The records of ``{"records": […]}``. Raises ``Invalid``."""
    try:
        # One by one, so that other threads have their turns while a large body is parsed.
        return [_value_decoder.decode(raw) for raw in _records_decoder.decode(body).records]
    except (ValueError, RecursionError, InvalidOperation):
        return _json_records(body)


def _json_records(body: bytes) -> Sequence[object]:
    parsed = parse_json(body)
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
    """The records of ``{"records": […]}``. Raises ``Invalid`` for another body, and ``TooLarge``."""
    bounds.check_whole(len(content))
    if len(content) <= bounds.piece_bytes:
        records = json_records(bytes(content))
        bounds.check_records(len(records))
        yield partial(decode_records, decoder, records)
        return
    raws = _raw_records(content)
    bounds.check_records(len(raws))
    for first, last in _groups([len(raw) for raw in raws], bounds.piece_bytes):
        yield partial(_decode_raws, decoder, raws[first:last], first)


def _raw_records(content: Content) -> Sequence[msgspec.Raw]:
    """The records of a large body as they stand there. What is wrong with it msgspec says: Python's parser would fill
    the memory.
    """
    try:
        members = _members_decoder.decode(content)
        records = _list_decoder.decode(members["records"])
    except (msgspec.ValidationError, KeyError):
        raise _no_records() from None
    except (ValueError, RecursionError) as error:
        raise _unreadable("", error) from error
    _check_members(members)
    return records


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Where to cut what has ``sizes`` so that no group is larger than ``most``, unless one alone is; one at least."""
    first = size = 0
    for place, one in enumerate(sizes):
        if size + one > most and place > first:
            yield first, place
            first, size = place, 0
        size += one
    yield first, len(sizes)


def _decode_raws(decoder: RecordDecoder, raws: Sequence[msgspec.Raw], first: int) -> DecodedRecords:
    return decode_records(decoder, _parsed_each(enumerate(raws, first), "record", first), first)


def ndjson_pieces(decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """One record a line; blank lines are skipped. Raises ``TooLarge``."""
    lines = rows = 0
    for _, part in text_pieces(content, bounds, lambda text: text.rfind(b"\n") + 1):
        split = part.splitlines()
        texts = _present(split, lines)
        bounds.check_records(rows + len(texts))
        yield partial(_decode_lines, decoder, texts, rows)
        lines, rows = lines + len(split), rows + len(texts)


def _decode_lines(decoder: RecordDecoder, lines: Sequence[Numbered], first: int) -> DecodedRecords:
    return decode_records(decoder, _parsed_each(lines, "line", first), first)


def ndjson_records(body: bytes) -> Sequence[object]:
    """One record a line; blank lines are skipped. Lines that are no JSON are reported all together."""
    return _parsed_each(_present(body.splitlines(), 0), "line", 0)


def _present(lines: Sequence[bytes], before: int) -> Sequence[Numbered]:
    """The lines that are not blank; ``before`` others come before them."""
    return [(number, line) for number, line in enumerate(lines, before + 1) if line.strip()]


def _parsed_each(texts: Iterable[Numbered], noun: str, first: int) -> Sequence[object]:
    """The value of each text, the first of which is the record ``first`` of the body."""
    records: list[object] = []
    faults: list[Violation] = []
    total = 0
    for number, text in texts:
        try:
            records.append(_parsed(text))
        except (ValueError, RecursionError) as error:
            total += 1
            row = first + len(records)
            records.append(None)
            if len(faults) < REPORTED_VIOLATIONS:
                message = f"{noun} {number} is not JSON: {error}"
                fix = "send one JSON object a line" if noun == "line" else "send JSON in UTF-8"
                faults.append(Violation(f"/records/{row}", FaultCode.NOT_JSON, message, fix, row))
    if total:
        code = ErrorCode.INVALID_RECORDS
        message = f"{total} {noun}(s) are not JSON; nothing was stored"
        raise Invalid(message, code=code, violations=faults, total_violations=total)
    return records


def _parsed(text: bytes | msgspec.Raw) -> object:
    try:
        return _value_decoder.decode(text)
    except (ValueError, RecursionError, InvalidOperation):
        return _loads(bytes(text))  # which says what is wrong in the words that it has always had


def _unreadable(pointer: str, error: Exception) -> Invalid:
    message = "the body is nested too deeply" if isinstance(error, RecursionError) else f"the body is not JSON: {error}"
    return Invalid(message, violations=[Violation(pointer, FaultCode.NOT_JSON, message, "send JSON in UTF-8")])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent with too many digits") from None


def _unchanged(parsed: dict[str, Any]) -> dict[str, Any]:
    """A call of Python's for each object: without any, other threads would wait until the last byte is parsed."""
    return parsed


def _loads(text: bytes) -> Any:
    """JSON with exact numbers: those with a fraction or exponent become Decimal; NaN and Infinity are refused."""
    return json.loads(
        text.decode("utf-8"), object_hook=_unchanged, parse_float=_decimal, parse_constant=_refuse_constant
    )
