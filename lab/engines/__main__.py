"""``python -m lab.engines``: Daft, ClickHouse, DataFusion, Sail and a real Trino read and count what the service
publishes, Trino by the lines that the service says to paste; every row is compared with the lookups.

Ends with 77, and says why, where Trino cannot be had; the others are compared first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from app.core.access import Role
from app.core.table.published import Format
from app.core.table.schema import TableSchema
from lab.engines.reader import EngineError, Reader
from lab.engines.trino_server import Impossible, Trino
from tests.acceptance.test_published import ASSEMBLED, KEYS, created, published, record, state_of
from tests.acceptance.test_restart import until
from tests.delta_readers import Rows, as_answered
from tests.service import Client, Service, TableClient, serving
from tests.services.publishing.test_published_histories import TYPES

SKIPPED = 77
_FOLLOWING: Final = {**ASSEMBLED, "options": {**ASSEMBLED["options"], "changelog-producer": "lookup"}}
_FIELDS: Final = [{"name": "id", "type": "BIGINT"}, *({"name": f"c{n}", "type": kind} for n, kind in enumerate(TYPES))]
_TYPED: Final = {"fields": _FIELDS, "primaryKeys": ["id"], "options": {one.publish: "true" for one in Format}}
_ANY_CASE: Final = "\niceberg.rest-catalog.case-insensitive-name-matching=true"
_NAME: Final = 'it\'s a "b" 100% a+b é'  # Trino has names in lower case only
# Daft 0.7.26 fails at dates of a MAP in a ROW. ClickHouse has one type for text and bytes, and no null in place of an
# array, map or tuple: it shows an empty one.
_UNREAD: Final = {"daft": "ROW<.*MAP<", "clickhouse": "BINARY|BYTES|ARRAY|MAP|MULTISET|ROW"}
_VECTORS: Final = "Unsupported storage type for deletion vector: i"
_DELTA: Final = """\
connector.name=delta_lake
fs.hadoop.enabled=true
delta.register-table-procedure.enabled=true
hive.metastore=file
hive.metastore.catalog.dir={}
"""


class Comparison:
    """Tables of a service, and what the engines read of them. ``lacks`` says why Trino is not among them."""

    def __init__(self, folder: Path, service: Service, client: Client, exits: ExitStack) -> None:
        self.client = client
        self.faults: list[str] = []
        self.compared = 0
        self.lacks: str | None = None
        self._service = service
        self._snapshots: dict[str, dict[int, list[str]]] = {}  # of each table, and the rows that the lookups answered
        self._token = client.post("/v1/tokens", json={"name": "owner", "role": Role.ADMIN, "on": ["*"]}).json()["token"]
        client.headers["Authorization"] = f"Bearer {self._token}"
        self._random = Random(1)
        self._reader = Reader(folder, exits)
        self._typed = created(client, "typed", _TYPED)
        row = {"id": 1, **{f"c{n}": value for n, value in enumerate(TYPES.values())}}
        self._typed.post_batch([row, {"id": 2}], wait=60).raise_for_status()
        until(lambda: published(self._typed), "the publication")
        # The lines of a catalog's file, as the service says them.
        said = state_of(self._typed, Format.ICEBERG)["readBy"]["trino"]
        lines = said.replace(", ", "\n").replace("KEYFOLD_TOKEN", self._token)
        by_credential = lines.replace("oauth2.token=", "oauth2.credential=owner:") + _ANY_CASE
        catalogs = {"keyfold": lines, "any_case": by_credential, "delta": _DELTA.format(folder / "metastore")}
        try:
            self._trino = Trino(folder, catalogs, exits)
        except Impossible as reason:
            self.lacks = str(reason)
        else:
            until(self._has_nodes, "a node of Trino")
            self._sql("CREATE SCHEMA delta.lake")

    def run(self, turns: int) -> None:
        """Compare tables of all kinds, most of them after each of ``turns`` batches."""
        self._compare("every type", self._typed, _TYPED)
        for name, schema in (("assembled", ASSEMBLED), ("following", _FOLLOWING), (_NAME, ASSEMBLED)):
            table = created(self.client, name, schema)
            for turn in range(turns):
                table.post_batch([record(self._random) for _ in range(60)], wait=60).raise_for_status()
                if schema is ASSEMBLED:
                    assert table.finished(self.client.post(f"{table.path}/compact").json())["state"] == "succeeded"
                until(lambda: published(table), "the publication")  # noqa: B023  # before the next table
                self._compare(f"{name}, batch {turn}", table, schema)
        created(self.client, "Mixed Case", ASSEMBLED)
        if self.lacks is None:
            self._names_and_refusals()

    def _compare(self, where: str, table: TableClient, schema: Mapping[str, Any]) -> None:
        found = table.batch_get([{"id": key} for key in range(KEYS)], consistency="merged")
        wanted = _sorted(row for row in found if row is not None)
        name, folder = table.name.removeprefix("lake."), unquote(urlsplit(state_of(table, Format.DELTA)["path"]).path)
        in_catalog = {"service": self._service.url, "token": self._token, "table": name}
        places: list[tuple[str, Mapping[str, str]]] = [
            ("daft", in_catalog),
            ("datafusion", in_catalog),
            ("clickhouse", {"folder": f"{folder}/iceberg/"}),
            ("sail", {"folder": f"{folder}/iceberg", "format": "iceberg"}),
            ("sail", {"folder": folder, "format": "delta"}),
        ]
        for engine, place in places:
            fields = [field for field in schema["fields"] if not re.search(_UNREAD.get(engine, "^$"), field["type"])]
            names = [field["name"] for field in fields]
            rows = self._reader.rows(engine, columns=names, **place)
            shown = _sorted({name: row[name] for name in names} for row in map(json.loads, wanted))
            self._check(f"{where}, {engine} {place}", _answered({**schema, "fields": fields}, rows), shown)
            counted = self._reader.rows(engine, columns=[], **place)
            self._check(f"{where}, count of {engine} {place}", counted, [{"rows": len(wanted)}])
        if self.lacks is None:
            self._compare_in_trino(f"{where}, Trino", table, schema, wanted)

    def _compare_in_trino(self, where: str, table: TableClient, schema: Mapping[str, Any], wanted: list[str]) -> None:
        name = '"{}"'.format(table.name.removeprefix("lake.").replace('"', '""'))
        self._check(where, _answered(schema, self._sql(f"TABLE keyfold.lake.{name}")), wanted)
        counted = self._sql(f"SELECT count(*) AS rows FROM keyfold.lake.{name}")  # noqa: S608  # our own
        self._check(f"{where}, count", counted, [{"rows": len(wanted)}])
        snapshots = self._snapshots.setdefault(table.name, {})
        for snapshot, rows in snapshots.items():
            earlier = self._sql(f"SELECT * FROM keyfold.lake.{name} FOR VERSION AS OF BIGINT '{snapshot}'")  # noqa: S608  # our own
            self._check(f"{where}, snapshot {snapshot}", _answered(schema, earlier), rows)
        if not snapshots:
            self._sql(state_of(table, Format.DELTA)["readBy"]["trino"])
        snapshots[state_of(table, Format.ICEBERG)["snapshotId"]] = wanted
        try:
            in_delta = self._sql(f"TABLE delta.lake.{name}")
        except EngineError as error:  # docs/delta.md says so
            self._check(f"{where}: Delta's vectors", _VECTORS in str(error), expected=True)
        else:
            self._check(f"{where}: Delta", _answered(schema, in_delta), wanted)

    def _names_and_refusals(self) -> None:
        listed = {row["Table"] for row in self._sql("SHOW TABLES FROM keyfold.lake")}
        self._check("the list of tables", listed, {"typed", "assembled", "following", "mixed case", _NAME})
        self._check("a name in mixed case", self._sql('TABLE any_case.lake."mixed case"'), [])
        for query, says in {
            "TABLE keyfold.lake.nothing": "Table 'keyfold.lake.nothing' does not exist",
            "INSERT INTO keyfold.lake.typed (id) VALUES 5": "the Iceberg catalog is for reading",
            "DELETE FROM keyfold.lake.typed WHERE id = 1": "the Iceberg catalog is for reading",
            "DROP TABLE keyfold.lake.typed": "Failed to drop table 'typed'",
            "CREATE VIEW keyfold.lake.seen AS SELECT 1 one": "Failed to create view 'seen'",
        }.items():
            try:
                found = str(self._sql(query))
            except EngineError as error:
                found = str(error)
            self._check(query, says in found, expected=True)

    def _has_nodes(self) -> bool:
        """Whether the server, which says that it has started, has found itself."""
        try:
            return bool(self._sql("SELECT 1 one"))
        except EngineError as error:
            if "NO_NODES_AVAILABLE" in str(error):
                return False
            raise

    def _sql(self, query: str) -> Rows:
        return self._reader.rows("trino", port=self._trino.port, query=query)

    def _check(self, where: str, found: object, expected: object) -> None:
        self.compared += 1
        if found != expected:
            self.faults.append(f"{where}: {found!r:.600}, not {expected!r:.600}")


def _answered(schema: Mapping[str, Any], rows: Rows) -> list[str]:
    return _sorted(map(json.loads, as_answered(TableSchema.from_json(dict(schema)), rows)))


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def main() -> int:
    """0 if the engines read what the lookups answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    given = parser.parse_args()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="keyfold-engines-")))
        service, client = exits.enter_context(serving(folder / "keyfold"))
        comparison = Comparison(folder, service, client, exits)
        comparison.run(given.turns)
    print(f"{comparison.compared} answers compared, {len(comparison.faults)} faults", *comparison.faults, sep="\n")  # noqa: T201
    if comparison.lacks is not None:
        print(f"without Trino: {comparison.lacks}")  # noqa: T201
    return 1 if comparison.faults else SKIPPED if comparison.lacks else 0


if __name__ == "__main__":
    sys.exit(main())
