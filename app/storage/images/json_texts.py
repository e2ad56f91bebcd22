"""Columns as JSON texts, a whole column at a time: exactly the bytes of ``DataType.encoder`` and ``to_json``.

Values whose vectorised text would differ are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.records.answers import to_json
from app.core.plan.records.integers import as_text, encoder_of
from app.core.table.options.entries import Integers
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

TEXT = pa.large_string()

_SPECIAL = r'["\\\x00-\x1f]'  # what JSON escapes
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 and 9999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_MILLIS = 86_400_000
_SECOND = 1_000_000


@dataclass(frozen=True)
class Texts:
    """Texts of a column, each between ``before`` and ``after``; ``odd`` are those with another text."""

    inner: pa.Array
    before: str = ""
    after: str = ""
    odd: pa.Array | None = None

    @property
    def whole(self) -> pa.Array:
        """The texts with their surroundings."""
        return join(self.before, self.inner, self.after) if self.before or self.after else self.inner


ToTexts = Callable[[pa.Array, DataType], Texts]


def json_texts(values: pa.Array, data_type: DataType, missing: str = "null") -> pa.Array:
    """Return the JSON text of each value of ``data_type``; ``missing`` where there is none."""
    return json_pieces(values, data_type, missing).whole


def json_pieces(
    values: pa.Array, data_type: DataType, missing: str = "null", integers: Integers = Integers.NUMBER
) -> Texts:
    """Return ``json_texts`` in parts: what stands around every text is copied once, when rows are made of columns."""
    if integers is Integers.TEXT and as_text(data_type) is not None:
        return _with_integers_as_text(values, data_type, missing)
    texts = JSON_TEXTS[data_type.kind](values, data_type)
    odd = None if texts.odd is None else pc.fill_null(texts.odd, False)
    mends = odd is not None and odd.true_count
    if not mends and not texts.inner.null_count:
        return texts
    whole = texts.whole
    if mends:
        whole = pc.replace_with_mask(whole, odd, each(values.filter(odd), data_type.encoder))
    return Texts(pc.fill_null(whole, pa.scalar(missing, TEXT)) if whole.null_count else whole)


def _with_integers_as_text(values: pa.Array, data_type: DataType, missing: str) -> Texts:
    if data_type.kind is Kind.BIGINT:
        texts = Texts(pc.cast(values, TEXT), '"', '"')
        return texts if not values.null_count else Texts(pc.fill_null(texts.whole, pa.scalar(missing, TEXT)))
    texts = each(values, encoder_of(data_type, Integers.TEXT))
    return Texts(pc.fill_null(texts, pa.scalar(missing, TEXT)))


def each(values: pa.Array, encode: Callable[[Any], Any]) -> pa.Array:
    """Return the JSON texts, made one value after the other; null if there is none."""
    encoded = [None if value is None else encode(value) for value in values.to_pylist()]
    return pa.array([None if value is None else to_json(value).decode() for value in encoded], TEXT)


def join(*parts: pa.Array | str) -> pa.Array:
    """Return texts, one behind the other; null if one is null."""
    typed = (pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts)
    return pc.binary_join_element_wise(*typed, pa.scalar("", TEXT))


def _plain(values: pa.Array, _: DataType) -> Texts:
    return Texts(pc.cast(values, TEXT))


def _text(values: pa.Array, _: DataType) -> Texts:
    texts = pc.cast(values, TEXT)
    odd = pc.match_substring_regex(texts, _SPECIAL) if _has_special(texts) else None
    return Texts(texts, '"', '"', odd)


def _content(texts: pa.Array) -> Any:
    """Return the bytes of all texts."""
    _, places, content = texts.buffers()
    if content is None or not len(texts):
        return np.empty(0, dtype=np.uint8)
    edges = np.frombuffer(places, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(content, dtype=np.uint8)[edges[0] : edges[-1]]


def _has_special(texts: pa.Array) -> bool:
    """Return whether any character needs an escape: most columns have none, and this is ten times as fast as finding
    which.
    """
    read = _content(texts)
    return bool(((read < 0x20) | (read == 0x22) | (read == 0x5C)).any())


def _decimal(values: pa.Array, _: DataType) -> Texts:
    texts = pc.cast(values, TEXT)
    exponents = bool((_content(texts) == ord("E")).any())
    return Texts(texts, '"', '"', pc.match_substring(texts, "E") if exponents else None)


def _floating(values: pa.Array, _: DataType) -> Texts:
    """Return the texts of floating-point numbers: both write the fewest digits, but Python has exponents from 1e16 on
    and below 1e-4, Arrow others.
    """
    texts = pc.cast(values, TEXT)
    size = pc.abs(values)
    whole = pc.equal(pc.floor(values), values)
    usual = pc.or_(pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, 1e10)), pc.equal(size, 0.0))
    if whole.true_count:
        texts = pc.if_else(whole, join(texts, ".0"), texts)
    return Texts(texts, odd=pc.invert(usual))


def _outside(values: pa.Array, low: int, high: int) -> pa.Array | None:
    """Return which values are outside a range; None if there are none."""
    ends = pc.min_max(values)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (low <= least and most <= high):
        return None
    return pc.or_(pc.less(values, low), pc.greater(values, high))


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Return texts of times without the zeros that end the fraction."""
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")


def _timestamp(values: pa.Array, data_type: DataType) -> Texts:
    micros, moments = values.view(pa.int64()), values.view(pa.timestamp("us"))
    seconds = pc.all(pc.equal(pc.multiply(pc.divide(micros, _SECOND), _SECOND), micros)).as_py()
    texts = _with_t(pc.cast(moments.cast(pa.timestamp("s")) if seconds else moments, TEXT))
    shown = texts if seconds else _without_zeros(texts)
    after = 'Z"' if data_type.kind is Kind.TIMESTAMP_LTZ else '"'
    return Texts(shown, '"', after, _outside(micros, _FIRST_MICROS, _LAST_MICROS))


def _with_t(texts: pa.Array) -> pa.Array:
    """Return texts of moments with a T between day and clock; texts of one width are changed all at once."""
    content = _content(texts)
    width = len(content) // max(1, len(texts))
    if texts.null_count or texts.offset or not width or not bool((content[10::width] == ord(" ")).all()):
        return pc.replace_substring(texts, " ", "T", max_replacements=1)
    changed = content.copy()
    changed[10::width] = ord("T")
    _, places, _ = texts.buffers()
    return pa.Array.from_buffers(TEXT, len(texts), [None, places, pa.py_buffer(changed)])


def _date(values: pa.Array, _: DataType) -> Texts:
    return Texts(pc.cast(values, TEXT), '"', '"', _outside(values.view(pa.int32()), _FIRST_DAY, _LAST_DAY))


def _time(values: pa.Array, _: DataType) -> Texts:
    odd = _outside(values, 0, _DAY_MILLIS - 1)
    clocks = values if odd is None else pc.if_else(odd, 0, values).cast(pa.int32())
    return Texts(_without_zeros(pc.cast(clocks.view(pa.time32("ms")), TEXT)), '"', '"', odd)


def _one_by_one(values: pa.Array, data_type: DataType) -> Texts:
    return Texts(each(values, data_type.encoder))


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
