"""After a fault: is the service back, and does every table hold what it must?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from lab.faults.clients import DATABASE, Generation, Seen
from lab.faults.ledger import DELETED, Comparison, Listed
from lab.faults.operations import Operator, note_rollbacks
from lab.faults.published import check_explained, check_published
from lab.faults.system import System
from lab.faults.tables import TABLES

PATIENCE_SECONDS = 300.0
SAMPLE = 300  # rows that are looked up one by one or many at once
PROBE = "probe"
PROBE_SCHEMA = {
    "fields": [{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}, {"id": 1, "name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "partitionKeys": [],
    "options": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "merge.max-staleness": "1 h"},
}


class NotBack(Exception):
    """The service, or a table, did not come back in time."""


@dataclass(frozen=True)
class Recovery:
    """Seconds until the first success of each."""

    write: float
    lookup: float
    merge: float


def until_back(system: System, seen: Seen, number: int, began: float) -> Recovery:
    """Asks every service until it takes a batch, looks up a row, and merges. Raises ``NotBack``."""
    path = f"{DATABASE}/tables/{PROBE}"
    key = {"Idempotency-Key": f"probe-{number}"}
    body = {"records": [{"id": number, "n": 1}]}
    taken: list[httpx.Response] = []

    def written(client: httpx.Client) -> bool:
        answer = client.post(f"{path}/batches", json=body, headers=key)
        seen.check("postBatch", answer)
        taken.append(answer)
        return answer.status_code == 202

    def looked_up(client: httpx.Client) -> bool:
        answer = client.get(f"{path}/rows?key={number}")
        seen.check("getRow", answer)
        return answer.status_code == 200

    def merged(client: httpx.Client) -> bool:
        batch = f"{path}/batches/{taken[-1].json()['id']}"
        answer = client.get(batch)
        seen.check("getBatch", answer)
        if answer.status_code != 200 or answer.json()["state"] != "merged":
            seen.check("postMerge", client.post(f"{path}/merges"))
            return False
        return True

    return Recovery(*(_seconds_until(system, one, began) for one in (written, looked_up, merged)))


def _seconds_until(system: System, done: Callable[[httpx.Client], bool], began: float) -> float:
    for place in range(len(system.urls)):
        while True:
            with suppress(httpx.HTTPError), system.client(place, timeout=3) as client:
                if done(client):
                    break
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise NotBack(f"{done.__name__}: not within {PATIENCE_SECONDS:.0f} s")
            time.sleep(0.05)
    return time.monotonic() - began


class Auditor:
    """Compares the tables with their ledgers while no client posts."""

    def __init__(self, system: System, seen: Seen, random: Random) -> None:
        self.system = system
        self.random = random
        self.seen = seen

    def audit(self, generation: Generation, *, damages: bool) -> Comparison:
        """Every row of every table, and what lookups say of some. ``damages``: batches may be set aside. Raises
        ``NotBack`` where a table does not settle.
        """
        total = Comparison()
        with self.system.client(0, timeout=30) as client:
            operator = Operator(client, self.seen, self.random)
            note_rollbacks(operator, generation)
            for name in TABLES:
                _ask_for_merge(operator, generation, name)
            for name in TABLES:
                comparison = self._audit_table(operator, generation, name, damages=damages)
                total.rows += comparison.rows
                total.lost += [f"{name}: {one}" for one in comparison.lost]
                total.doubled += [f"{name}: {one}" for one in comparison.doubled]
                total.wrong += [f"{name}: {one}" for one in comparison.wrong]
        return total

    def _audit_table(self, operator: Operator, generation: Generation, name: str, *, damages: bool) -> Comparison:
        path = generation.path(name)
        while True:
            listed = self._settled(operator, generation, name, damages=damages)
            rows = self._scan(operator, f"{path}/rows:scan?consistency=merged")
            latest = self._scan(operator, f"{path}/rows:scan?consistency=latest")
            comparison = generation.ledgers[name].compare(listed, rows)
            self._follow(operator, generation, name, rows, comparison)
            if listed == list_batches(operator, path):
                break  # else a request that no client waits for any more was still under way
        if rows != latest:
            comparison.wrong.append(f"{len(rows)} merged rows, {len(latest)} latest ones, and they differ")
        self._look_up(generation, name, rows, comparison)
        check_explained(operator, path, TABLES[name], rows, comparison)
        if TABLES[name].publishes:
            check_published(operator, path, TABLES[name], rows, comparison)
        return comparison

    def _settled(self, operator: Operator, generation: Generation, name: str, *, damages: bool) -> list[Listed]:
        """The batches, once all are merged."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        path = generation.path(name)
        while True:
            listed = list_batches(operator, path)
            waiting = [batch for batch in listed if batch.state not in {"merged", DELETED}]
            if not waiting:
                return listed
            for batch in waiting:
                if batch.state in {"damaged", "poisoned"}:
                    if batch.state == "poisoned" or not damages:
                        shown = operator.ask("GET", f"{path}/batches/{batch.id}")
                        self.seen.tell(f"{name}: set aside without a reason: {shown.json() if shown else batch}")
                    again = operator.ask("POST", f"{path}/batches/{batch.id}:retry")
                    if again is not None and again.status_code == 200 and batch.key:
                        generation.ledgers[name].retried(batch.key, again.json()["number"])
            if time.monotonic() > deadline:
                raise NotBack(f"{name} does not settle: {waiting[:3]}; {_last_errors(operator, path)}")
            _ask_for_merge(operator, generation, name)
            time.sleep(0.2)

    def _scan(self, operator: Operator, path: str) -> list[dict[str, Any]]:
        answer = _answered(operator, "GET", path)
        return sorted((json.loads(line) for line in answer.text.splitlines()), key=lambda row: (row["id"], str(row)))

    def _look_up(self, generation: Generation, name: str, rows: list[dict[str, Any]], comparison: Comparison) -> None:
        """Lookups of one key and of many, through each service, say what the scan says."""
        key = TABLES[name].case.primary_key
        chosen = self.random.sample(rows, min(SAMPLE, len(rows)))
        body = {"keys": [{part: row[part] for part in key} for row in chosen]}
        for place in range(len(self.system.urls)):
            with self.system.client(place, timeout=30) as client:
                asking = Operator(client, self.seen, self.random)
                many = _answered(asking, "POST", f"{generation.path(name)}/rows:batchGet", body).json()["rows"]
                comparison.wrong += [
                    f"batchGet says {one['row']}, the scan {row}"
                    for row, one in zip(chosen, many, strict=True)
                    if one["row"] != row
                ]
                for row in chosen[:10]:
                    query = "&".join(f"key={row[part]}" for part in key)
                    one = _answered(asking, "GET", f"{generation.path(name)}/rows?{query}")
                    if one.json() != row:
                        comparison.wrong.append(f"a lookup says {one.text}, the scan {row}")

    def _follow(
        self, operator: Operator, generation: Generation, name: str, rows: list[dict[str, Any]], comparison: Comparison
    ) -> None:
        follower = generation.followers.get(name)
        if follower is None:
            return
        current = operator.ask("GET", f"{generation.path(name)}/snapshot")
        if current is None or current.status_code != 200:
            return  # nothing was merged yet
        last = current.json()["snapshot"]["snapshot"]["id"]
        if last > follower.snapshot:
            follower.follow(_changes(operator, generation.path(name), follower.snapshot + 1, last), comparison)
            follower.snapshot = last
        follower.compare(rows, comparison)


def _changes(operator: Operator, path: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    page = f"fromSnapshot={first}"
    while page:
        answer = _answered(operator, "GET", f"{path}/changelog?toSnapshot={last}&maxResults=10000&{page}")
        yield from (json.loads(line) for line in answer.text.splitlines())
        token = answer.headers.get("next-page-token")
        page = f"pageToken={token}" if token else ""


def list_batches(operator: Operator, path: str) -> list[Listed]:
    """All batches of a table."""
    listed: list[Listed] = []
    token = ""
    while True:
        page = _answered(operator, "GET", f"{path}/batches?maxResults=1000&order=oldest{token}").json()
        listed += [
            Listed(batch["id"], batch["idempotencyKey"], batch["number"], batch["state"], batch["snapshotId"])
            for batch in page["batches"]
        ]
        if not page["nextPageToken"]:
            return listed
        token = f"&pageToken={page['nextPageToken']}"


def _answered(operator: Operator, method: str, path: str, body: Any = None) -> httpx.Response:
    """The answer, asked for until it is one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = operator.ask(method, path, body)
        if answer is not None and answer.status_code == 200:
            return answer
        failure = answer and f"{answer.status_code} {answer.text[:500]}"
        if time.monotonic() > deadline or (answer is not None and answer.status_code < 500):
            raise NotBack(f"{method} {path}: {failure}")
        time.sleep(0.1)


def _ask_for_merge(operator: Operator, generation: Generation, name: str) -> None:
    operator.ask("POST", f"{generation.path(name)}/merges")


def _last_errors(operator: Operator, path: str) -> list[str]:
    answer = operator.ask("GET", f"{path}/merges?maxResults=5")
    merges = answer.json()["merges"] if answer is not None and answer.status_code == 200 else []
    return [f"{merge['state']} {merge['error']}" for merge in merges]
