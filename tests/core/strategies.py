"""Random types, and random values of each: scalars at their limits, nesting, nulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from app.core.types.datatype import ENTRIES, DataType, Field
from app.core.types.kinds import Kind
from app.core.types.values import one_zero

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)

_PLAIN = tuple(kind for kind in Kind if not ENTRIES[kind].inside and not ENTRIES[kind].parameters)
_LENGTHS = st.one_of(st.integers(1, 10), st.sampled_from([255, 2_147_483_646]))


def _decimals() -> st.SearchStrategy[DataType]:
    def with_scale(precision: int) -> st.SearchStrategy[DataType]:
        return st.integers(0, precision).map(lambda scale: DataType(Kind.DECIMAL, precision=precision, scale=scale))

    return st.integers(1, 38).flatmap(with_scale)


def _sized(kind: Kind) -> st.SearchStrategy[DataType]:
    return _LENGTHS.map(lambda length: DataType(kind, length=length))


def _precise(kind: Kind, most: int) -> st.SearchStrategy[DataType]:
    return st.integers(0, most).map(lambda precision: DataType(kind, precision=precision))


SCALAR_TYPES = st.one_of(
    st.sampled_from(_PLAIN).map(DataType),
    _decimals(),
    *(_sized(kind) for kind in (Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY)),
    _precise(Kind.TIME, 9),
    _precise(Kind.TIMESTAMP, 6),
    _precise(Kind.TIMESTAMP_LTZ, 6),
)
_MAYBE_NULL = st.booleans()


def _null_or_not(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.builds(lambda data_type, nullable: data_type.with_nullable(nullable), types, _MAYBE_NULL)


def _rows(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.lists(st.tuples(NAMES, inner, st.none() | TEXT), min_size=1, max_size=3, unique_by=lambda f: f[0])
    return fields.map(
        lambda found: DataType(Kind.ROW, fields=tuple(Field(i, n, t, text) for i, (n, t, text) in enumerate(found)))
    )


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    keys = _null_or_not(SCALAR_TYPES)
    return _null_or_not(
        st.one_of(
            inner.map(lambda t: DataType(Kind.ARRAY, element=t)),
            keys.map(lambda t: DataType(Kind.MULTISET, element=t)),
            st.builds(lambda key, element: DataType(Kind.MAP, key=key, element=element), keys, inner),
            keys.map(lambda t: DataType(Kind.MAP, key=DataType(Kind.ARRAY, element=t), element=DataType(Kind.INT))),
            _rows(inner),
        )
    )


TYPES = st.recursive(_null_or_not(SCALAR_TYPES), _nested, max_leaves=4)


def _whole(bits: int) -> st.SearchStrategy[int]:
    half = 1 << bits - 1
    return st.one_of(st.integers(-half, half - 1), st.sampled_from([-half, half - 1, 0, -1]))


def _decimal_values(data_type: DataType) -> st.SearchStrategy[Decimal]:
    most = 10 ** (data_type.precision or 0) - 1
    unscaled = st.one_of(st.integers(-most, most), st.sampled_from([most, -most, 0]))
    # Without scaleb, which rounds to 28 digits.
    return unscaled.map(lambda u: Decimal((int(u < 0), tuple(map(int, str(abs(u)))), -(data_type.scale or 0))))


def _timestamps(data_type: DataType) -> st.SearchStrategy[datetime]:
    unit = 10 ** (6 - (data_type.precision or 0))
    zone = UTC if data_type.kind is Kind.TIMESTAMP_LTZ else None
    moments = st.one_of(
        st.datetimes(), st.sampled_from([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)])
    )
    return moments.map(lambda m: m.replace(microsecond=m.microsecond // unit * unit, tzinfo=zone, fold=0))


def _times(data_type: DataType) -> st.SearchStrategy[int]:
    unit = 10 ** (3 - min(data_type.precision or 0, 3))
    return st.integers(0, 86_399_999).map(lambda millis: millis // unit * unit)


def _text_values(data_type: DataType) -> st.SearchStrategy[str]:
    return TEXT.map(lambda text: text[: data_type.length])


def _binary_values(data_type: DataType) -> st.SearchStrategy[bytes]:
    return st.binary(max_size=8).map(lambda value: value[: data_type.length])


def _row_values(data_type: DataType) -> st.SearchStrategy[dict[str, Any]]:
    names = [field.name for field in data_type.fields]
    return st.tuples(*(values(field.type) for field in data_type.fields)).map(
        lambda row: dict(zip(names, row, strict=True))
    )


def _map_values(data_type: DataType) -> st.SearchStrategy[list[tuple[Any, Any]]]:
    multiset = data_type.kind is Kind.MULTISET
    key = data_type.element_type if multiset else data_type.key_type
    element = st.integers(1, 2**31 - 1) if multiset else values(data_type.element_type)
    # 0.0 and -0.0 are one key to Spark.
    entries = st.tuples(values(key.with_nullable(False)).map(one_zero), element)
    return st.lists(entries, max_size=3, unique_by=lambda entry: repr(entry[0]).replace("-0.0", "0.0"))


_FINITE = {"allow_nan": False, "allow_infinity": False}
_VALUES: Mapping[Kind, Callable[[DataType], st.SearchStrategy[Any]]] = {
    Kind.BOOLEAN: lambda _: st.booleans(),
    Kind.TINYINT: lambda _: _whole(8),
    Kind.SMALLINT: lambda _: _whole(16),
    Kind.INT: lambda _: _whole(32),
    Kind.BIGINT: lambda _: _whole(64),
    Kind.FLOAT: lambda _: st.floats(width=32, **_FINITE),
    Kind.DOUBLE: lambda _: st.floats(**_FINITE),
    Kind.DECIMAL: _decimal_values,
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.STRING), _text_values),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BYTES), _binary_values),
    Kind.DATE: lambda _: st.one_of(st.dates(), st.sampled_from([date(1, 1, 1), date(1969, 12, 31)])),
    Kind.TIME: _times,
    **dict.fromkeys((Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ), _timestamps),
    Kind.ARRAY: lambda t: st.lists(values(t.element_type), max_size=3),
    Kind.ROW: _row_values,
    **dict.fromkeys((Kind.MAP, Kind.MULTISET), _map_values),
}


def values(data_type: DataType) -> st.SearchStrategy[Any]:
    """Legal values of the type, null included where it may be null."""
    present = _VALUES[data_type.kind](data_type)
    return st.none() | present if data_type.nullable else present
