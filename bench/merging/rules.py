"""Rules that go row by row, compared with one that goes by columns: records a second of one core, merged, compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches  # type: ignore[import-untyped]  # it has no types
import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from app.core.functions.roaring import write_roaring32
from app.core.table.history import Table
from app.core.table.schema import TableSchema
from app.files.arrow import arrow_field
from bench.figures import interleaved, table
from bench.merging.costs import Cost
from bench.merging.tasks import Ground
from bench.site import NO_COMPACTION

RECORDS, RECORDS_A_KEY = 20_000, 4
SKETCHES, MEMBERS = 64, 200  # that records draw from, and of each
COLUMNS = "by columns: last_non_null_value"
_GROUP = {
    "merge-engine": "partial-update",
    "fields.s.sequence-group": "v",
    "fields.v.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "s",
}
_REMOVING = {
    "merge-engine": "partial-update",
    "sequence.field": "s",
    "partial-update.remove-record-on-delete": "true",
}


@dataclass(frozen=True)
class RuleKind:
    """A table of key ``k``, sequence ``s`` and column ``v`` of a type, and the value of ``v`` in each record."""

    type: str
    options: Mapping[str, str]
    value: Callable[[int], Any]

    @property
    def schema(self) -> TableSchema:
        """The table's schema, without automatic compactions."""
        types = {"k": "BIGINT NOT NULL", "s": "BIGINT", "v": self.type}
        fields = [{"name": name, "type": kind} for name, kind in types.items()]
        options = {**self.options, **NO_COMPACTION}
        return TableSchema.from_json({"fields": fields, "primaryKeys": ["k"], "options": options})


def _function(name: str, data_type: str, value: Callable[[int], Any], **own: str) -> RuleKind:
    of_column = {f"fields.v.{key.replace('_', '-')}": text for key, text in own.items()}
    options = {"merge-engine": "aggregation", "sequence.field": "s", "fields.v.aggregate-function": name, **of_column}
    return RuleKind(data_type, options, value)


def _sketches(make: Callable[[range], bytes]) -> Callable[[int], bytes]:
    drawn = [make(range(first, first + MEMBERS)) for first in range(0, SKETCHES * 50, 50)]
    return lambda number: drawn[number * 31 % SKETCHES]


def _hll(members: range) -> bytes:
    sketch = datasketches.hll_sketch(12)
    for member in members:
        sketch.update(member)
    return bytes(sketch.serialize_compact())


def _theta(members: range) -> bytes:
    sketch = datasketches.update_theta_sketch(12)
    for member in members:
        sketch.update(member)
    return bytes(sketch.compact().serialize())


def rule_kinds() -> Mapping[str, RuleKind]:
    """Return tables whose rules go row by row, after one whose rules all go by columns."""
    return {
        COLUMNS: _function("last_non_null_value", "STRING", lambda i: f"t{i}"),
        "replayed row: removals by sequence group": RuleKind("INT", _GROUP, lambda i: i % 9),
        "replayed row: removals by sequence": RuleKind("INT", _REMOVING, lambda i: i % 9),
        "listagg": _function("listagg", "STRING", lambda i: f"t{i}", ignore_retract="true"),
        "collect, distinct": _function("collect", "ARRAY<INT>", lambda i: [i % 50, i], distinct="true"),
        "merge_map": _function("merge_map", "MAP<STRING, INT>", lambda i: [(f"k{i % 50}", i)]),
        "product": _function("product", "DOUBLE", lambda i: 1.0 + i % 3),
        "hll_sketch": _function("hll_sketch", "BYTES", _sketches(_hll)),
        "theta_sketch": _function("theta_sketch", "BYTES", _sketches(_theta)),
        "rbm32": _function("rbm32", "BYTES", _sketches(lambda members: write_roaring32(BitMap(members)))),
    }


def measure_rules(ground: Ground) -> Iterator[str]:
    """Return records a second of each kind of rule, and how many times as many those by columns are."""
    records = ground.sizes.rows(RECORDS)
    steps: dict[str, Callable[[], Cost]] = {}
    read: dict[str, int] = {}
    for kind, rule in rule_kinds().items():
        made = ground.site.create(f"rules_{len(steps)}", rule.schema)
        batches = [ground.site.stage(made, records_of(made, rule, number, records)) for number in range(2)]
        steps[f"merge: {kind}"] = ground.step(ground.here, [ground.merge_task(made, batches[:1])])
        read[f"merge: {kind}"] = records
        for number in range(2, 4):
            ground.site.merge(made)
            ground.site.stage(made, records_of(made, rule, number, records))
        task = ground.compaction_task(made)
        steps[f"compaction: {kind}"] = ground.step(ground.here, [task])
        read[f"compaction: {kind}"] = sum(run.rows for run in task.runs)
    costs = interleaved(steps, ground.sizes.rounds, warm_ups=1)
    rates = {name: read[name] / float(np.median([one.here for one in taken])) for name, taken in costs.items()}
    yield from ("### Rules that go row by row", "")
    yield (
        f"{records:,} records, {RECORDS_A_KEY} of a key, in a batch, in this process; compactions of two runs. Records "
        "(of compactions: state rows) by CPU second, which is a second of a core."
    )
    yield ""
    head = ("", "records/s of a core", "CPU s", "ratio", "of CPU s a record to")
    yield from table(head, [_line(name, rates, costs[name]) for name in sorted(rates, key=_order)])


def _order(name: str) -> bool:
    return name.startswith("compaction")


def _line(name: str, rates: Mapping[str, float], taken: Sequence[Cost]) -> Sequence[str]:
    baseline = f"{name.partition(':')[0]}: {COLUMNS}"
    seconds = float(np.median([one.here for one in taken]))
    return name, f"{rates[name]:,.0f}", f"{seconds:.3f}", f"{rates[baseline] / rates[name]:.1f}", baseline


def records_of(made: Table, rule: RuleKind, batch: int, records: int) -> pa.Table:
    """Return a batch of records; each key comes several times, some of them late."""
    numbers = range(batch * records, (batch + 1) * records)
    keys = max(1, records // RECORDS_A_KEY)
    columns = {
        "k": [number * 7_919 % keys for number in numbers],
        "s": [number * 31 % 100_003 for number in numbers],
        "v": [rule.value(number) for number in numbers],
    }
    schema = pa.schema([arrow_field(column) for column in made.schema.columns])
    return pa.table([pa.array(columns[one.name], one.type) for one in schema], schema=schema)
