"""A storm of lookups on two serving processes, while their table is written, merged, compacted, altered, swept and
rolled back: every answer is a state that the table was in, whole, and never one from before what was acknowledged.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.upkeep.sweeps import sweep
from tests.acceptance.storm import Answers, Group, Seen
from tests.service import Client, Service, TableClient

GROUPS, KEYS = 2, 4
FIELDS = [("id", "BIGINT NOT NULL"), ("n", "BIGINT"), ("ones", "BIGINT"), ("said", "STRING")]
OPTIONS = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "last_value",
    "fields.ones.aggregate-function": "sum",
    "fields.said.aggregate-function": "last_value",
    "merge.max-staleness": "2 s",
    "num-sorted-run.compaction-trigger": "2",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
}
SCHEMA = {
    "fields": [{"id": at, "name": name, "type": kind} for at, (name, kind) in enumerate(FIELDS)],
    "primaryKeys": ["id"],
    "options": OPTIONS,
}
SWEPT_AFTER = timedelta(seconds=5)  # longer than any request may take
PAUSE_SECONDS = 0.02  # a reader leaves the processors to Spark, too

Rows = Mapping[int, Mapping[str, Any] | None]
Asked = tuple[httpx.Response, Callable[[], Rows]]


class Storm:
    """One table of a service, and everybody who uses it at once."""

    def __init__(self, service: Service, stack: ExitStack, data: Path) -> None:
        self.service = service
        self.stack = stack
        self.database = stack.enter_context(catalog(data))
        self.warehouse = Warehouse(str(data / "warehouse"))
        self.groups = [Group(range(at * KEYS, (at + 1) * KEYS)) for at in range(GROUPS)]
        self.keys = [key for group in self.groups for key in group.keys]
        self.answers = Answers()
        self.over = threading.Event()

    def table(self) -> TableClient:
        """The table over a connection of its own, which some process gets."""
        opened = Client(base_url=self.service.url, timeout=60, trust_env=False)
        return TableClient(self.stack.enter_context(opened), "shop", "storm")

    def write(self, group: Group) -> None:
        """Count a group up until the storm is over."""
        table = self.table()
        while not self.over.is_set():
            self.count_up(table, group)
            time.sleep(3 * PAUSE_SECONDS)

    def count_up(self, table: TableClient, group: Group) -> None:
        with group.writing:
            began = time.monotonic()
            answer = table.post_batch(group.next_records())
            faults = [] if answer.status_code == 202 else [f"{answer.status_code} {answer.text}"]
            self.answers.add("post", time.monotonic() - began, faults)
            if not faults:
                group.acknowledged = len(group.states) - 1

    def read(self, kind: str, ask: Callable[[TableClient, random.Random], Asked], *, merged: bool) -> None:
        """Ask until the storm is over, and check every answer."""
        table, chance = self.table(), random.Random(kind)
        while not self.over.is_set():
            seen, began = Seen.at_start(self.groups, merged=merged), time.monotonic()
            answer, rows_of = ask(table, chance)
            seconds = time.monotonic() - began
            faults = [] if answer.status_code in (200, 304) else [f"{answer.status_code} {answer.text}"]
            if not faults:
                rows = rows_of()
                versions = [answer.headers[f"keyfold-{name}"] for name in ("snapshot", "batch")]
                faults = [*seen.faults(rows), *self.answers.pin(versions, rows)]
            self.answers.add(kind, seconds, faults)
            time.sleep(PAUSE_SECONDS)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Nobody writes meanwhile."""
        with ExitStack() as held:
            for group in self.groups:
                held.enter_context(group.writing)
            yield


@contextmanager
def catalog(data: Path) -> Iterator[CatalogDatabase]:
    database = CatalogDatabase(f"sqlite:///{data / 'catalog.sqlite'}")
    yield database
    database.close()


def lookup(consistency: str) -> Callable[[TableClient, random.Random], Asked]:
    def ask(table: TableClient, chance: random.Random) -> Asked:
        key = chance.randrange(GROUPS * KEYS)
        answer = table.get_row(str(key), consistency=consistency)
        return answer, lambda: {key: answer.json()}

    return ask


def lookup_if_changed() -> Callable[[TableClient, random.Random], Asked]:
    """A 304 says that the row is the one that was told before."""
    known: dict[int, tuple[str, Any]] = {}

    def ask(table: TableClient, chance: random.Random) -> Asked:
        key = chance.randrange(GROUPS * KEYS)
        tag = {"If-None-Match": known[key][0]} if key in known else {}
        answer = table.client.get(f"{table.path}/rows/{key}", headers=tag)

        def rows() -> Rows:
            if answer.status_code == 200:
                known[key] = (answer.headers["etag"], answer.json())
            return {key: known[key][1]}

        return answer, rows

    return ask


def batch_get(consistency: str) -> Callable[[TableClient, random.Random], Asked]:
    def ask(table: TableClient, chance: random.Random) -> Asked:
        body = {"keys": [{"id": key} for key in chance.sample(range(GROUPS * KEYS), GROUPS * KEYS)]}
        answer = table.client.post(f"{table.path}/rows:batchGet", json=body, params={"consistency": consistency})
        return answer, lambda: {row["key"]["id"]: row["row"] for row in answer.json()["rows"]}

    return ask


def scan(consistency: str) -> Callable[[TableClient, random.Random], Asked]:
    """All rows: who is not among them is not there."""

    def ask(table: TableClient, chance: random.Random) -> Asked:
        answer = table.client.get(f"{table.path}/rows:scan", params={"consistency": consistency})

        def rows() -> Rows:
            found = [json.loads(line) for line in answer.text.splitlines()]
            assert len({row["id"] for row in found}) == len(found)
            return {**dict.fromkeys(range(GROUPS * KEYS)), **{row["id"]: row for row in found}}

        return answer, rows

    return ask


READERS: Sequence[tuple[str, Callable[[TableClient, random.Random], Asked], bool]] = [
    ("latest", lookup("latest"), False),
    ("latest of another process", lookup("latest"), False),
    ("merged", lookup("merged"), True),
    ("if changed", lookup_if_changed(), False),
    ("batchGet latest", batch_get("latest"), False),
    ("batchGet merged", batch_get("merged"), True),
    ("scan latest", scan("latest"), False),
    ("scan merged", scan("merged"), True),
]


class Unrest:
    """What happens to the table meanwhile, one thing after the other."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.table = storm.table()

    def merge(self) -> None:
        """What was acknowledged before it is in the snapshot after it."""
        before = [(group, group.acknowledged) for group in self.storm.groups]
        ended = self.table.merge()
        assert ended["state"] == "succeeded", ended
        for group, place in before:
            group.merged = max(group.merged, place)

    def compact(self) -> None:
        asked = self.table.client.post(f"{self.table.path}/compact").raise_for_status().json()
        assert self.table.finished(asked)["state"] == "succeeded"

    def sweep(self) -> None:
        """Expire snapshots, and remove the files that only they named."""
        sweep(self.storm.database, self.storm.warehouse, SWEPT_AFTER)

    def alter(self, action: str, name: str, **members: str) -> None:
        named = {"key": name} if action == "setOption" else {"fieldNames": [name]}
        self.table.client.post(
            self.table.path, json={"changes": [{"action": action, **named, **members}]}
        ).raise_for_status()

    def rename_text(self, old: str, new: str) -> None:
        """A column that is written: its writers must know."""
        with self.storm.calm():
            self.alter("renameColumn", old, newName=new)
            for group in self.storm.groups:
                group.text = new

    def tag(self) -> list[int]:
        """A tag on a snapshot that holds everything; the places of the groups' states in it."""
        with self.storm.calm():
            self.merge()
            self.table.client.post(f"{self.table.path}/tags", json={"tagName": "calm"}).raise_for_status()
            return [len(group.states) - 1 for group in self.storm.groups]

    def roll_back(self, places: Sequence[int]) -> None:
        """Back to the tag; nothing is staged."""
        with self.storm.calm():
            self.merge()
            for group, place in zip(self.storm.groups, places, strict=True):
                group.roll_back(place)
            self.table.client.post(f"{self.table.path}/rollback", json={"tag": "calm"}).raise_for_status()
            for group in self.storm.groups:
                group.settle()

    def run(self) -> None:
        """Twice everything; the second rollback is to before the schema changed."""
        self.alter("addColumn", "note", dataType="STRING")
        self.alter("setOption", "merge.max-staleness", value="1 s")
        places = self.tag()
        self.compact()
        self.rename_text("said", "told")
        self.merge()
        self.sweep()
        self.alter("renameColumn", "note", newName="remark")
        self.roll_back(places)
        self.compact()
        self.alter("dropColumn", "remark")
        self.sweep()
        self.rename_text("told", "said")
        self.merge()
        self.roll_back(places)
        self.compact()
        self.sweep()
        self.merge()


@pytest.fixture
def storm(spark_remote: str, tmp_path: Path) -> Iterator[Storm]:
    settings = {"PROCESSES": "2", "SPARK_REMOTE": spark_remote, "MERGES_AT_ONCE": "2"}
    service = Service(tmp_path, {f"KEYFOLD_{name}": value for name, value in settings.items()})
    try:
        with ExitStack() as stack:
            yield Storm(service, stack, tmp_path)
    finally:
        service.stop()


def test_every_answer_in_a_storm_is_a_state_of_the_table(storm: Storm) -> None:
    table = storm.table()
    table.client.wait_ready()
    table.client.create_database("shop")
    table.client.create_table("shop", "storm", SCHEMA).raise_for_status()
    for group in storm.groups:
        storm.count_up(table, group)
    unrest = Unrest(storm)
    unrest.merge()  # no row is missing from here on
    threads = [threading.Thread(target=storm.write, args=(group,)) for group in storm.groups]
    threads += [
        threading.Thread(target=storm.read, args=(kind, ask), kwargs={"merged": merged})
        for kind, ask, merged in READERS
    ]
    for thread in threads:
        thread.start()
    try:
        unrest.run()
    finally:
        storm.over.set()
        for thread in threads:
            thread.join()
    sys.stdout.write(f"\n{storm.answers.report()}\n")
    assert storm.answers.faults == []
    assert storm.answers.seconds.keys() == {"post", *(kind for kind, _, _ in READERS)}
    assert min(map(len, storm.answers.seconds.values())) > 20
