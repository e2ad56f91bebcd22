"""Runs of few records, folded in this process and written as Spark's merges write them (docs/decisions/0037).

The fold is that of lookups, ``app.core.plan.fold``: what it says and what Spark says are one (design §3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.core.plan.fold import fold
from app.core.plan.merge_plan import MergePlan
from app.core.table.history import Batch, Run
from app.core.table.keys import Key, normalised, partition_text, same_key
from app.core.table.records import Record
from app.core.table.schema import TableSchema
from app.storage.layout import Warehouse
from app.storage.run_files import FEW_ROWS, TokenShared, state_table, write_run_file
from app.storage.staging import read_batch, staged_record
from app.storage.tokens import tokens_of

StateRow = Mapping[str, Any]
Partition = tuple[Any, ...]


def write_folded_runs(
    warehouse: Warehouse, table_id: str, folder: str, plan: MergePlan, batches: Sequence[Batch], now: int
) -> tuple[Run, ...]:
    """Fold the records of ``batches``, which were written under the plan's schema, at ``now`` (epoch seconds), and
    write a run of one file below ``folder``, or one in each partition. They are durable after ``sync_runs``.

    Raises ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python cannot hold, says
    nothing about the batches.
    """
    found = RecordsByToken(plan.schema)
    for batch in sorted(batches, key=lambda batch: batch.number):
        rows = read_batch(warehouse, batch, plan.schema)
        for token, row in zip(tokens_of(plan.schema, rows).tolist(), rows.to_pylist(), strict=True):
            found.add(token, staged_record(plan.schema, batch.number, row))
    states = found.states(plan, now)
    runs = []
    for place, rows in enumerate(_partitions(plan.schema, states)):
        inner = f"{folder}.{place:x}" if plan.schema.partition_keys else folder
        written = write_run_file(warehouse, table_id, inner, plan, [state_table(plan, rows)], FEW_ROWS)
        partition = partition_text(plan.schema, rows[0][1]) if plan.schema.partition_keys else None
        if written is not None:
            runs.append(Run(inner, batches[0].schema_id, (written.file,), partition, live_rows=written.live_rows))
    return tuple(runs)


class RecordsByToken:
    """The records of each key, by its token, that are folded together."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._found: dict[int, list[Record]] = {}

    def add(self, token: int, record: Record) -> None:
        """One more record. Raises ``TokenShared``."""
        of_key = self._found.setdefault(token, [])
        if of_key and not same_key(_key(self._schema, of_key[0]), _key(self._schema, record)):
            raise TokenShared(f"token {token}")
        of_key.append(record)

    def states(self, plan: MergePlan, now: int) -> list[tuple[int, StateRow]]:
        """The tokens, in ascending order, with their state rows."""
        return [(token, _state(plan, self._found[token], now)) for token in sorted(self._found)]


def _key(schema: TableSchema, record: Record) -> Key:
    return tuple(record.values[name] for name in schema.primary_key)


def _state(plan: MergePlan, records: Sequence[Record], now: int) -> StateRow:
    folded = fold(plan, sorted(records, key=lambda record: record.arrival), now) or {}  # of no records there is none
    return {**folded, **{column.name: normalised(column, folded[column.name]) for column in plan.schema.key_columns}}


def _partitions(
    schema: TableSchema, states: Sequence[tuple[int, StateRow]]
) -> Iterator[Sequence[tuple[int, StateRow]]]:
    """The rows of each partition; all together where the table has none."""
    found: dict[Partition, list[tuple[int, StateRow]]] = defaultdict(list)
    for token, state in states:
        found[tuple(state[name] for name in schema.partition_keys)].append((token, state))
    yield from found.values()
