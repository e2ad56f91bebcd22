"""Scans: all rows of a view by partition and token, merged across runs (docs/decisions/0021)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from app.core.plan.records.integers import integers_of
from app.core.plan.records.row_filters import Condition, parse_filters
from app.core.table.history import Run
from app.core.table.options.entries import Integers
from app.core.table.schema import Column
from app.files.layout import Warehouse
from app.files.reading import LEAST_TOKEN, MOST_TOKEN, TokenRange
from app.services.rows.lookups import wanted_columns
from app.services.rows.views import View
from app.storage.scans.merging import Part, Source, rows_of_partition
from app.storage.scans.staged import StagedKeys, staged_keys
from app.storage.scans.writers import CSV, NDJSON, PARQUET, WRITERS

__all__ = [
    "ALL_TOKENS",
    "BEGINNING",
    "CSV",
    "LEAST_TOKEN",
    "MOST_TOKEN",
    "NDJSON",
    "PARQUET",
    "WRITERS",
    "Part",
    "Place",
    "Scan",
    "TokenRange",
    "parts",
    "read_scan",
    "written",
]
ALL_TOKENS = TokenRange()


class Place(NamedTuple):
    """A place in a scan: after ``skip`` rows with the token, in the partition of this number."""

    partition: int
    token: int
    skip: int


BEGINNING = Place(0, LEAST_TOKEN, 0)


@dataclass(frozen=True)
class Scan:
    """One scan: ``columns``, in their order, of the rows that meet all ``conditions``, in the range ``tokens``."""

    view: View
    columns: tuple[Column, ...]
    conditions: tuple[Condition, ...] = ()
    integers: Integers = Integers.NUMBER
    tokens: TokenRange = ALL_TOKENS

    @cached_property
    def partitions(self) -> Sequence[str | None]:
        """The partitions that have runs or staged records, in order."""
        return sorted({run.partition for run in self._runs} | self.staged.keys(), key=lambda partition: partition or "")

    @cached_property
    def staged(self) -> Mapping[str | None, StagedKeys]:
        """The keys that have staged records, by partition."""
        return staged_keys(self.view.table.schema, self.view.index)

    @property
    def _runs(self) -> Sequence[Run]:
        return self.view.snapshot.runs if self.view.snapshot else ()

    def runs_of(self, partition: str | None) -> Sequence[Run]:
        """Return the partition's runs, oldest first."""
        return [run for run in self._runs if run.partition == partition]

    @property
    def columns_read(self) -> int:
        """The most columns of files that are read at a time."""
        runs = Counter(run.partition for run in self._runs)
        return len(self.view.table.schema.columns) * max(runs.values(), default=0)

    def source(self, warehouse: Warehouse) -> Source:
        """Return the source that the storage scans."""
        view = self.view

        readable = frozenset(number for number, schema in view.readable.items() if schema is not None)
        return Source(warehouse, view.table.id, view.plan, view.schemas, readable, self.columns, self.conditions)


def read_scan(
    view: View,
    columns: Sequence[str] | None,
    filters: Sequence[str],
    integers: Integers | None = None,
    tokens: TokenRange = ALL_TOKENS,
) -> Scan:
    """Return the scan that a request describes. Raise ``Invalid`` for columns and filters that the schema does not
    have.
    """
    schema = view.table.schema
    names = dict.fromkeys(wanted_columns(view, columns))
    shown = tuple(schema.by_name[name] for name in names)
    return Scan(view, shown, parse_filters(schema, filters), integers_of(schema, integers), tokens)


def parts(warehouse: Warehouse, scan: Scan, start: Place = BEGINNING) -> Iterator[tuple[int, Part]]:
    """Yield the rows from ``start`` on, each part with its partition's number.

    Raise ``DamagedFile``; it is ``missing`` also if nothing names the files any more.
    """
    source = scan.source(warehouse)
    for number, partition in enumerate(scan.partitions):
        if number >= start.partition:
            first, skip = start[1:] if number == start.partition else BEGINNING[1:]
            first = max(first, scan.tokens.first)
            staged = scan.staged.get(partition, StagedKeys.none())
            for part in rows_of_partition(source, scan.runs_of(partition), staged, first, skip, scan.tokens.last):
                yield number, part


def written(warehouse: Warehouse, scan: Scan, media_type: str) -> Iterator[bytes]:
    """Return the body of all rows."""
    batches = (part.batch for _, part in parts(warehouse, scan))
    return WRITERS[media_type].write(scan.columns, batches, scan.integers)
