"""What the kernel does by columns is, to the byte, what the fold of one key after the other comes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.fold import combine_all, compacted, fold
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run
from app.core.table.keys import token_of
from app.core.table.records import KINDS_BY_TEXT, TOKEN_COLUMN, Record, arrival
from app.files.run_files import state_table
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change
from tests.site import Site

DAY = 86_400


def folded_rows(site: Site, batches: Sequence[Sequence[Change]], first: int) -> pa.Table:
    """The state rows of records, folded key by key in Python."""
    schema, found = site.plan.schema, defaultdict(list)
    for number, changes in enumerate(batches, first):
        for position, change in enumerate(changes):
            kind = KINDS_BY_TEXT[change.kind]
            if kind not in site.plan.dropped:
                key = tuple(change.values[name] for name in schema.primary_key)
                named = change.named if schema.absent_unchanged else None
                found[key].append(Record(kind, change.values, arrival(number, position), named))
    states = {token_of(schema, key): fold(site.plan, records, site.now) or {} for key, records in found.items()}
    return state_table(site.plan, sorted(states.items(), key=lambda one: one[0]))


def combined_rows(site: Site, runs: Sequence[Run], *, oldest: bool) -> pa.Table:
    """What the fold in Python keeps of the state rows of ``runs``."""
    by_token: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        for row in site.table(run).to_pylist() if run.files else ():
            by_token[row.pop(TOKEN_COLUMN)].append(row)
    states = {token: combine_all(site.plan, of_key) for token, of_key in sorted(by_token.items())}
    kept = {token: compacted(site.plan, state or {}, site.now, oldest=oldest) for token, state in states.items()}
    return state_table(site.plan, [(token, state) for token, state in kept.items() if state is not None])


def same(run: Run | None, site: Site, expected: pa.Table) -> None:
    found = site.table(run).to_pylist() if run else []
    assert repr(found) == repr(expected.to_pylist())


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32))
def test_merges_and_compactions_by_columns_are_what_rows_come_to_one_by_one(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    table.options.update(random.choice(({}, {"tombstone.time-retained": "1 d"})))
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    site.ranges = random.choice((1, 1, 3))
    history = random_history(random, table, retracts, 120)
    for piece in cut(random, len(history), 5):
        part = history[piece]
        batches = [part[one] for one in cut(random, len(part), 3)]
        before, first = len(site.runs), len(site.batches) + 1
        expected = folded_rows(site, batches, first)
        site.merge(batches)
        same(site.runs[-1] if len(site.runs) > before else None, site, expected)
        site.now += random.choice((0, 1, DAY))
    if site.plan.row.retained is None:  # else late records meet no row that was forgotten
        assert shown(table, site) == visible(expected_rows(table, history))
    if not site.runs:
        return
    first = random.choice((0, random.randrange(len(site.runs))))
    expected = combined_rows(site, site.runs[first:], oldest=first == 0)
    before = len(site.runs)
    site.compact(first, before)
    same(site.runs[first] if len(site.runs) > first else None, site, expected)
