"""The footer of a Parquet file, read without pyarrow: if a damaged footer lacks a member, pyarrow ends the process."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.storage.staging.spool import Content

_MAGIC = b"PAR1"
_BYTE_ARRAY, _FIXED = 6, 7
# Bytes of a value once it is decoded, by physical type: of bytes of any length their place in a dictionary.
_WIDTHS = (1, 4, 8, 12, 4, 8, 4)
_DEEPEST = 16
MOST_FOOTER_BYTES = 2**25
# Most members of the footer and of the headers of all pages: each becomes a Python value.
MOST_MEMBERS = 2_000_000
Members = dict[int, Any]


@dataclass(frozen=True)
class Footer:
    """The sizes that a file declares: its rows, and the values of all columns.

    ``unpacked_bytes`` are those of its pages once they are decompressed, ``largest_page`` those of one.
    ``decoded_bytes`` are those of its values once they are decoded. ``nested_bytes`` are those of the nested values of
    one row group, which are decoded together however few rows are read. ``byte_columns`` are the paths of the columns
    whose values are bytes of any length.
    """

    rows: int
    values: int
    unpacked_bytes: int
    largest_page: int
    decoded_bytes: int
    nested_bytes: int
    byte_columns: tuple[str, ...]


def read_footer(body: Content) -> Footer:
    """Return the footer of a Parquet file, and the headers of all its pages. Raise ``ValueError`` if it contradicts
    itself.
    """
    if len(body) < 12 or body[:4] != _MAGIC or body[-4:] != _MAGIC:
        raise ValueError("it does not begin and end as one")
    length = int.from_bytes(body[-8:-4], "little")
    if length > len(body) - 12:
        raise ValueError("its footer is longer than the file")
    if length > MOST_FOOTER_BYTES:
        raise ValueError(
            f"its footer has {length} bytes, at most {MOST_FOOTER_BYTES} are read; write larger row groups"
        )
    try:
        return _footer(body, _Compact(body, len(body) - 8 - length, _Budget()).struct())
    except (KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"its footer cannot be read ({type(error).__name__})") from error


def _footer(body: Content, members: Members) -> Footer:
    elements = members[2]
    leaves = [element for element in elements if not element.get(5)]
    rows, groups = members[3], members.get(4) or []
    chunks = [chunk[3] for group in groups for chunk in group[1]]
    if rows < 0 or any(len(group[1]) != len(leaves) for group in groups) or sum(group[3] for group in groups) != rows:
        raise ValueError("its row groups are not those of its schema")
    widths = [_width(element) for element in leaves]
    if min((*widths, *(size for chunk in chunks for size in (chunk[5], chunk[6]))), default=0) < 0:
        raise ValueError("it declares a size below zero")
    headers = _Budget()
    sizes = [[*_pages(body, chunk, headers)] for chunk in chunks]
    values = [max(chunk[5], sum(count for _, count in pages)) for chunk, pages in zip(chunks, sizes, strict=True)]
    unpacked = [max(chunk[6], sum(size for size, _ in pages)) for chunk, pages in zip(chunks, sizes, strict=True)]
    decoded = [count * width for count, width in zip(values, widths * len(groups), strict=True)]
    nested = [size if len(chunk[3]) > 1 else 0 for chunk, size in zip(chunks, decoded, strict=True)]
    paths = {b".".join(chunk[3]).decode() for chunk in chunks if chunk[1] == _BYTE_ARRAY}
    of_groups = (sum(nested[place : place + len(leaves)]) for place in range(0, len(nested), len(leaves) or 1))
    return Footer(
        rows,
        sum(values),
        sum(unpacked),
        max((size for pages in sizes for size, _ in pages), default=0),
        sum(decoded) + sum(unpacked),
        max(of_groups, default=0),
        tuple(sorted(paths)),
    )


def _width(element: Members) -> int:
    kind = element.get(1)
    width: int = element.get(2, 0) if kind == _FIXED else _WIDTHS[kind or 0]
    return width


def _pages(body: Content, chunk: Members, budget: _Budget) -> Iterator[tuple[int, int]]:
    """Return for each page its declared bytes once it is decompressed, and its number of values."""
    if not chunk[7]:
        return  # a column without values may have no page, and then lies nowhere
    start = min(offset for offset in (chunk.get(11), chunk[9]) if offset)
    end = start + chunk[7]
    if not 4 <= start <= end <= len(body):
        raise ValueError("a column lies outside of the file")
    while start < end:
        reader = _Compact(body, start, budget)
        header = reader.struct()
        of_data: Members = header.get(5) or header.get(8) or {1: 0}
        if header[2] < 0 or header[3] < 0 or of_data[1] < 0:
            raise ValueError("a page declares a size below zero")
        yield header[2], of_data[1]
        start = reader.place + header[3]


@dataclass
class _Budget:
    """How many members may still be read."""

    left: int = MOST_MEMBERS

    def spend(self) -> None:
        """Count one more member. Raise ``ValueError`` beyond the most."""
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it has more than {MOST_MEMBERS} members in its footer or pages; write larger row groups")


class _Compact:
    """Thrift's compact protocol: structs as members by field id."""

    def __init__(self, body: Content, place: int, budget: _Budget) -> None:
        self.body = body
        self.place = place
        self.budget = budget

    def struct(self, depth: int = 0) -> Members:
        """Return the members of the struct that begins here."""
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        members: Members = {}
        field = 0
        while kind := self._byte():
            step, kind = kind >> 4, kind & 15
            field = field + step if step else self._zigzag()
            self.budget.spend()
            members[field] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return members

    def _byte(self) -> int:
        self.place += 1
        return self.body[self.place - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number has too many bytes")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _value(self, kind: int, depth: int) -> Any:
        self.budget.spend()
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            self.place += 8
            return struct.unpack_from("<d", self.body, self.place - 8)[0]
        if kind == 8:
            length = self._varint()
            self.place += length
            if self.place > len(self.body):
                raise ValueError("a text is longer than the file")
            return self.body[self.place - length : self.place]
        if kind in (9, 10):
            return self._list(depth)
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"a member of kind {kind} is none of Parquet's")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        if size > len(self.body):
            raise ValueError("a list is longer than the file")
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        return [self._value(kind, depth + 1) for _ in range(size)]
