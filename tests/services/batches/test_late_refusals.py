"""``sequence.late-records = refuse``: what the log of a key would leave out is refused when it is posted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.catalog.database import CatalogDatabase
from app.core.errors import FaultCode, Invalid
from app.core.plan.columns.late_horizon import bounded_logs
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.plan.merging.fold import combine, lift
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import DecodedRecords
from app.core.rules.stepwise import Stepwise
from app.core.table.history import Table
from app.core.table.keys import Key
from app.core.table.named_columns import words_naming
from app.files.layout import Warehouse
from app.services.batches.batches import Upload, accept_batch
from app.services.batches.late_refusals import check_of_late_records
from app.services.bodies.formats import JSON, NDJSON
from app.services.explaining.simulations import simulate_rows
from app.services.rows.kept_views import Views
from app.services.rows.known_rows import NO_ROWS, KnownRows, known_rows
from app.services.shared.executor import MergeSite
from app.storage.images import Images
from tests import oracle
from tests.builders import schema_of
from tests.core.plan.merging.test_fold import to_records
from tests.histories import random_history, random_table
from tests.services.builders import QUIET, compact, merge_staged, schema

NAME = ("shop", "wide")
COLUMNS = (("id", "INT"), ("g", "INT"), ("n", "INT"), ("t", "STRING"))
REFUSING = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "fields.t.aggregate-function": "listagg",
    "fields.n.aggregate-function": "sum",
    "sequence.late-horizon": "10",
    "sequence.late-records": "refuse",
    **QUIET,
}
REMOVED = {**REFUSING, "aggregation.remove-record-on-delete": "true"}


def table_of(database: CatalogDatabase, options: Mapping[str, str]) -> Table:
    with database.transaction() as repository:
        repository.databases.create("shop", {})
        return repository.tables.create(*NAME, schema(*COLUMNS, options=options))


class Poster:
    """Posts records to the table as a service does that knows its rows."""

    def __init__(self, database: CatalogDatabase, warehouse: Warehouse, views: Views, images: Images) -> None:
        self.database, self.warehouse = database, warehouse
        self.known = known_rows(views, images, NAME)

    def __call__(self, *records: Mapping[str, Any]) -> list[tuple[str, FaultCode]]:
        """The faults of one batch; none if it was accepted."""
        return self._post(json.dumps({"records": records}).encode(), JSON)

    def lines(self, *records: Mapping[str, Any]) -> list[tuple[str, FaultCode]]:
        return self._post(b"\n".join(json.dumps(record).encode() for record in records), NDJSON[0])

    def _post(self, body: bytes, media_type: str) -> list[tuple[str, FaultCode]]:
        try:
            upload = Upload(body, media_type)
            accept_batch(self.database, self.warehouse, *NAME, upload, Bounds(100_000), known=self.known)
        except Invalid as error:
            return [(violation.pointer, FaultCode(violation.code)) for violation in error.violations]
        return []


@pytest.fixture
def poster(database: CatalogDatabase, warehouse: Warehouse, images: Images) -> Poster:
    return Poster(database, warehouse, Views(database, warehouse), images)


LATE = [("/records/0/g", FaultCode.LATE_RECORD)]


@pytest.mark.parametrize("options", [REFUSING, REMOVED])
def test_a_record_beyond_the_horizon_is_refused_whether_its_key_is_staged_merged_or_settled(
    database: CatalogDatabase, site: MergeSite, poster: Poster, options: Mapping[str, str]
) -> None:
    table = table_of(database, options)
    assert poster({"id": 1, "g": 89, "n": 1, "t": "b"}, {"id": 1, "g": 99, "n": 1, "t": "a"}) == []

    def nothing_else_is_refused() -> None:
        assert poster({"id": 1, "g": 88, "t": "late"}) == LATE
        assert poster({"id": 1, "g": None, "t": "late"}) == LATE
        assert poster({"id": 2, "g": -1_000, "n": 1}) == []

    nothing_else_is_refused()
    merge_staged(database, site.warehouse, table.id)
    nothing_else_is_refused()
    merge_staged(database, site.warehouse, table.id)
    compact(site, table)
    nothing_else_is_refused()
    assert poster({"id": 1, "g": 89, "t": "at the horizon"}) == []


def test_a_record_is_late_by_those_before_it_in_its_body_also_in_another_piece_of_it(
    database: CatalogDatabase, poster: Poster
) -> None:
    table_of(database, REFUSING)
    others = [{"id": 2 + place, "g": 1, "t": "x"} for place in range(20_000)]
    late, after = {"id": 1, "g": 5, "t": "late"}, {"id": 1, "g": 40, "t": "x"}
    assert poster.lines(late, after, *others) == []
    assert poster.lines({"id": 1, "g": 60, "t": "x"}, *others, {"id": 1, "g": 49, "t": "late"}) == [
        ("/records/20001/g", FaultCode.LATE_RECORD)
    ]
    assert poster({"id": 1, "g": 49, "t": "the batch before was not stored"}) == []


def test_every_late_record_of_a_body_is_told_with_what_to_do(
    database: CatalogDatabase, warehouse: Warehouse, poster: Poster
) -> None:
    table_of(database, REFUSING)
    records = [{"id": 1, "g": 50, "t": "x"}, {"id": 1, "g": 39, "t": "y"}, {"id": 1, "g": 40}, {"id": 1, "t": "z"}]
    upload = Upload(json.dumps({"records": records}).encode(), JSON)
    with pytest.raises(Invalid) as refusal:
        accept_batch(database, warehouse, *NAME, upload, Bounds(10))
    told = {violation.pointer: (violation.message, violation.fix) for violation in refusal.value.violations}
    fix = "leave the record out, or set sequence.late-records = ignore"
    assert told == {
        "/records/1/g": ("column 'g': 39 comes too late: more than 10 below the latest g of its key, 50", fix),
        "/records/3/g": ("column 'g': null comes too late: more than 10 below the latest g of its key, 50", fix),
    }


def test_a_table_that_ignores_late_records_takes_them(database: CatalogDatabase, poster: Poster) -> None:
    table_of(database, {**REFUSING, "sequence.late-records": "ignore"})
    assert poster({"id": 1, "g": 99, "t": "a"}) == poster({"id": 1, "g": 1, "t": "late"}) == []


def test_a_record_without_a_part_in_the_log_is_not_late_for_it(database: CatalogDatabase, poster: Poster) -> None:
    options = {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "t",
        "fields.t.aggregate-function": "listagg",
        "sequence.late-horizon": "10",
        "sequence.late-records": "refuse",
        **QUIET,
    }
    table_of(database, options)
    assert poster({"id": 1, "g": 99, "t": "a"}) == []
    assert poster({"id": 1, "n": 5}) == []
    assert poster({"id": 1, "g": 5, "n": 5}) == []  # t is null, and null never enters the list
    assert poster({"id": 1, "g": 5, "t": "late"}) == LATE


def test_simulations_refuse_what_a_batch_could_not_hold(
    database: CatalogDatabase, images: Images, poster: Poster
) -> None:
    table = table_of(database, REFUSING)
    poster({"id": 1, "g": 99, "t": "a"})
    body = json.dumps({"records": [{"id": 1, "g": 5, "t": "late"}]}).encode()
    with database.reading() as repository, pytest.raises(Invalid) as refusal:
        simulate_rows(repository, images, table, body)
    assert [violation.code for violation in refusal.value.violations] == [FaultCode.LATE_RECORD]


def test_to_refuse_what_never_comes_late_is_warned_of() -> None:
    [warning] = [
        one
        for one in table_warnings(schema(*COLUMNS, options={"sequence.late-records": "refuse"}))
        if one.pointer == "/options/sequence.late-records"
    ]
    assert (warning.code, warning.fix) == (
        FaultCode.OPTION_WITHOUT_EFFECT,
        "set sequence.late-horizon, or remove it",
    )
    refusing = table_warnings(schema(*COLUMNS, options=REFUSING))
    assert not [one for one in refusing if one.pointer == "/options/sequence.late-records"]


@pytest.mark.slow(reason="plays many histories")
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_refused_is_what_a_log_leaves_out_in_any_history_and_any_cut(seed: int) -> None:
    """Records one by one, in one body or in bodies of their own: what is refused is what a log of the state of all
    records before it, refused ones left out, is closed to.
    """
    random = Random(seed)
    table, retracts = random_table(random, random.choice(("partial-update", "aggregation")))
    while not bounded_logs(compile_plan(schema_of(table)).rules):
        table, retracts = random_table(random, random.choice(("partial-update", "aggregation")))
    table.options["sequence.late-records"] = "refuse"
    note(f"{table}")
    plan = compile_plan(schema_of(table))
    changes: Sequence[oracle.Change] = random_history(random, table, retracts, 25)
    note(f"{changes}")
    states: dict[Key, Mapping[str, Any]] = {}

    def states_now(keys: Sequence[Key]) -> Iterator[Mapping[str, Any] | None]:
        return map(states.get, keys)

    known = KnownRows(NO_ROWS.there, states_now)
    check = check_of_late_records(plan, known)
    for record in to_records(plan, changes):
        key = tuple(record.values[name] for name in plan.schema.primary_key)
        before = states.get(key)
        late = (
            before is not None
            and not plan.row.removes(record)
            and any(
                rule.comes_late(before, record)
                for rule, _ in bounded_logs(plan.rules)
                if not isinstance(rule, Stepwise) or rule.part.takes(record)
            )
        )
        columns = {name: [record.values[name]] for name in plan.schema.by_name}
        words = words_naming(plan.schema.columns, record.named) if plan.schema.tells_named else {}
        posted = DecodedRecords(columns, [int(record.kind)], [0], words={word: [bits] for word, bits in words.items()})
        if random.random() < 0.3:  # a body of its own
            check = check_of_late_records(plan, known)
        if late:
            with pytest.raises(Invalid):
                check(posted)
            check = check_of_late_records(plan, known)
        else:
            check(posted)
            lifted = lift(plan, record)
            states[key] = lifted if before is None else combine(plan, before, lifted)
