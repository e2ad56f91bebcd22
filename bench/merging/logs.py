"""What a long log costs: folding one key's states, showing a settled one, and compacting its runs in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from app.core.plan.merging.fold import combine_all, compacted, finish, fold
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Table
from app.core.table.records import Record, RowKind, arrival
from app.files.arrow import arrow_field
from bench.figures import interleaved
from bench.merging.costs import Cost, Goal, lines
from bench.merging.rules import RuleKind, rule_kinds
from bench.merging.tasks import Ground

LENGTHS = (10_000, 50_000)
RUNS = 3
KINDS = ("replayed row: removals by sequence group", "listagg", "collect, distinct", "merge_map", "product")
MOST = 5.0  # five times the entries


def measure_logs(ground: Ground) -> Iterator[str]:
    """Return the costs of folding, of showing and of compacting, by kind of rule and number of entries."""
    steps: dict[str, Callable[[], Cost]] = {}
    goals = []
    short, long = lengths = [ground.sizes.rows(length) for length in LENGTHS]
    for kind, rule in rule_kinds().items():
        if kind not in KINDS:
            continue
        for length in lengths:
            made = ground.site.create(f"logs_{len(steps)}", rule.schema)
            plan, states = compile_plan(made.schema), _states(rule, length)
            settled = compacted(plan, combine_all(plan, states) or {}, 0, oldest=True) or {}
            acts: Mapping[str, Callable[[], object]] = {
                "fold": partial(combine_all, plan, states),
                "show": partial(finish, plan, settled),
            }
            for act, work in acts.items():
                steps[f"{kind}: {act}, {length:,}"] = partial(ground.meter.cost, work)
            _merge_pieces(ground, made, rule, length)
            steps[f"{kind}: compact, {length:,}"] = ground.step(ground.here, [ground.compaction_task(made)])
        acts_of = ("fold", "compact")
        goals += [Goal(f"{kind}: {act}, {long:,}", f"{kind}: {act}, {short:,}", MOST, cpu=True) for act in acts_of]
        goals.append(Goal(f"{kind}: show, {long:,}", f"{kind}: show, {short:,}"))
    yield from ("### Long logs", "")
    yield (
        f"One key with so many records in {RUNS} runs: the runs' states folded into one as a lookup does, the row of "
        "the settled state shown, the runs compacted in this process. Five times the entries may take five times as "
        "long."
    )
    yield ""
    yield from lines(interleaved(steps, ground.sizes.rounds, warm_ups=1), goals)


def _pieces(length: int) -> list[range]:
    return [range(length * i // RUNS, length * (i + 1) // RUNS) for i in range(RUNS)]


def _values(rule: RuleKind, number: int) -> Mapping[str, Any]:
    return {"k": 7, "s": number * 7_919 % 100_003, "v": rule.value(number)}


def _states(rule: RuleKind, length: int) -> list[Mapping[str, Any]]:
    plan = compile_plan(rule.schema)
    folded = (
        fold(plan, (Record(RowKind.INSERT, _values(rule, i), arrival(1 + number, i)) for i in piece))
        for number, piece in enumerate(_pieces(length))
    )
    return [state for state in folded if state is not None]


def _merge_pieces(ground: Ground, made: Table, rule: RuleKind, length: int) -> None:
    schema = pa.schema([arrow_field(column) for column in made.schema.columns])
    for piece in _pieces(length):
        rows = [_values(rule, number) for number in piece]
        columns = [pa.array([row[one.name] for row in rows], one.type) for one in schema]
        ground.site.stage(made, pa.table(columns, schema=schema))
        ground.site.merge(made)
