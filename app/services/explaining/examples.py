"""Examples: small tables with the records that show what they do, loaded, played and dropped again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from app.catalog.database import CatalogDatabase
from app.core.errors import AlreadyExists, Conflict, NotFound, Resource, not_found
from app.core.table.history import Table
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds
from app.files.layout import Warehouse
from app.services.explaining.simulations import SimulatedStep, simulate_merge
from app.services.tables.databases import create_database
from app.services.tables.ddl import create_declared, declared_tables
from app.services.tables.drops import drop_database, drop_table
from app.services.tables.tables import Check

DATABASE: Final = "examples"
_OPTIONS: Final = {"comment": "Examples of Keyfold's console; goes with the last of them."}


@dataclass(frozen=True)
class Example:
    """A table as SQL, and records to post to it one by one, all with the key 1. ``says`` explains each."""

    name: str
    title: str
    words: str
    ddl: str
    records: tuple[Mapping[str, Any], ...]
    says: tuple[str, ...]

    @property
    def schema(self) -> TableSchema:
        """The schema that ``ddl`` declares."""
        return declared_tables(DATABASE, self.ddl, None)[0].schema

    def steps(self, count: int) -> list[SimulatedStep]:
        """Return the simulated steps of the first ``count`` records, each with its reason for every column."""
        body = {"schema": self.schema.to_json(), "records": self.records[:count]}
        return [step for row in simulate_merge(json.dumps(body).encode()) for step in row.steps] if count else []


EXAMPLES: Final[Mapping[str, Example]] = {
    example.name: example
    for example in (
        Example(
            "partial_update",
            "Partial update",
            "Several producers each know a few columns. A null says nothing, so the row fills up."
            " (Of Paimon's documentation.)",
            """CREATE TABLE partial_update (
  product_id  BIGINT,
  price       DOUBLE,
  stock       INT,
  description STRING,
  PRIMARY KEY (product_id) NOT ENFORCED
) WITH (
  'merge-engine' = 'partial-update'
)""",
            (
                {"product_id": 1, "price": 23.0, "stock": 10, "description": None},
                {"product_id": 1, "price": None, "stock": None, "description": "This is a book"},
                {"product_id": 1, "price": 25.2, "stock": None, "description": None},
            ),
            (
                "The shop knows price and stock.",
                "The editors know the description. Their nulls overwrite nothing.",
                "A new price arrives; all the rest stays.",
            ),
        ),
        Example(
            "sequence_groups",
            "Sequence groups",
            "Two producers, each with its own clock: g_1 orders a and b, g_2 orders c and d. What is older than"
            " what the group has seen changes nothing. (Of Paimon's documentation.)",
            """CREATE TABLE sequence_groups (
  k   INT,
  a   INT, b INT, g_1 INT,
  c   INT, d INT, g_2 INT,
  PRIMARY KEY (k) NOT ENFORCED
) WITH (
  'merge-engine' = 'partial-update',
  'fields.g_1.sequence-group' = 'a,b',
  'fields.g_2.sequence-group' = 'c,d'
)""",
            (
                {"k": 1, "a": 1, "b": 1, "g_1": 1, "c": 1, "d": 1, "g_2": 1},
                {"k": 1, "a": 2, "b": 2, "g_1": 2, "c": 2, "d": 2, "g_2": None},
                {"k": 1, "a": 3, "b": 3, "g_1": 1, "c": 3, "d": 3, "g_2": 3},
            ),
            (
                "Both groups begin at 1.",
                "g_2 is null: c and d stay, also where the record has other values.",
                "g_1 is back at 1, which is older than 2: a and b stay. g_2 goes on to 3.",
            ),
        ),
        Example(
            "parcels",
            "Late records and sums",
            "The depot scans parcels, the desk changes addresses, the till books fees. Late scans change nothing; late"
            " fees are summed all the same; a record says nothing of what it leaves out.",
            """CREATE TABLE parcels (
  id      BIGINT,
  scanned TIMESTAMP(3), place STRING, status STRING,
  changed TIMESTAMP(3), address STRING,
  booked  TIMESTAMP(3), fees DECIMAL(10, 2),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'merge-engine' = 'partial-update',
  'fields.scanned.sequence-group' = 'place,status',
  'fields.changed.sequence-group' = 'address',
  'fields.booked.sequence-group' = 'fees',
  'fields.fees.aggregate-function' = 'sum',
  'record.absent-columns' = 'unchanged'
)""",
            (
                {"id": 1, "scanned": "2026-03-01T10:05:00", "place": "Lyon", "status": "in transit"},
                {"id": 1, "changed": "2026-03-01T09:30:00", "address": "Rue Verte 7, Lyon"},
                {"id": 1, "booked": "2026-03-01T10:10:00", "fees": "4.90"},
                {"id": 1, "scanned": "2026-03-01T09:58:00", "place": "Paris", "status": "accepted"},
                {"id": 1, "booked": "2026-03-01T10:02:00", "fees": "1.10"},
            ),
            (
                "The depot in Lyon scans it.",
                "The desk knows the address, and nothing of scans.",
                "The till books a fee.",
                "The scan of Paris comes late: 09:58 is before 10:05, so place and status stay.",
                "A fee comes late, too, but a sum counts it.",
            ),
        ),
    )
}


def example_of(name: str) -> Example:
    """Return the example of that name. Raise ``NotFound``."""
    if name not in EXAMPLES:
        raise not_found(Resource.TABLE, name, "there is no such example")
    return EXAMPLES[name]


def load_example(
    catalog: CatalogDatabase, example: Example, by: str = "", bounds: CatalogBounds = DEFAULT_BOUNDS
) -> None:
    """Create the example's table, and its database if it does not exist. Do nothing if the table exists.

    Raise ``Conflict`` if there are too many tables.
    """
    with suppress(AlreadyExists), catalog.transaction() as repository:
        create_database(repository, DATABASE, _OPTIONS, by, bounds)
    with suppress(AlreadyExists):
        create_declared(catalog, DATABASE, declared_tables(DATABASE, example.ddl, None, bounds), by, bounds)


def loaded_example(catalog: CatalogDatabase, example: Example) -> tuple[Table, int] | None:
    """Return its table, and how many of its records were played; None if it is not loaded."""
    with catalog.reading() as repository:
        try:
            table = repository.tables.get(DATABASE, example.name)
        except NotFound:
            return None
        return table, min(repository.batches.last_number(table.id), len(example.records))


def drop_example(catalog: CatalogDatabase, warehouse: Warehouse, example: Example) -> None:
    """Drop the example's table and what was posted to it, and, after the last example, their database.

    Raise ``NotFound``, or ``Conflict`` if a user's table has that name, with another schema.
    """
    drop_table(catalog, warehouse, (DATABASE, example.name), _made_of(example))
    with catalog.reading() as repository:
        ours = repository.databases.get(DATABASE).options == _OPTIONS and not repository.tables.names(DATABASE, limit=1)
    if ours:
        with suppress(Conflict, NotFound):  # a user created a table in it, or dropped it, just now
            drop_database(catalog, warehouse, DATABASE, cascade=False)


def _made_of(example: Example) -> Check:
    def check(table: Table) -> None:
        if table.schema != example.schema:
            message = f"the table {table.full_name} is not the example: it was made or changed by another request"
            raise Conflict(f"{message}; drop it as any other table")

    return check
