"""Columns as JSON texts, a whole column at a time: exactly the bytes that ``DataType.encoder`` and ``to_json`` come to.

Where the vectorised text of some values would be another one, these are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.answers import to_json
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

TEXT = pa.large_string()
ToTexts = Callable[[pa.Array, DataType], pa.Array]

_SPECIAL = r'["\\\x00-\x1f]'  # what JSON escapes
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 and 9999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_MILLIS = 86_400_000


def json_texts(values: pa.Array, data_type: DataType, missing: str = "null") -> pa.Array:
    """The JSON text of each value of ``data_type``; ``missing`` where there is none."""
    return pc.fill_null(JSON_TEXTS[data_type.kind](values, data_type), pa.scalar(missing, TEXT))


def each(values: pa.Array, encode: Callable[[Any], Any]) -> pa.Array:
    """As ``json_texts``, one value after the other; null where there is none."""
    encoded = [None if value is None else encode(value) for value in values.to_pylist()]
    return pa.array([None if one is None else to_json(one).decode() for one in encoded], TEXT)


def join(*parts: pa.Array | str) -> pa.Array:
    """Texts, one behind the other; null where one is null."""
    typed = (pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts)
    return pc.binary_join_element_wise(*typed, pa.scalar("", TEXT))


def _mended(texts: pa.Array, odd: pa.Array, values: pa.Array, data_type: DataType) -> pa.Array:
    """``texts``, with the values that are ``odd`` encoded one by one."""
    odd = pc.fill_null(odd, False)
    if not odd.true_count:
        return texts
    return pc.replace_with_mask(texts, odd, each(values.filter(odd), data_type.encoder))


def _quoted(texts: pa.Array) -> pa.Array:
    return join('"', texts, '"')


def _plain(values: pa.Array, _: DataType) -> pa.Array:
    return pc.cast(values, TEXT)


def _text(values: pa.Array, data_type: DataType) -> pa.Array:
    texts = pc.cast(values, TEXT)
    quoted = _quoted(texts)
    if not _has_special(texts):
        return quoted
    return _mended(quoted, pc.match_substring_regex(texts, _SPECIAL), values, data_type)


def _has_special(texts: pa.Array) -> bool:
    """Whether any character needs an escape: most columns have none, and this is ten times as fast as to look which."""
    _, places, content = texts.buffers()
    if content is None or not len(texts):
        return False
    edges = np.frombuffer(places, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    read = np.frombuffer(content, dtype=np.uint8)[edges[0] : edges[-1]]
    return bool(((read < 0x20) | (read == 0x22) | (read == 0x5C)).any())


def _decimal(values: pa.Array, data_type: DataType) -> pa.Array:
    texts = pc.cast(values, TEXT)
    return _mended(_quoted(texts), pc.match_substring(texts, "E"), values, data_type)


def _floating(values: pa.Array, data_type: DataType) -> pa.Array:
    """Both write the fewest digits; Python has exponents from 1e16 on and below 1e-4, Arrow other ones."""
    texts = pc.cast(values, TEXT)
    size = pc.abs(values)
    whole = pc.equal(pc.floor(values), values)
    usual = pc.or_(pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, 1e10)), pc.equal(size, 0.0))
    return _mended(pc.if_else(whole, join(texts, ".0"), texts), pc.invert(usual), values, data_type)


def _outside(values: pa.Array, low: int, high: int) -> pa.Array:
    return pc.or_(pc.less(values, low), pc.greater(values, high))


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Texts of times without the zeros that end the fraction."""
    return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")


def _timestamp(values: pa.Array, data_type: DataType) -> pa.Array:
    micros = values.view(pa.int64())
    moments = values.view(pa.timestamp("us"))
    seconds = pc.all(pc.equal(pc.multiply(pc.divide(micros, 1_000_000), 1_000_000), micros)).as_py()
    texts = pc.cast(moments.cast(pa.timestamp("s")) if seconds else moments, TEXT)
    shown = texts if seconds else _without_zeros(texts)
    day_and_clock = pc.replace_substring(shown, " ", "T", max_replacements=1)
    quoted = join('"', day_and_clock, 'Z"' if data_type.kind is Kind.TIMESTAMP_LTZ else '"')
    return _mended(quoted, _outside(micros, _FIRST_MICROS, _LAST_MICROS), values, data_type)


def _date(values: pa.Array, data_type: DataType) -> pa.Array:
    odd = _outside(values.view(pa.int32()), _FIRST_DAY, _LAST_DAY)
    return _mended(_quoted(pc.cast(values, TEXT)), odd, values, data_type)


def _time(values: pa.Array, data_type: DataType) -> pa.Array:
    odd = _outside(values, 0, _DAY_MILLIS - 1)
    clock = pc.cast(pc.if_else(odd, 0, values).cast(pa.int32()).view(pa.time32("ms")), TEXT)
    return _mended(_quoted(_without_zeros(clock)), odd, values, data_type)


def _one_by_one(values: pa.Array, data_type: DataType) -> pa.Array:
    return each(values, data_type.encoder)


JSON_TEXTS: Mapping[Kind, ToTexts] = {
    **dict.fromkeys((Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT), _plain),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _floating),
    Kind.DECIMAL: _decimal,
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.STRING), _text),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BYTES), _one_by_one),
    Kind.DATE: _date,
    Kind.TIME: _time,
    **dict.fromkeys((Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ), _timestamp),
    **dict.fromkeys((Kind.ARRAY, Kind.MULTISET, Kind.MAP, Kind.ROW), _one_by_one),
}
