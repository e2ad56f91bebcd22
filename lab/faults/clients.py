"""Clients as the documentation wants them: a key for each batch, the same request again until it is answered. Some lose
their connection in mid-body, send the same twice at once, or give up after an answer that did not come.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx

from lab.faults.ledger import Follower, Ledger, Outcome, Sent
from lab.faults.system import System
from lab.faults.tables import OWN, TABLES

DATABASE = "/v1/catalog/databases/shop"
LONGEST_WAIT_SECONDS = 1.0  # of what Retry-After asks for
PAUSE_SECONDS = 0.5  # between two batches of a client, at most


@dataclass
class Seen:
    """What clients have seen; ``faults`` are answers that must not be."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: Counter[str] = field(default_factory=Counter)
    manners: Counter[str] = field(default_factory=Counter)
    rows_read: int = 0
    faults: list[str] = field(default_factory=list)

    def check(self, request: str, answer: httpx.Response) -> None:
        """No 5xx without a problem and when to come again."""
        is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
        with self.lock:
            self.answers[f"{request} {answer.status_code}"] += 1
            if answer.status_code >= 500 and not (is_problem and answer.headers.get("retry-after", "").isdigit()):
                headers = {name: answer.headers.get(name) for name in ("content-type", "retry-after")}
                self.faults.append(f"{request}: {answer.status_code} {headers} {answer.text[:500]}")

    def tell(self, fault: str | None) -> None:
        """Something is wrong."""
        if fault:
            with self.lock:
                self.faults.append(fault)


class Generation:
    """Tables of one age with their ledgers; serials go on from one to the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ledgers = {name: Ledger(drawn.case) for name, drawn in TABLES.items()}
        self.going_back: dict[str, int] = {}  # a rollback that was asked for: table to snapshot
        self.followers = {name: Follower(drawn.case) for name, drawn in TABLES.items() if drawn.changes}

    def path(self, name: str) -> str:
        """The table's route."""
        return f"{DATABASE}/tables/{name}_{self.number}"


class Poster(threading.Thread):
    """One client; it posts until its end is set, and pauses on request."""

    def __init__(self, system: System, place: int, seed: int, seen: Seen) -> None:
        super().__init__(name=f"client {place}", daemon=True)
        self.system = system
        self.place = place
        self.random = Random(f"{seed} {place}")
        self.seen = seen
        self.generation: Generation | None = None
        self.go, self.still, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.http = system.client(place)
        self.ids: dict[str, str] = {}  # of the batch that was accepted last
        self._serial = 0
        self._twin = ThreadPoolExecutor(1)

    def run(self) -> None:
        """Post batch after batch."""
        while not self.ended.is_set():
            if not self.go.is_set() or self.generation is None:
                self.still.set()
                self.go.wait(0.1)
                continue
            self.still.clear()
            if not self.go.is_set():
                continue
            try:
                self._post_one(self.generation)
            except Exception as error:  # the campaign reports it
                self.seen.tell(f"the client itself failed: {error!r}")
            time.sleep(self.random.random() * PAUSE_SECONDS)
        self._twin.shutdown()
        self.http.close()

    def _post_one(self, generation: Generation) -> None:
        name = self.random.choice(list(TABLES))
        self._serial += 1
        serial = 10 * self._serial + self.place  # of this client alone
        records = TABLES[name].draw(self.random, serial)
        manner = self.random.choices(list(MANNERS), [odds for odds, _ in MANNERS.values()])[0]
        with self.seen.lock:
            self.seen.manners[manner] += 1
        sent = generation.ledgers[name].send(f"{generation.number}-{serial}", records)
        MANNERS[manner][1](self, generation, name, sent)
        if sent.outcome is Outcome.ACCEPTED and self.random.random() < 0.4:
            self.look(generation, name, sent)

    def deliver(self, generation: Generation, name: str, sent: Sent, http: httpx.Client | None = None) -> None:
        """Post until it is accepted."""
        while not self.attempt(generation, name, sent, http or self.http) and not self.ended.is_set():
            pass

    def attempt(self, generation: Generation, name: str, sent: Sent, http: httpx.Client) -> bool:
        """Post once; waits as long as the answer asks for. Whether there is nothing more to do."""
        path, headers = f"{generation.path(name)}/batches", {"Idempotency-Key": sent.key}
        try:
            answer = http.post(path, content=body_of(sent), headers={**headers, "Content-Type": "application/json"})
        except httpx.HTTPError as error:
            with self.seen.lock:
                self.seen.answers[f"postBatch {type(error).__name__}"] += 1
            time.sleep(0.1)
            return False
        self.seen.check("postBatch", answer)
        if answer.status_code in (200, 202):
            self.ids = {sent.key: answer.json()["id"]}
            self.seen.tell(generation.ledgers[name].accept(sent, answer.json()["number"]))
            return True
        if answer.status_code in (409, 429) or answer.status_code >= 500:
            time.sleep(min(float(answer.headers.get("retry-after", 1)), LONGEST_WAIT_SECONDS))
            return False
        self.seen.tell(f"batch {sent.key} was refused: {answer.status_code} {answer.text[:500]}")
        return True

    def look(self, generation: Generation, name: str, sent: Sent) -> None:
        """A client that was answered sees the batch at once, from every process."""
        if TABLES[name].rolled_back:
            return
        record = next(record for record in reversed(sent.records) if record["id"] >= OWN)
        key = [("key", str(record[part])) for part in TABLES[name].case.primary_key]
        try:
            answer = self.http.get(f"{generation.path(name)}/rows", params=[*key, ("consistency", "latest")])
        except httpx.HTTPError:
            return
        self.seen.check("getRow", answer)
        if answer.status_code < 500 and "keyfold-set-aside" not in answer.headers:
            self.seen.tell(_unlike(name, record, answer))


def _unlike(name: str, record: Mapping[str, Any], answer: httpx.Response) -> str | None:
    """What is wrong with the answer for a key that one batch alone has, which was accepted before."""
    wanted = {column: record.get(column) for column, _ in TABLES[name].case.columns}
    if answer.status_code != 200:
        return f"getRow of {name}: {answer.status_code} {answer.text[:300]} instead of {wanted}"
    row = answer.json()
    had = {column: row.get(column) for column in wanted}
    return None if had == wanted else f"getRow of {name}: {row} instead of {wanted}"


def body_of(sent: Sent) -> bytes:
    """The same bytes each time."""
    return json.dumps({"records": sent.records}).encode()


def _steady(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    client.deliver(generation, name, sent)


def _twice(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    """Two connections at once, under one key."""
    with client.system.client(client.place + 1) as other:
        twin = client._twin.submit(client.deliver, generation, name, sent, other)
        client.deliver(generation, name, sent)
        twin.result()


def _withdrawn(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    """Accepted, then taken back, if no merge has it yet."""
    client.deliver(generation, name, sent)
    batch = client.ids.get(sent.key)
    if sent.outcome is not Outcome.ACCEPTED or batch is None:
        return
    sent.outcome = Outcome.NOTHING
    try:
        answer = client.http.delete(f"{generation.path(name)}/batches/{batch}")
    except httpx.HTTPError:
        return
    client.seen.check("deleteBatch", answer)
    if answer.status_code == 200:
        sent.outcome = Outcome.WITHDRAWN
    elif answer.status_code < 500:
        sent.outcome = Outcome.ACCEPTED


def _gives_up(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    """Ask once; no answer has said whether the batch is there."""
    client.attempt(generation, name, sent, client.http)


def _hangs_up(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    """Sends everything and does not wait for the answer."""
    cut(client, generation, name, sent, len(body_of(sent)))


def _cut(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    """Half a body, then nothing."""
    sent.outcome = Outcome.CUT
    whole = len(body_of(sent))
    cut(client, generation, name, sent, client.random.randrange(1, whole))


def _cut_then_whole(client: Poster, generation: Generation, name: str, sent: Sent) -> None:
    """Half a body, then the same request again."""
    cut(client, generation, name, sent, client.random.randrange(1, len(body_of(sent))))
    client.deliver(generation, name, sent)


def cut(client: Poster, generation: Generation, name: str, sent: Sent, length: int) -> None:
    """The head, and so many bytes of the body; then the connection ends, in peace or not."""
    body, url = body_of(sent), urlsplit(str(client.http.base_url))
    head = (
        f"POST {generation.path(name)}/batches HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {sent.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        with socket.create_connection((str(url.hostname), int(url.port or 80)), timeout=2) as wire:
            if client.random.random() < 0.5:  # reset instead of closed
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.sendall(head.encode() + body[:length])
            time.sleep(client.random.choice([0, 0.02]))
    except OSError:
        pass


Manner = Callable[[Poster, Generation, str, Sent], None]
MANNERS: Mapping[str, tuple[int, Manner]] = {
    "posted until answered": (55, _steady),
    "posted, then withdrawn": (5, _withdrawn),
    "posted twice at once": (12, _twice),
    "given up after one try": (8, _gives_up),
    "hung up before the answer": (5, _hangs_up),
    "cut in mid-body": (8, _cut),
    "cut in mid-body, then posted": (7, _cut_then_whole),
}
