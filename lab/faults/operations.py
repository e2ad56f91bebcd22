"""What an operator does to the tables while they are struck, each an entry. What became of it is looked up afterwards:
the answer may have been lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import httpx

from lab.faults.clients import DATABASE, Generation, Seen
from lab.faults.tables import TABLES

Ask = Callable[[str, str, Any], httpx.Response | None]  # method, path, body
PATIENCE_SECONDS = 60


class Operator:
    """Asks one of the services, again while the answer says so."""

    def __init__(self, client: httpx.Client, seen: Seen, random: Random) -> None:
        self.client = client
        self.seen = seen
        self.random = random

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """The answer; None where the connection was lost, and whether it was done is not known."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = self.client.request(method, path, json=body)
            except httpx.HTTPError:
                return None
            self.seen.check(
                f"{method} {re.sub(r'[_/][0-9a-f]{32}|_[0-9]+|[?].*', '', path.rsplit('/', 1)[-1])}", answer
            )
            if answer.status_code < 500 or time.monotonic() > deadline:
                return answer
            time.sleep(min(1.0, float(answer.headers.get("retry-after", 1))))


def _alter(operator: Operator, generation: Generation) -> None:
    """A column more, or, where it is there already, one less."""
    for name in TABLES:
        path = generation.path(name)
        answer = operator.ask("GET", path)
        if answer is None or answer.status_code != 200:
            continue
        columns = [field["name"] for field in answer.json()["schema"]["fields"]]
        add = {"action": "addColumn", "fieldNames": ["more"], "dataType": "STRING"}
        drop = {"action": "dropColumn", "fieldNames": ["more"]}
        operator.ask("POST", path, {"changes": [drop if "more" in columns else add]})


def _compact(operator: Operator, generation: Generation) -> None:
    for name in TABLES:
        operator.ask("POST", f"{generation.path(name)}/compact", {"full": operator.random.random() < 0.7})


def _roll_back(operator: Operator, generation: Generation) -> None:
    """Some snapshots back. No other client rolls back, so that one more is this one, also without an answer."""
    for name in (name for name, drawn in TABLES.items() if drawn.rolled_back):
        before = snapshots(operator, generation, name)
        if len(before) < 2:
            continue
        to = operator.random.choice(before[1:6])["id"]
        operator.ask("POST", f"{generation.path(name)}/rollback", {"snapshot": to})
        generation.going_back[name] = to


def snapshots(operator: Operator, generation: Generation, name: str) -> list[dict[str, Any]]:
    """The snapshots of a table, newest first."""
    answer = operator.ask("GET", f"{generation.path(name)}/snapshots?maxResults=1000")
    return answer.json()["snapshots"] if answer is not None and answer.status_code == 200 else []


def note_rollbacks(operator: Operator, generation: Generation) -> None:
    """Write down the rollback that was asked for, if it was made; to be called once the service is back."""
    for name, to in list(generation.going_back.items()):
        known = {made for _, made in generation.ledgers[name].rollbacks}
        ids = [snapshot["id"] for snapshot in snapshots(operator, generation, name) if snapshot["kind"] == "rollback"]
        new = sorted(set(ids) - known)
        if len(new) > 1:
            operator.seen.tell(f"one rollback of {name} became {new}")
        generation.ledgers[name].rollbacks += [(to, made) for made in new]
        del generation.going_back[name]


def _cancel(operator: Operator, generation: Generation) -> None:
    """Merges are asked for and cancelled."""
    for name in TABLES:
        answer = operator.ask("POST", f"{generation.path(name)}/merges")
        if answer is not None and answer.status_code == 202:
            operator.ask("POST", f"{generation.path(name)}/merges/{answer.json()['id']}:cancel")


def _make_and_drop(operator: Operator, generation: Generation) -> None:
    """A table is made, written and dropped; it may be there already if a drop was not answered."""
    name, (_, drawn) = f"short_{generation.number}", next(iter(TABLES.items()))
    body = {"identifier": {"database": "shop", "object": name}, "schema": drawn.schema()}
    operator.ask("POST", f"{DATABASE}/tables", body)
    records = drawn.draw(operator.random, 1)
    operator.ask("POST", f"{DATABASE}/tables/{name}/batches", {"records": records})
    operator.ask("DELETE", f"{DATABASE}/tables/{name}")


def _nothing(operator: Operator, generation: Generation) -> None:
    pass


OPERATIONS: Mapping[str, Callable[[Operator, Generation], None]] = {
    "nothing": _nothing,
    "an ALTER": _alter,
    "a compaction": _compact,
    "a rollback": _roll_back,
    "merges cancelled": _cancel,
    "a table made and dropped": _make_and_drop,
}
