"""After every step of a random history each engine reads by the Delta log what all lookups answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from random import Random
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.plan.checks.option_checks import check_options
from app.core.table.history import Table
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.services.rows.lookups import Images, get_rows
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import sweep
from tests.builders import schema_of
from tests.catalog.builders import by_turns
from tests.delta_readers import READERS, as_answered
from tests.histories import ENGINES, KEYS, random_history, random_table
from tests.oracle import Change, TableCase
from tests.services.builders import compact, merge_staged, post
from tests.services.publishing.delta_logs import folder_of, publish, versions

STEPS = 8
OPTIONS = {"delta.publish": "true", "num-sorted-run.compaction-trigger": "99", "snapshot.num-retained.min": "1"}


@dataclass
class Play:
    """A table, and what every lookup answered at each of its snapshots."""

    site: MergeSite
    images: Images
    table: Table
    answered: dict[int, list[bytes]] = field(default_factory=dict)

    def post(self, changes: list[Change]) -> None:
        schema = self.table.schema
        records = [
            {
                "_kind": one.kind,
                **{
                    column.name: column.type.encoder(one.values[column.name])
                    for column in schema.columns
                    if one.named is None or column.name in one.named
                },
            }
            for one in changes
        ]
        post(self.site.database, self.site.warehouse, *records)
        merge_staged(self.site.database, self.site.warehouse, self.table.id)

    def look(self) -> None:
        """Ask for every key."""
        domains = [range(KEYS) if name == "k" else ["x", "y"] for name in self.table.schema.primary_key]
        with self.site.database.reading() as repository:
            now = repository.tables.existing(self.table.id)
            found = get_rows(repository, self.images, now, [tuple(key) for key in product(*domains)])
        assert now.snapshot_id is not None
        self.answered[now.snapshot_id] = sorted(one.body for one in found if one.body is not None)

    def check(self) -> int:
        """The snapshot whose rows all engines read."""
        publish(self.site.database, self.site.warehouse)
        as_of = versions(self.site.database, self.table)[-1].as_of
        for name, reader in READERS.items():
            read = as_answered(self.table.schema, reader(folder_of(self.site.warehouse, self.table)))
            assert read == self.answered[as_of], name
        return as_of


def drawn(random: Random, engine: str) -> tuple[TableCase, bool]:
    """A table that may publish; one that may not has a column with a sketch."""
    while True:
        case, retracts = random_table(random, engine)
        case = replace(case, options={**case.options, **OPTIONS})
        faults = check_options(schema_of(case))
        if not faults:
            return case, retracts
        assert all("_sketch stores another value" in one.message for one in faults)


def create(database: CatalogDatabase, schema: TableSchema) -> Table:
    with database.transaction() as repository:
        repository.databases.create("shop", {})
        return repository.tables.create("shop", "wide", schema)


@pytest.mark.slow(reason="plays histories, read by three engines")
@pytest.mark.parametrize(("catalog_kind", "seed"), by_turns(4))
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_read_what_lookups_answer(
    engine: str, seed: int, database: CatalogDatabase, site: MergeSite, images: Images
) -> None:
    random = Random(f"{engine} {seed}")
    case, retracts = drawn(random, engine)
    play = Play(site, images, create(database, schema_of(case)))
    seen = set()
    for change in range(STEPS):
        step = random.choice(("merge", "merge", "compact", "sweep")) if change else "merge"
        if step == "merge":
            play.post(random_history(random, case, retracts, random.randint(1, 20)))
        elif step == "compact":
            compact(site, play.table)
        else:
            sweep(database, site.warehouse, timedelta(0))
        play.look()
        seen.add(play.check())
    assert seen


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


@pytest.mark.parametrize("reader", READERS)
def test_every_type_is_read_as_it_is_answered(
    reader: str, database: CatalogDatabase, site: MergeSite, images: Images, warehouse: Warehouse
) -> None:
    fields = [{"name": "k", "type": "INT"}, *({"name": f"c{n}", "type": kind} for n, kind in enumerate(TYPES))]
    described: dict[str, Any] = {"fields": fields, "primaryKeys": ["k"], "options": OPTIONS}
    play = Play(site, images, create(database, TableSchema.from_json(described)))
    row = {"k": 1, **{f"c{n}": value for n, value in enumerate(TYPES.values())}}
    post(database, warehouse, row, {"k": 2})
    merge_staged(database, warehouse, play.table.id)
    play.look()
    publish(database, warehouse)
    [(_, answered)] = play.answered.items()
    assert json.loads(answered[0])["c4"] == 2**63 - 1
    assert as_answered(play.table.schema, READERS[reader](folder_of(warehouse, play.table))) == answered
