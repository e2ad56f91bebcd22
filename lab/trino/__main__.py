"""``python -m lab.trino``: a real Trino reads what the service publishes, by the lines that the service says to paste;
every row is compared with the lookups.

Ends with 77, and says why, where Trino cannot be had.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from app.core.access import Role
from app.core.table.published import Format
from app.core.table.schema import TableSchema
from lab.trino.server import Impossible, Trino, TrinoError
from tests.acceptance.test_published import ASSEMBLED, KEYS, created, published, record
from tests.acceptance.test_restart import until
from tests.delta_readers import Rows, as_answered
from tests.service import Client, TableClient, serving
from tests.services.publishing.test_published_histories import TYPES

SKIPPED = 77
_FOLLOWING: Final = {**ASSEMBLED, "options": {**ASSEMBLED["options"], "changelog-producer": "lookup"}}
_FIELDS: Final = [{"name": "id", "type": "BIGINT"}, *({"name": f"c{n}", "type": kind} for n, kind in enumerate(TYPES))]
_TYPED: Final = {"fields": _FIELDS, "primaryKeys": ["id"], "options": {one.publish: "true" for one in Format}}
_ANY_CASE: Final = "\niceberg.rest-catalog.case-insensitive-name-matching=true"
_NAME: Final = 'it\'s a "b" 100% a+b é'  # Trino has names in lower case only
_VECTORS: Final = "Unsupported storage type for deletion vector: i"
_DELTA: Final = """\
connector.name=delta_lake
fs.hadoop.enabled=true
delta.register-table-procedure.enabled=true
hive.metastore=file
hive.metastore.catalog.dir={}
"""


class Comparison:
    """Tables of a service, and what Trino reads of them."""

    def __init__(self, folder: Path, client: Client, exits: ExitStack) -> None:
        self.client = client
        self.faults: list[str] = []
        self.compared = 0
        self._snapshots: dict[str, dict[int, list[str]]] = {}  # of each table, and the rows that the lookups answered
        token = client.post("/v1/tokens", json={"name": "owner", "role": Role.ADMIN, "on": ["*"]}).json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"
        self._random = Random(1)
        self._typed = created(client, "typed", _TYPED)
        self._typed.post_batch(
            [{"id": 1, **{f"c{n}": one for n, one in enumerate(TYPES.values())}}, {"id": 2}], wait=60
        )
        until(lambda: published(self._typed), "the publication")
        # The lines of a catalog's file, as the service says them.
        catalog = (
            _state(self._typed, Format.ICEBERG)["readBy"]["trino"].replace(", ", "\n").replace("KEYFOLD_TOKEN", token)
        )
        catalogs = {"keyfold": catalog, "any_case": catalog + _ANY_CASE, "delta": _DELTA.format(folder / "metastore")}
        self._trino = Trino(folder, catalogs, exits)
        self._trino.rows("CREATE SCHEMA delta.lake")

    def run(self, turns: int) -> None:
        """Compare tables of all kinds, two of them after each of ``turns`` batches."""
        self._compare("every type", self._typed, _TYPED)
        for name, schema in (("assembled", ASSEMBLED), ("following", _FOLLOWING), (_NAME, ASSEMBLED)):
            table = created(self.client, name, schema)
            for turn in range(turns):
                table.post_batch([record(self._random) for _ in range(60)], wait=60).raise_for_status()
                if schema is ASSEMBLED:
                    assert table.finished(self.client.post(f"{table.path}/compact").json())["state"] == "succeeded"
                until(lambda: published(table), "the publication")  # noqa: B023  # before the next table
                self._compare(f"{name}, batch {turn}", table, schema)
        listed = {row["Table"] for row in self._trino.rows("SHOW TABLES FROM keyfold.lake")}
        self._check("the list of tables", listed, {"typed", "assembled", "following", _NAME})
        created(self.client, "Mixed Case", ASSEMBLED)
        self._check("a name in mixed case", self._trino.rows('TABLE any_case.lake."mixed case"'), [])
        self._refusals()

    def _compare(self, where: str, table: TableClient, schema: Mapping[str, Any]) -> None:
        found = table.batch_get([{"id": key} for key in range(KEYS)], consistency="merged")
        wanted = sorted(json.dumps(row, sort_keys=True) for row in found if row is not None)
        of_table = TableSchema.from_json(dict(schema))
        name = '"{}"'.format(table.name.removeprefix("lake.").replace('"', '""'))
        self._check(where, _answered(of_table, self._trino.rows(f"TABLE keyfold.lake.{name}")), wanted)
        snapshots = self._snapshots.setdefault(table.name, {})
        for snapshot, rows in snapshots.items():
            earlier = self._trino.rows(f"SELECT * FROM keyfold.lake.{name} FOR VERSION AS OF BIGINT '{snapshot}'")  # noqa: S608  # our own
            self._check(f"{where}, snapshot {snapshot}", _answered(of_table, earlier), rows)
        if not snapshots:
            self._trino.rows(_state(table, Format.DELTA)["readBy"]["trino"])
        snapshots[_state(table, Format.ICEBERG)["snapshotId"]] = wanted
        try:
            in_delta = self._trino.rows(f"TABLE delta.lake.{name}")
        except TrinoError as error:  # docs/delta.md says so
            self._check(f"{where}: Delta's vectors", _VECTORS in str(error), expected=True)
        else:
            self._check(f"{where}: Delta", _answered(of_table, in_delta), wanted)

    def _refusals(self) -> None:
        for query, says in {
            "TABLE keyfold.lake.nothing": "Table 'keyfold.lake.nothing' does not exist",
            "INSERT INTO keyfold.lake.typed (id) VALUES 5": "the Iceberg catalog is for reading",
            "DELETE FROM keyfold.lake.typed WHERE id = 1": "the Iceberg catalog is for reading",
            "DROP TABLE keyfold.lake.typed": "Failed to drop table 'typed'",
            "CREATE VIEW keyfold.lake.seen AS SELECT 1 one": "Failed to create view 'seen'",
        }.items():
            try:
                found = str(self._trino.rows(query))
            except TrinoError as error:
                found = str(error)
            self._check(query, says in found, expected=True)

    def _check(self, where: str, found: object, expected: object) -> None:
        self.compared += 1
        if found != expected:
            self.faults.append(f"{where}: {found!r:.600}, not {expected!r:.600}")


def _state(table: TableClient, form: Format) -> dict[str, Any]:
    state: dict[str, Any] = table.client.get(f"{table.path}/{form}").raise_for_status().json()
    return state


def _answered(schema: TableSchema, rows: Rows) -> list[str]:
    return sorted(json.dumps(json.loads(row), sort_keys=True) for row in as_answered(schema, rows))


def main() -> int:
    """0 if Trino reads what the lookups answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    given = parser.parse_args()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="keyfold-trino-")))
        _, client = exits.enter_context(serving(folder / "keyfold"))
        try:
            comparison = Comparison(folder, client, exits)
        except Impossible as reason:
            print(f"skipped: {reason}")  # noqa: T201
            return SKIPPED
        comparison.run(given.turns)
    print("\n".join([f"{comparison.compared} answers compared, {len(comparison.faults)} faults", *comparison.faults]))  # noqa: T201
    return 1 if comparison.faults else 0


if __name__ == "__main__":
    sys.exit(main())
