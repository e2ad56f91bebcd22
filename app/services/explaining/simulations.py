"""Simulations: records folded as by a merge, with a reason for every step; nothing is stored."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, TooLarge, Violation
from app.core.plan.explaining.explained_fold import ColumnStep, Shown, ShownFold, size_of
from app.core.plan.merging.fold import combine_all, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.integers import integers_of
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.rules.rule import State
from app.core.table.history import Table
from app.core.table.keys import Key, key_from_json
from app.core.table.named_columns import names_in
from app.core.table.options.entries import Integers
from app.core.table.records import Record, RowKind, arrival
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, SchemaBounds
from app.services.batches.first_records import check_of_first_records
from app.services.bodies.json_bodies import parse_json
from app.services.rows.known_rows import KnownRows, no_rows
from app.services.rows.lookups import latest_state
from app.services.tables.tables import validate_table
from app.storage.images import Images
from app.storage.ingest.pieces import decoding

MAX_RECORDS = 10_000
# Records times columns of all steps; each value takes 1.5 KB until the answer is sent.
MOST_VALUES = 200_000
# Largest size of the rows after all steps: collected values grow with each step.
MOST_ANSWER_BYTES = 2**25
_AFTER_ALL = 2**38  # a batch number after every real one
StateOf = Callable[[Key], Mapping[str, Any] | None]


@dataclass(frozen=True)
class SimulatedStep:
    """One record: the row before and after it, and per column the value before, after and why.

    ``ignored`` says why the table drops the record before it is staged; it then has no ``kind`` and no columns.
    """

    record: int
    kind: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    columns: Sequence[ColumnStep]
    ignored: str | None = None


@dataclass(frozen=True)
class SimulatedRow:
    """One key: its row before all records, after all records, and every step between."""

    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    steps: list[SimulatedStep]


def simulate_rows(
    repository: Repository, images: Images, table: Table, body: bytes, integers: Integers | None = None
) -> list[SimulatedRow]:
    """Return the records of ``body`` folded on the live rows of ``table``, staged batches included; ``integers`` is
    the form of BIGINT in the rows.

    Raise ``Invalid`` for records that a batch could not hold either.
    """
    return simulate_on_rows(repository, images, table, _records(_parsed(body)), integers)


def simulate_on_rows(
    repository: Repository, images: Images, table: Table, records: Sequence[Any], integers: Integers | None = None
) -> list[SimulatedRow]:
    """Fold ``records``, values of ``parse_json``, on the live rows of ``table``, staged batches included.

    Raise ``Invalid`` for records that a batch could not hold either, ``TooLarge``.
    """
    _check_count(records)
    return _simulate(compile_plan(table.schema), records, latest_state(repository, images, table), integers)


def simulate_merge(
    body: bytes, bounds: SchemaBounds = DEFAULT_BOUNDS.table, integers: Integers | None = None
) -> list[SimulatedRow]:
    """Return the records of ``body`` folded into an empty table with the schema in ``body``.

    Raise ``Invalid`` with the faults of the schema or of the records.
    """
    parsed = _parsed(body)
    if not isinstance(parsed, dict) or not isinstance(parsed.get("schema"), dict):
        fault = Violation(
            "/schema", FaultCode.MISSING, "the body has no schema", 'send {"schema": {…}, "records": [{…}]}'
        )
        raise Invalid("the body is not a simulation", violations=[fault])
    schema = validate_table("simulated", parsed["schema"], bounds)
    return simulate_on_nothing(compile_plan(schema), _records(parsed), integers)


def simulate_on_nothing(
    plan: MergePlan, records: Sequence[Any], integers: Integers | None = None
) -> list[SimulatedRow]:
    """Fold ``records``, values of ``parse_json``, under ``plan``.

    Raise ``Invalid`` for records that a batch could not hold, ``TooLarge``.
    """
    _check_count(records)
    return _simulate(plan, records, lambda _: None, integers)


def merged_in_batches(plan: MergePlan, batches: Sequence[Sequence[Any]]) -> list[dict[str, Any] | None]:
    """Return the rows of ``batches`` of records: each batch is folded separately, and then the results are combined,
    as merges and compactions do. Rows are in the order of the first record of each key.

    Raise ``Invalid`` for records that a batch could not hold.
    """
    records = [record for batch in batches for record in batch]
    decoded = RecordDecoder(plan, check_of_first_records(plan, no_rows)).decode(records)
    staged = _decoded_records(plan.schema, decoded)
    ends = [*accumulate(map(len, batches))]
    states: dict[str, dict[int, list[State]]] = {}
    keys: dict[str, Key] = {}
    for position, raw in enumerate(records):
        record = staged.get(position)
        key = _key(plan, raw if record is None else record.values, decoded=record is not None)
        keys[repr(key)] = key
        of_key = states.setdefault(repr(key), {})
        if record is not None:
            of_key.setdefault(bisect_right(ends, position), []).append(lift(plan, record))
    shown = Shown(plan.schema, integers_of(plan.schema, None))
    return [_merged(plan, keys[text], [*of_key.values()], shown) for text, of_key in states.items()]


def _merged(plan: MergePlan, key: Key, batches: Sequence[Sequence[State]], shown: Shown) -> dict[str, Any] | None:
    folded = [state for batch in batches if (state := combine_all(plan, batch)) is not None]
    fold = ShownFold(plan, combine_all(plan, folded), shown)
    fold.check(shown.key(key))
    return fold.visible()


def _parsed(body: bytes) -> object:
    with decoding():
        return parse_json(body)


def _records(parsed: object) -> list[Any]:
    records = parsed.get("records") if isinstance(parsed, dict) else None
    if not isinstance(records, list):
        fault = Violation(
            "/records", FaultCode.MISSING, "the body has no list of records", 'send {"records": [{…}, …]}'
        )
        raise Invalid("the body is not a simulation", violations=[fault])
    return records


def _check_count(records: Sequence[Any]) -> None:
    if len(records) > MAX_RECORDS:
        raise _too_large(f"a simulation takes at most {MAX_RECORDS} records, this one has {len(records)}")


def _too_large(message: str) -> TooLarge:
    fix = "send fewer records"
    return TooLarge(f"{message}; {fix}", violations=[Violation("/records", FaultCode.TOO_LARGE, message, fix)])


def _simulate(
    plan: MergePlan, records: Sequence[Any], state_of: StateOf, integers: Integers | None
) -> list[SimulatedRow]:
    most = MOST_VALUES // len(plan.schema.columns)
    if len(records) > most:
        limit = f"of a table of {len(plan.schema.columns)} columns a simulation takes at most {most} records"
        raise _too_large(f"{limit}, this one has {len(records)}")
    decoded = RecordDecoder(plan, check_of_first_records(plan, _known(plan, state_of))).decode(records)
    staged = _decoded_records(plan.schema, decoded)
    folds: dict[str, _Fold] = {}
    shown = Shown(plan.schema, integers_of(plan.schema, integers))
    size = 0
    for position, raw in enumerate(records):
        record = staged.get(position)
        key = _key(plan, raw if record is None else record.values, decoded=record is not None)
        if repr(key) not in folds:
            folds[repr(key)] = _Fold(plan, key, state_of(key), shown)
        size += folds[repr(key)].step(position, record)
        if size > MOST_ANSWER_BYTES:
            raise _too_large(f"the rows after {position + 1} records have more than {MOST_ANSWER_BYTES} bytes together")
    return [fold.row() for fold in folds.values()]


def _known(plan: MergePlan, state_of: StateOf) -> KnownRows:
    def is_live(key: Key) -> bool:
        state = state_of(key)
        return state is not None and plan.row.is_live(state)

    return lambda keys: [is_live(key) for key in keys]


def _key(plan: MergePlan, values: Mapping[str, Any], *, decoded: bool) -> Key:
    if decoded:
        return tuple(values[name] for name in plan.schema.primary_key)
    # A record that the table ignores was checked, but not kept.
    return key_from_json(plan.schema, {name: values.get(name) for name in plan.schema.primary_key}, "/records")


def _decoded_records(schema: TableSchema, decoded: DecodedRecords) -> dict[int, Record]:
    """Return the records that a batch would stage, by position in the request."""
    rows = zip(decoded.kinds, decoded.positions, strict=True)
    return {
        position: Record(
            RowKind(kind),
            {name: column[i] for name, column in decoded.columns.items()},
            arrival(_AFTER_ALL, position),
            names_in(schema, {word: bits[i] for word, bits in decoded.words.items()}),
        )
        for i, (kind, position) in enumerate(rows)
    }


class _Fold:
    """One key while its records are folded."""

    def __init__(self, plan: MergePlan, key: Key, state: Mapping[str, Any] | None, shown: Shown) -> None:
        self.key, self.shown = key, shown
        # A total may leave its type and come back: it is checked once, at the end.
        self.fold = ShownFold(plan, state, shown, strict=False)
        self.before = self.fold.visible()
        self.steps: list[SimulatedStep] = []

    def step(self, position: int, record: Record | None) -> int:
        """Fold one record; None is a record that the table ignores. Return the approximate size of the row in bytes."""
        if record is None:
            row = self.fold.visible()
            ignored = "ignored: the table drops this row kind (ignore-delete or ignore-update-before)"
            self.steps.append(SimulatedStep(position, None, row, row, [], ignored))
            return size_of(row)
        step = self.fold.step(record)
        self.steps.append(SimulatedStep(position, record.kind.text, step.before, step.after, step.columns))
        return size_of(step.after)

    def row(self) -> SimulatedRow:
        """Return the key's row after the simulation. Raise ``Conflict`` for a total that ends outside its column's
        type.
        """
        self.fold.check(self.shown.key(self.key))
        return SimulatedRow(self.shown.key(self.key), self.before, self.fold.visible(), self.steps)
