"""``python -m tests.upgrades.make NAME --of CHECKOUT``: a small data folder made by the program in CHECKOUT, and what
it answered, for ``tests/acceptance/test_upgrade.py`` (docs/extending.md, A release).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.service import Client, Service, TableClient

FOLDER = Path(__file__).parent
KEY = "till-31"
KEPT = ("catalog.sqlite", "warehouse", "images")  # what is not made again at the next start, and images
# Nothing happens by itself, however old the folder is.
_CALM = {"num-sorted-run.compaction-trigger": "99"} | dict.fromkeys(
    ("merge.max-staleness", "snapshot.time-retained"), "36500 d"
)


def _schema(columns: Mapping[str, str], key: Sequence[str], **members: Any) -> dict[str, Any]:
    fields = [{"id": place, "name": name, "type": of} for place, (name, of) in enumerate(columns.items())]
    options = {**_CALM, **members.pop("options", {})}
    return {"fields": fields, "primaryKeys": list(key), "partitionKeys": [], "options": options, **members}


TABLES: Mapping[str, dict[str, Any]] = {
    "orders": _schema(
        {
            "id": "BIGINT NOT NULL",
            "edited": "TIMESTAMP(3)",
            "status": "STRING",
            "tags": "ARRAY<STRING>",
            "booked": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            "paid": "DECIMAL(10, 2)",
            "raw": "BYTES",
        },
        ["id"],
        options={
            "merge-engine": "partial-update",
            "fields.edited.sequence-group": "status,tags,raw",
            "fields.booked.sequence-group": "paid",
            "fields.paid.aggregate-function": "sum",
            "partial-update.remove-record-on-sequence-group": "edited",
            "record.absent-columns": "unchanged",
            "changelog-producer": "lookup",
        },
    ),
    "totals": _schema(
        {"day": "DATE NOT NULL", "shop": "STRING NOT NULL", "n": "BIGINT", "best": "DOUBLE", "names": "STRING"},
        ["day", "shop"],
        partitionKeys=["day"],
        options={
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.best.aggregate-function": "max",
            "fields.names.aggregate-function": "listagg",
        },
    ),
    "latest": _schema(
        {"id": "STRING NOT NULL", "at": "INT", "note": "STRING", "spot": "ROW<x INT, y INT>"},
        ["id"],
        options={"sequence.field": "at", "changelog-producer": "input"},
    ),
}


def records(table: str, part: int) -> list[dict[str, Any]]:
    """The records of the batch number ``part`` of a table: some keys are written in each."""
    return [_RECORDS[table](part, number) for number in range(part, part + 12)]


def _order(part: int, number: int) -> dict[str, Any]:
    edited = {"edited": f"2026-03-01T10:{part:02}:00", "status": f"s{part}", "tags": ["a", f"b{part}"], "raw": "AQI="}
    booked = {"booked": f"2026-03-01T11:{part:02}:00Z", "paid": f"{part}.25"}
    removed = {"edited": "2026-03-01T10:59:00", "_kind": "-D"} if part == 1 and number == 5 else None
    return {"id": number, **(removed or (edited if number % 2 else booked))}


def _total(part: int, number: int) -> dict[str, Any]:
    return {"day": f"2026-03-0{1 + number % 2}", "shop": f"s{number}", "n": part, "best": part / 4, "names": f"p{part}"}


def _latest(part: int, number: int) -> dict[str, Any]:
    row = {
        "id": f"k{number}/%",
        "at": part if number % 3 else -part,
        "note": f"n{part}",
        "spot": {"x": part, "y": None},
    }
    return {**row, "_kind": "-D"} if part == 1 and number == 4 else row


_RECORDS = {"orders": _order, "totals": _total, "latest": _latest}


@contextmanager
def _serving(data: Path, checkout: Path) -> Iterator[Client]:
    service = Service(data, {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(checkout)})
    try:
        with Client(base_url=service.url, timeout=120, trust_env=False) as client:
            yield client  # merges wait for Spark by themselves
    finally:
        service.stop()


def fill(client: Client) -> None:
    """Three tables: two runs and a compacted one, a tag, images, a column renamed, batches staged."""
    client.create_database("shop")
    for name, schema in TABLES.items():
        client.create_table("shop", name, schema).raise_for_status()
        table = TableClient(client, "shop", name)
        for part in range(2):
            merged(table, records(name, part))
        client.post(f"{table.path}/tags", json={"tagName": "before"}).raise_for_status()
    table = TableClient(client, "shop", "totals")
    done = table.finished(client.post(f"{table.path}/compact").raise_for_status().json())
    assert done["state"] == "succeeded", done
    table = TableClient(client, "shop", "latest")
    rename = {"action": "renameColumn", "fieldNames": ["note"], "newName": "remark"}
    add = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}
    client.post(table.path, json={"changes": [rename, add]}).raise_for_status()
    table = TableClient(client, "shop", "orders")
    merged(table, records("orders", 2))
    for name in TABLES:
        table = TableClient(client, "shop", name)
        _ask_for_images(table)
        key = {"Idempotency-Key": KEY} if name == "orders" else {}
        for part in (3, 4):
            table.post_batch(staged(name, part), **(key if part == 3 else {})).raise_for_status()


def merged(table: TableClient, sent: Sequence[Mapping[str, Any]]) -> None:
    """Posts the records and merges all that is staged, however long that takes."""
    table.post_batch(sent).raise_for_status()
    done = table.merge()
    assert done["state"] == "succeeded", done


def staged(table: str, part: int) -> list[dict[str, Any]]:
    """As ``records``, under the schema that the table has last."""
    sent = records(table, part)
    return [{("remark" if name == "note" else name): one[name] for name in one} for one in sent]


def _ask_for_images(table: TableClient) -> None:
    """Lookups ask for images, which are made in a moment, or were not, and are then made by the next version."""
    keys = table.client.get(table.path).json()["schema"]["primaryKeys"]
    rows = answered(table, "rows:scan", consistency="merged")
    for _ in range(20):
        table.batch_get([{name: row[name] for name in keys} for row in rows], consistency="merged")
        time.sleep(0.1)


def answered(table: TableClient, route: str, **params: str) -> list[Any]:
    """The lines of an answer, in an order that does not depend on when things were merged."""
    text = table.client.get(f"{table.path}/{route}", params=params).raise_for_status().text
    return [json.loads(line) for line in text.splitlines()]


def expected(client: Client) -> dict[str, Any]:
    """What the tables answer."""
    return {name: answers(TableClient(client, "shop", name)) for name in TABLES}


def answers(table: TableClient) -> dict[str, Any]:
    """What a table answers, whatever version does."""
    listed = table.client.get(f"{table.path}/batches").raise_for_status().json()["batches"]
    batches = sorted(listed, key=lambda one: one["number"])  # versions list them from either end
    snapshots = table.client.get(f"{table.path}/snapshots").raise_for_status().json()["snapshots"]
    produced = table.client.get(table.path).json()["schema"]["options"].get("changelog-producer")
    return {
        "latest": answered(table, "rows:scan", consistency="latest"),
        "merged": answered(table, "rows:scan", consistency="merged"),
        "tagged": answered(table, "rows:scan", snapshot="before"),
        "changelog": answered(table, "changelog") if produced else [],
        "staged": [[batch["id"], batch["number"], batch["records"]] for batch in batches if batch["state"] == "staged"],
        "snapshots": sorted(snapshot["id"] for snapshot in snapshots),
    }


def make(name: str, checkout: Path) -> None:
    """Writes the archive and the answers."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        with _serving(data, checkout) as client:
            fill(client)
        with _serving(data, checkout) as client:
            reported = expected(client)
        command = [sys.executable, "-m", "app.cli", "token", "create", "till", "--data", str(data)]
        made = subprocess.run(command, check=True, capture_output=True, text=True, cwd=checkout)
        with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz") as archive:
            for part in KEPT:
                if (data / part).exists():
                    archive.add(data / part, part)
    written = {"token": made.stdout.strip(), "tables": reported}
    (FOLDER / f"{name}.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the archive, as v0.1.0")
    parser.add_argument("--of", type=Path, required=True, help="a checkout of the version, as of git worktree add")
    wanted = parser.parse_args()
    make(wanted.name, wanted.of.resolve())


if __name__ == "__main__":
    main()
