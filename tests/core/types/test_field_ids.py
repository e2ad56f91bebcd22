"""Ids of columns and ROW fields are unique across a schema."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from app.core.types.datatype import DataType, Field, walk_types
from app.core.types.field_ids import with_unique_ids
from app.core.types.kinds import Kind

INT = DataType(Kind.INT)


def _row(*fields: tuple[int, DataType]) -> DataType:
    return DataType(Kind.ROW, fields=tuple(Field(number, f"f{at}", inner) for at, (number, inner) in enumerate(fields)))


def _ids(columns: list[tuple[int, DataType]]) -> Iterator[int]:
    for number, data_type in columns:
        yield number
        yield from (field.id for inner in walk_types(data_type) for field in inner.fields)


def test_nested_fields_give_way_to_columns_parents_before_children() -> None:
    columns = [(0, INT), (1, _row((0, _row((0, INT))), (1, INT))), (2, INT)]
    assert with_unique_ids(columns) == [(0, INT), (1, _row((3, _row((4, INT))), (5, INT))), (2, INT)]


def test_fields_inside_arrays_maps_and_multisets_are_counted() -> None:
    pair = DataType(Kind.MAP, key=_row((0, INT)), element=DataType(Kind.ARRAY, element=_row((0, INT))))
    fresh = DataType(Kind.MAP, key=_row((1, INT)), element=DataType(Kind.ARRAY, element=_row((2, INT))))
    assert with_unique_ids([(0, pair)]) == [(0, fresh)]


def test_columns_of_one_id_are_distinguished() -> None:
    assert [number for number, _ in with_unique_ids([(4, INT), (4, INT), (0, INT)])] == [4, 5, 0]


_numbers = st.integers(-1, 6)
_types = st.recursive(
    st.just(INT), lambda inner: st.lists(st.tuples(_numbers, inner), min_size=1, max_size=3).map(lambda f: _row(*f))
)


@given(st.lists(st.tuples(_numbers, _types), max_size=4))
def test_no_id_is_used_twice_and_a_second_pass_changes_nothing(columns: list[tuple[int, DataType]]) -> None:
    unique = with_unique_ids(columns)
    ids = list(_ids(unique))
    assert len(ids) == len(set(ids))
    assert min(ids, default=0) >= 0
    assert with_unique_ids(unique) == unique
