"""Random tables and histories, cut into merges and compactions at random: the kernel means what the oracle means, and
is to the byte what the fold of one key after the other comes to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.functions.entries import FUNCTIONS
from app.core.plan.merging.fold import combine_all, compacted, fold
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.record_decoder import DecodedRecords
from app.core.rules.replays.replay import LOG, Replay
from app.core.table.history import Batch, Run
from app.core.table.keys import token_of
from app.core.table.records import ARRIVAL_COLUMN, KINDS_BY_TEXT, POSITION_BITS, TOKEN_COLUMN, Record, arrival
from app.files import row_groups
from app.files.layout import data_file
from app.files.run_files import run_schema
from app.kernel import records
from app.kernel.records import records_of
from app.kernel.tasks import LEAST_TOKEN, Task, Work, schema_text
from tests import oracle
from tests.builders import schema_of
from tests.histories import (
    ENGINES,
    FUNCTION_TYPES,
    RETRACTABLE,
    TableMaker,
    cut,
    examples,
    random_history,
    random_table,
)
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change, TableCase
from tests.site import Site
from tests.storage.staged import write_as_before


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_any_cut_into_merges_and_compactions_comes_to_what_the_oracle_says(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    for piece in cut(random, len(history), 4):
        part = history[piece]
        site.merge([part[batch] for batch in cut(random, len(part), 3)])
    assert shown(table, site) == expected
    first = random.randrange(len(site.runs))
    site.compact(first, random.randint(first + 1, len(site.runs)))
    assert shown(table, site) == expected, "after a compaction of neighbouring runs"
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a full compaction"


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_of_a_run_are_those_that_python_computes(engine: str, tmp_path: Path) -> None:
    table, retracts = random_table(Random(1), engine)
    site = Site(tmp_path, compile_plan(schema_of(table)))
    site.merge([random_history(Random(2), table, retracts, 50)])
    run = site.runs[0]
    for file in run.files:
        for row in pq.read_table(site.warehouse.path(*data_file(site.table_id, run.id, file.name))).to_pylist():
            key = tuple(row[name] for name in table.primary_key)
            assert token_of(site.plan.schema, key) == row[TOKEN_COLUMN]


ALTERED: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"fields.a.aggregate-function": "sum"}, {"fields.a.aggregate-function": "max"}),
    ({"fields.b.aggregate-function": "listagg"}, {"fields.a.aggregate-function": "sum", "sequence.field": "b"}),
    ({"sequence.field": "b", "fields.a.aggregate-function": "first_value"}, {"fields.a.aggregate-function": "sum"}),
]


@pytest.mark.parametrize(("before", "after"), ALTERED)
def test_a_compaction_takes_the_rows_of_an_older_plan_as_first_records(
    before: dict[str, str], after: dict[str, str], tmp_path: Path
) -> None:
    columns = (("k", "INT"), ("a", "INT"), ("b", "STRING"))
    engine = {"merge-engine": "aggregation"}
    old, new = (oracle.TableCase(columns, ("k",), engine | options) for options in (before, after))
    site = Site(tmp_path, compile_plan(schema_of(old)))
    first, second = random_history(Random(1), old, False, 60), random_history(Random(2), new, False, 60)
    site.merge([first[:30]])
    site.merge([first[30:]])
    site.plan = compile_plan(schema_of(new))
    site.merge([second[:30]])
    site.merge([second[30:]])
    shown = visible(expected_rows(old, first))
    history = [*(oracle.Change("+I", row) for row in shown.values()), *second]
    site.compact(0, len(site.runs))
    assert visible(site.rows()) == visible(expected_rows(new, history))


DAY = 86_400


def state_table(site: Site, states: Mapping[int, Mapping[str, Any]]) -> pa.Table:
    """State rows by token."""
    schema = run_schema(site.plan)
    rows = [{TOKEN_COLUMN: token, **states[token]} for token in sorted(states)]
    return pa.table([pa.array([row[one.name] for row in rows], one.type) for one in schema], schema=schema)


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
    return state_table(site, states)


def combined_rows(site: Site, runs: Sequence[Run], *, oldest: bool) -> pa.Table:
    """What the fold in Python keeps of the state rows of ``runs``."""
    by_token: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        for row in site.table(run).to_pylist() if run.files else ():
            by_token[row.pop(TOKEN_COLUMN)].append(row)
    states = {token: combine_all(site.plan, of_key) for token, of_key in sorted(by_token.items())}
    kept = {token: compacted(site.plan, state or {}, site.now, oldest=oldest) for token, state in states.items()}
    return state_table(site, {token: state for token, state in kept.items() if state is not None})


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


ORDERS: Mapping[str, Mapping[str, str]] = {
    "arrival": {"merge-engine": "aggregation"},
    "sequence": {"merge-engine": "aggregation", "sequence.field": "g"},
    "removed": {"merge-engine": "aggregation", "sequence.field": "g", "aggregation.remove-record-on-delete": "true"},
    "group": {"merge-engine": "partial-update"},
    "replayed": {"merge-engine": "partial-update", "partial-update.remove-record-on-sequence-group": "g"},
    "late": {"merge-engine": "aggregation", "sequence.field": "g", "sequence.late-horizon": "1"},
}


def test_every_function_is_played() -> None:
    assert set(FUNCTION_TYPES) == set(FUNCTIONS)


def table_of(random: Random, function: str, order: str) -> tuple[TableCase, bool]:
    """A table that has the function on a column of each of its types."""
    maker = TableMaker(random, 1)
    maker.options.update(ORDERS[order])
    maker.column("g", ["INT"])
    retracts = maker.retracts = function in RETRACTABLE and random.random() < 0.7
    names = []
    for place, data_type in enumerate(FUNCTION_TYPES[function]):
        names.append(maker.column(f"v{place}", [data_type]))
        maker.options[f"fields.{names[-1]}.aggregate-function"] = function
        maker.own_options(names[-1], function)
        if order == "removed":
            continue
        if function not in RETRACTABLE:
            maker.options[f"fields.{names[-1]}.ignore-retract"] = "true"
    if "partial-update" in maker.options.values():
        maker.options["fields.g.sequence-group"] = ",".join(names)
    return maker.table(), retracts


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", FUNCTION_TYPES)
@settings(max_examples=examples(2))
@given(seed=st.integers(0, 2**32))
def test_a_function_is_folded_as_it_means(
    function: str, order: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = table_of(random, function, order)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history: list[Any] = random_history(random, table, retracts, 60)
    for piece in cut(random, len(history), 3):
        before, first = len(site.runs), len(site.batches) + 1
        expected = folded_rows(site, [history[piece]], first)
        site.merge([history[piece]])
        same(site.runs[-1] if len(site.runs) > before else None, site, expected)
    assert shown(table, site) == visible(expected_rows(table, history))
    site.compact(0, len(site.runs))
    assert shown(table, site) == visible(expected_rows(table, history)), "after a full compaction"


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32), engine=st.sampled_from(list(ENGINES)))
def test_records_that_are_set_aside_come_to_the_same_rows(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(str(table))
    history = random_history(random, table, retracts, 100)
    sites = [Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table))) for _ in range(2)]
    pieces = [history[piece] for piece in cut(random, len(history), 4)]
    ranges = random.choice((1, 3))
    with pytest.MonkeyPatch.context() as patch:
        for place, site in enumerate(sites):
            site.ranges = ranges
            if place:
                patch.setattr(records, "READ_BYTES", random.choice((1, 2**8, 2**12)))
                patch.setattr(records, "PIECE_BYTES", random.choice((1, 2**8, 2**12)))
                patch.setattr(records, "MOST_BYTES", random.choice((1, 2**10)))
                patch.setattr(records, "_ASIDE_BYTES", random.choice((2**8, 2**12)))
                patch.setattr(records, "_PENDING_BYTES", random.choice((1, 2**12)))
            site.merge(pieces)
    assert shown(table, sites[1]) == visible(expected_rows(table, history))
    states = [[repr(site.table(run).to_pylist()) for run in site.runs] for site in sites]
    assert states[0] == states[1]


def test_nothing_that_was_set_aside_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 1)  # a bound that a few records reach
    monkeypatch.setenv("TMPDIR", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)  # else it stays the one of the first use
    table = TableCase((("k", "INT"), ("v", "STRING")), ("k",), {})
    site = Site(tmp_path / "warehouse", compile_plan(schema_of(table)))
    site.merge([[Change("+I", {"k": key % 7, "v": str(turn)}) for key in range(50)] for turn in range(3)])
    assert {key: row and row["v"] for key, row in site.rows().items()} == {(key,): "2" for key in range(7)}
    assert list((tmp_path / "aside").iterdir()) == []


class OlderSite(Site):
    """A site whose staging files are as older releases wrote them."""

    def stage_decoded(self, decoded: DecodedRecords) -> Batch:
        batch = super().stage_decoded(decoded)
        found = write_as_before(self.warehouse, self.table_id, batch.file, self.plan.schema, [decoded])
        self.batches[-1] = replace(batch, size_bytes=found.size_bytes, digest=found.digest)
        return self.batches[-1]


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32), engine=st.sampled_from(list(ENGINES)))
def test_sorted_files_and_those_of_older_releases_come_to_the_same_states(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(str(table))
    history = random_history(random, table, retracts, 100)
    pieces = [history[piece] for piece in cut(random, len(history), 4)]
    ranges = random.choice((1, 2, 8))
    states = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "_NARROW_ROWS", 0)
        patch.setattr(row_groups, "_GROUP_ROWS", random.choice((1, 4)))
        for kind in (Site, OlderSite):
            site = kind(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
            site.ranges = ranges
            site.merge(pieces)
            assert shown(table, site) == visible(expected_rows(table, history))
            states.append([repr(site.table(run).to_pylist()) for run in site.runs])
    assert states[0] == states[1]


PLAIN = TableCase((("k", "BIGINT"), ("v", "BIGINT")), ("k",), {})


@pytest.mark.parametrize(("kind", "groups"), [(Site, 8), (OlderSite, 1)])
def test_a_task_reads_the_row_groups_of_its_tokens(kind: type[Site], groups: int, tmp_path: Path) -> None:
    site = kind(tmp_path, compile_plan(schema_of(PLAIN)))
    keys = [number * 7919 % 40_000 for number in range(40_000)]
    kinds, places = pa.array([0] * len(keys), pa.int8()), pa.array(range(len(keys)), pa.int32())
    batch = site.stage_decoded(DecodedRecords({"k": pa.array(keys), "v": pa.array(keys)}, kinds, places))
    whole = Task(Work.MERGE, site.table_id, {"0": schema_text(site.plan.schema)}, 0, "r", 1_000, (batch,))
    found: dict[int, int] = {}
    for place in range(8):
        first = LEAST_TOKEN + place * 2**61
        pieces = [*records_of(site.warehouse, replace(whole, first_token=first, last_token=first + 2**61 - 1), batch)]
        assert len(pieces) == 1
        for piece in pieces:
            assert ((piece.tokens >= first) & (piece.tokens < first + 2**61)).all()
            arrivals = piece.rows.column(ARRIVAL_COLUMN).to_pylist()
            found |= dict(zip(arrivals, piece.rows.column("k").to_pylist(), strict=True))
    assert found == {batch.number << POSITION_BITS | place: key for place, key in enumerate(keys)}
    assert len([*records_of(site.warehouse, whole, batch)]) == groups


REMOVED = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "aggregation.remove-record-on-delete": "true",
    "fields.n.aggregate-function": "sum",
}


def is_replayed(plan: MergePlan) -> bool:
    return any(isinstance(rule, Replay) for rule in plan.rules)


def replayed_table(random: Random, engine: str) -> tuple[TableCase, bool]:
    while True:
        table, retracts = random_table(random, engine)
        if is_replayed(compile_plan(schema_of(table))):
            return table, retracts and random.random() < 0.8


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_logs_are_replayed_by_columns_as_row_by_row(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = replayed_table(random, engine)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, random.choice((30, 90)))
    for piece in cut(random, len(history), 5):
        before, first = len(site.runs), len(site.batches) + 1
        expected = folded_rows(site, [history[piece]], first)
        site.merge([history[piece]])
        same(site.runs[-1] if len(site.runs) > before else None, site, expected)
        if site.runs and random.random() < 0.5:
            oldest = random.choice((0, 0, random.randrange(len(site.runs))))
            expected = combined_rows(site, site.runs[oldest:], oldest=oldest == 0)
            site.compact(oldest, len(site.runs))
            same(site.runs[oldest] if len(site.runs) > oldest else None, site, expected)
        assert shown(table, site) == visible(expected_rows(table, history[: piece.stop]))


def test_a_log_loses_what_its_last_delete_removed_for_good(tmp_path: Path) -> None:
    table = TableCase((("k", "INT"), ("g", "INT"), ("n", "INT")), ("k",), REMOVED)
    site = Site(tmp_path, compile_plan(schema_of(table)))

    def change(kind: str, g: int, n: int | None = 1) -> Change:
        return Change(kind, {"k": 1, "g": g, "n": n})

    site.merge([[*(change("+I", g) for g in range(50)), change("-D", 40, None)]])
    [state] = site.states(site.runs[0])
    assert [entry["c1"] for entry in state[LOG]] == [*range(41, 50), 40]
    site.merge([[change("-D", 45, None), change("+I", 44)]])
    site.compact(0, 2)
    [state] = site.states(site.runs[0])
    assert [entry["c1"] for entry in state[LOG]] == [46, 47, 48, 49, 45]
    assert site.rows() == {(1,): {"k": 1, "g": 49, "n": 4}}
