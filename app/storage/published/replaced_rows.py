"""Which rows of a published version's files a later change replaces or removes, found by their keys (decision 54).

A row of a run is hidden where a change of its key came after it; a change where it says what was before, and where
another change of its key came later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache
from pyroaring import BitMap

from app.core.table.published import Published
from app.core.table.records import KIND_COLUMN, TOKEN_COLUMN, RowKind
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.files.layout import Warehouse
from app.files.named_files import file_of_changelog, file_of_run, opened_parquet
from app.files.reading import may_hold
from app.kernel.columns import Places, Truths
from app.kernel.keys import grouped

_REMEMBERED: Final = 2_000_000  # changes in memory, of all tables
_GONE: Final = [int(kind) for kind in RowKind if not kind.add]
Hidden = Mapping[str, BitMap]
"""The places of hidden rows, by the path of their file."""


@dataclass
class _Known:
    """The changes on top of the same runs, as far as they were read: their keys, in the order of files.

    ``hits`` has the rows of runs that they hide, each with the number of the first change file that does.
    """

    files: list[str] = field(default_factory=list)
    keys: list[pa.Table] = field(default_factory=list)
    hits: dict[str, tuple[Places, Places]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many changes; at least 1."""
        return sum(map(len, self.keys)) + 1


_known: LRUCache[tuple[object, ...], _Known] = LRUCache(_REMEMBERED, getsizeof=lambda known: known.rows)
_lock = threading.Lock()


def hidden_rows(warehouse: Warehouse, published: Published) -> Hidden:
    """Return the rows of all files of a version that changes hide. Raise ``DamagedFile``."""
    table_id, schema = published.version.table_id, published.schema
    files = [
        file_of_changelog(table_id, change.snapshot_id, file) for change in published.changes for file in change.files
    ]
    if not files:
        return {}
    place = (warehouse.path(), table_id, schema.primary_key, *(run.id for run in published.runs))
    with _lock:
        known = _known.pop(place, None) or _Known()
        names = [named_file.path for named_file in files]
        common = min(len(names), len(known.files))
        if names[:common] != known.files[:common]:
            known = _Known()  # keys were taken out of a changelog
        _read_new(warehouse, published, known, files[len(known.files) :])
        if known.rows <= _REMEMBERED:
            _known[place] = known
        return _hidden(schema, known, len(files))


def _read_new(warehouse: Warehouse, published: Published, known: _Known, files: Sequence[NamedFile]) -> None:
    if not files:
        return
    schema, table_id = published.schema, published.version.table_id
    new = [_keys_of(warehouse, schema, file) for file in files]
    numbers = np.repeat(np.arange(len(files)) + len(known.files), [len(table) for table in new])
    together = pa.concat_tables([table.drop_columns([KIND_COLUMN]) for table in new]).combine_chunks()
    for run in published.runs:
        for file in run.files:
            named = file_of_run(table_id, run.id, file)
            new_hits = [*_hits(warehouse, schema, named, together, numbers)]
            if new_hits:
                before = [known.hits[named.path]] if named.path in known.hits else []
                places, first = (np.concatenate(arrays) for arrays in zip(*before, *new_hits, strict=True))
                known.hits[named.path] = (places, first)
    known.files += [file.path for file in files]
    known.keys += new


def _keys_of(warehouse: Warehouse, schema: TableSchema, file: NamedFile) -> pa.Table:
    with opened_parquet(warehouse, file) as parquet:
        names = [TOKEN_COLUMN, KIND_COLUMN, *schema.primary_key]
        return parquet.read(columns=names).select(names)


def _hits(
    warehouse: Warehouse, schema: TableSchema, file: NamedFile, keys: pa.Table, numbers: Places
) -> Iterator[tuple[Places, Places]]:
    """Yield by row group the places of the file's rows that have one of the ``keys``, and the smallest of the
    ``numbers`` of that key.
    """
    tokens = np.sort(keys.column(TOKEN_COLUMN).to_numpy())
    with opened_parquet(warehouse, file) as parquet:
        start = 0
        for group in range(parquet.num_row_groups):
            if may_hold(tokens, parquet.metadata.row_group(group)):
                yield from _hits_in(parquet, group, start, schema, keys, numbers)
            start += parquet.metadata.row_group(group).num_rows


def _hits_in(
    parquet: pq.ParquetFile, group: int, start: int, schema: TableSchema, keys: pa.Table, numbers: Places
) -> Iterator[tuple[Places, Places]]:
    tokens = parquet.read_row_group(group, columns=[TOKEN_COLUMN]).column(0).to_numpy()
    wanted = keys.column(TOKEN_COLUMN).to_numpy()
    places = np.flatnonzero(np.isin(tokens, wanted))
    if not len(places):
        return
    names = [TOKEN_COLUMN, *schema.primary_key]
    rows = parquet.read_row_group(group, columns=names).select(names).take(pa.array(places))
    shared = np.flatnonzero(np.isin(wanted, tokens[places]))
    together = pa.concat_tables([_plain(rows), _plain(keys.take(pa.array(shared)))]).combine_chunks()
    groups = grouped(schema, together.column(TOKEN_COLUMN).to_numpy(), together)
    first = np.full(len(groups.starts), np.iinfo(np.int64).max)
    np.minimum.at(first, groups.numbers[len(places) :], numbers[shared])
    of_rows = first[groups.numbers[: len(places)]]
    hit = of_rows != np.iinfo(np.int64).max
    yield places[hit] + start, of_rows[hit]


def _plain(rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None).cast(
        pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    )


def _hidden(schema: TableSchema, known: _Known, count: int) -> Hidden:
    """Return the rows that the first ``count`` files of changes hide."""
    hidden: dict[str, BitMap] = {}
    for path, (hit, first) in known.hits.items():
        hidden[path] = _bits(hit[first < count])
    keys = known.keys[:count]
    rows = pa.concat_tables([_plain(key) for key in keys]).combine_chunks()
    numbers = np.repeat(np.arange(count), [len(key) for key in keys])
    gone = np.asarray(pc.is_in(rows.column(KIND_COLUMN), pa.array(_GONE, rows.schema.field(KIND_COLUMN).type)))
    gone |= _followed(schema, rows, numbers)
    ends = np.cumsum([len(key) for key in keys])
    for path, of_file in zip(known.files, np.split(gone, ends[:-1]), strict=False):
        hidden[path] = _bits(np.flatnonzero(of_file))
    return {path: bits for path, bits in hidden.items() if bits}


def _bits(places: Places) -> BitMap:
    return BitMap(places.astype(np.uint32))


def _followed(schema: TableSchema, rows: pa.Table, numbers: Places) -> Truths:
    """Return which rows a row of the same key follows in a later file."""
    groups = grouped(schema, rows.column(TOKEN_COLUMN).to_numpy(), rows)
    last = np.maximum.reduceat(numbers[groups.order], groups.starts)
    return np.asarray(numbers < last[groups.numbers])
