"""After every step of a random history each engine reads of what is published what all lookups answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from random import Random
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from app.catalog.database import CatalogDatabase
from app.core.plan.checks.option_checks import check_options
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Table
from app.core.table.published import Format
from app.services.merging.compactions import ask_for_compaction
from app.services.rows.lookups import Images, get_rows
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import sweep
from tests.builders import schema_of
from tests.catalog.builders import by_turns
from tests.delta_readers import as_answered
from tests.histories import ENGINES as MERGE_ENGINES
from tests.histories import KEYS, random_history, random_table
from tests.oracle import Change, TableCase
from tests.services.batches.test_row_edits import as_json
from tests.services.builders import add_table, compact, create_table, merge, run_next_compaction
from tests.services.publishing.delta_logs import BOTH, ENGINES, place_of, publish, publish_merges, versions

STEPS = 8
_COUNTED = ("data-files", "records", "delete-files", "position-deletes")
OPTIONS = {**BOTH, "num-sorted-run.compaction-trigger": "99", "snapshot.num-retained.min": "1"}


def as_seen(reader: str, rows: list[bytes]) -> list[Any]:
    """The rows; PyIceberg 0.12 shows a null ARRAY or MAP with a ROW inside as an empty one."""
    return [_without_empty(json.loads(row)) for row in rows] if reader == "pyiceberg" else [*rows]


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(inner) for name, inner in value.items()} or None
    return [_without_empty(inner) for inner in value] or None if isinstance(value, list) else value


@dataclass
class Play:
    """A table, and what every lookup answered at each of its snapshots."""

    site: MergeSite
    images: Images
    table: Table
    answered: dict[int, list[bytes]] = field(default_factory=dict)
    checked: int = -1  # the version that all engines have read

    def post(self, changes: list[Change]) -> None:
        plan = compile_plan(self.table.schema)
        merge(self.site, self.table, *(as_json(plan, change) for change in changes))

    def look(self) -> None:
        """Ask for every key."""
        domains = [range(KEYS) if name == "k" else ["x", "y"] for name in self.table.schema.primary_key]
        with self.site.database.reading() as repository:
            now = repository.tables.existing(self.table.id)
            found = get_rows(repository, self.images, now, [tuple(key) for key in product(*domains)])
        assert now.snapshot_id is not None
        self.answered[now.snapshot_id] = sorted(one.body for one in found if one.body is not None)

    def check(self, *, again: bool) -> int:
        """The snapshot whose rows all engines read; ``again``: also where no version is newer than what they read."""
        publish_merges(self.site.database, self.site.warehouse)
        newest = versions(self.site.database, self.table, Format.ICEBERG)[-1]
        if newest.version == self.checked and not again:
            return newest.as_of
        self.checked = newest.version
        for form, readers in ENGINES.items():
            newest = versions(self.site.database, self.table, form)[-1]
            for name, reader in readers.items():
                read = as_answered(self.table.schema, reader(place_of(self.site, self.table, form)))
                assert as_seen(name, read) == as_seen(name, self.answered[newest.as_of]), (form, name)
        self._check_counts(len(self.answered[newest.as_of]))
        return newest.as_of

    def _check_counts(self, rows: int) -> None:
        """Engines count rows, and some plan, by the summary of the snapshot."""
        read = StaticTable.from_metadata(place_of(self.site, self.table, Format.ICEBERG))
        snapshot = read.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        counts = {name: int(snapshot.summary[f"total-{name}"] or "") for name in _COUNTED}
        files = {"data-files": read.inspect.data_files(), "delete-files": read.inspect.delete_files()}
        assert {name: counts[name] for name in files} == {name: len(files) for name, files in files.items()}
        assert counts["records"] - counts["position-deletes"] == rows


def drawn(random: Random, engine: str, options: Mapping[str, str] = OPTIONS) -> tuple[TableCase, bool]:
    """A table that may publish; one that may not has a column with a sketch."""
    while True:
        case, retracts = random_table(random, engine)
        case = replace(case, options={**case.options, **options})
        faults = check_options(schema_of(case))
        if not faults:
            return case, retracts
        assert all("_sketch stores another value" in fault.message for fault in faults)


@pytest.mark.slow(reason="plays histories, read by three engines")
@pytest.mark.parametrize(("catalog_kind", "seed"), by_turns(4))
@pytest.mark.parametrize("engine", MERGE_ENGINES)
def test_engines_read_what_lookups_answer(engine: str, seed: int, site: MergeSite, images: Images) -> None:
    random = Random(f"{engine} {seed}")
    case, retracts = drawn(random, engine)
    play = Play(site, images, add_table(site.database, schema_of(case)))
    seen = set()
    for change in range(STEPS):
        step = random.choice(("merge", "merge", "compact", "sweep")) if change else "merge"
        if step == "merge":
            play.post(random_history(random, case, retracts, random.randint(1, 20)))
        elif step == "compact":
            compact(site, play.table)
        else:
            sweep(site.database, site.warehouse, timedelta(0))
        play.look()
        seen.add(play.check(again=step == "sweep" or change == STEPS - 1))
    assert seen


LOOKED_UP = {**OPTIONS, "changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "3"}


@pytest.mark.slow(reason="plays histories, read by three engines")
@pytest.mark.parametrize(("catalog_kind", "seed"), by_turns(4))
@pytest.mark.parametrize("engine", MERGE_ENGINES)
def test_engines_read_every_merge_where_its_changes_are_looked_up(
    engine: str, seed: int, database: CatalogDatabase, site: MergeSite, images: Images
) -> None:
    random = Random(f"looked up {engine} {seed}")
    case, retracts = drawn(random, engine, LOOKED_UP)
    if random.random() < 0.5:
        case = replace(case, options={**case.options, "changelog-producer.row-deduplicate": "true"})
    play = Play(site, images, add_table(database, schema_of(case)))
    merged = 0
    for change in range(STEPS):
        step = random.choice(("merge", "merge", "merge", "some", "compact", "sweep")) if change else "merge"
        if step == "merge":
            play.post(random_history(random, case, retracts, random.randint(1, 20)))
            with database.reading() as repository:
                merged = repository.tables.existing(play.table.id).snapshot_id or 0
        elif step == "some":
            with database.transaction() as repository:
                ask_for_compaction(repository, play.table.id, full=False)
            run_next_compaction(site, "worker")
        elif step == "compact":
            compact(site, play.table)
        else:
            sweep(database, site.warehouse, timedelta(0))
        play.look()
        assert play.check(again=True) >= merged


TYPES = {
    "BOOLEAN": True,
    "TINYINT": -128,
    "SMALLINT": 32767,
    "INT": -(2**31),
    "BIGINT": 2**63 - 1,
    "FLOAT": 0.5,
    "DOUBLE": -1e300,
    "DECIMAL(38, 10)": "-1234567890123456789012345678.0123456789",
    "CHAR(5)": "ab",
    "VARCHAR(9)": "ä🙂",
    "STRING": "",
    "BINARY(4)": "AAE=",
    "VARBINARY(9)": "",
    "BYTES": "/w==",
    "DATE": "1969-12-31",
    "TIMESTAMP(6)": "2024-01-31T10:00:00.000001",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": "1969-12-31T23:59:59.999Z",
    "ARRAY<DECIMAL(5, 2)>": ["1.25", None],
    "MAP<DATE, ARRAY<STRING>>": [["2024-02-29", ["a", None]], ["1969-12-31", None]],
    "MULTISET<STRING>": [["a", 2]],
    "ROW<a INT, b ROW<c TIMESTAMP(3), d BYTES>>": {"a": None, "b": {"c": "2024-01-31T10:00:00.123", "d": "/w=="}},
}


def test_every_type_is_read_as_it_is_answered(site: MergeSite, images: Images) -> None:
    columns = [("k", "INT"), *((f"c{n}", kind) for n, kind in enumerate(TYPES))]
    play = Play(site, images, create_table(site.database, OPTIONS, columns=columns, key=["k"]))
    merge(site, play.table, {"k": 1, **{f"c{n}": value for n, value in enumerate(TYPES.values())}}, {"k": 2})
    play.look()
    publish(site.database, site.warehouse)
    [answered] = play.answered.values()
    assert json.loads(answered[0])["c4"] == 2**63 - 1
    for form, readers in ENGINES.items():
        for name, reader in readers.items():
            assert as_answered(play.table.schema, reader(place_of(site, play.table, form))) == answered, (form, name)
