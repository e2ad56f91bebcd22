"""Ingest by format, validated and durable, compared with services that keep the rows elsewhere; then small batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.figures import table
from bench.ingest.bodies import Body, bodies, event_body, json_body
from bench.ingest.neighbours import COPY, DELTA, INSERT, NEIGHBOURS, PAIMON, SQLITE, UNNEST, Neighbour
from bench.ingest.routes.order import COLUMNS, KEY
from bench.over_http.ground import NO_WORKERS
from bench.over_http.turns import (
    Contender,
    Goal,
    Turn,
    Turns,
    cpu,
    goals_table,
    middle,
    p50,
    rate,
    take_turns,
    turns_table,
)
from bench.served.processes import Server, keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.sizes import Sizes

RECORDS = 10_000
SMALL, CLIENTS = 100, 32
TURN_SECONDS = 2.0
CATALOG = "/v1/catalog/databases"
BATCHES = f"{CATALOG}/bench/tables/orders/batches"
OF_DATABASE = f"{CATALOG}/bench/batches?format=debezium-json"
EVENTS, FOUR_TABLES = 1000, ("orders", "second", "third", "fourth")
NDJSON_OF_ONE, EVENTS_OF_ONE, EVENTS_OF_FOUR, EVENT = (
    "NDJSON, one table",
    "events, one table",
    "events, four tables",
    "an event a request",
)
EVENT_GOALS = (
    Goal(f"rows/s, {EVENTS_OF_FOUR} : {NDJSON_OF_ONE}", rate, EVENTS_OF_FOUR, NDJSON_OF_ONE, "≥ 0.6"),
    Goal(f"rows/s, {EVENTS_OF_ONE} : {NDJSON_OF_ONE}", rate, EVENTS_OF_ONE, NDJSON_OF_ONE),
    Goal(f"CPU, {EVENTS_OF_FOUR} : {NDJSON_OF_ONE}", cpu, EVENTS_OF_FOUR, NDJSON_OF_ONE),
)
ONE, MANY = "1 client", f"{CLIENTS} clients"
GOALS = (
    *(Goal(f"rows/s, JSON : {name}", rate, "JSON", name, "≥ 3") for name in (SQLITE, COPY, INSERT, UNNEST)),
    Goal("rows/s, Arrow : JSON", rate, "Arrow", "JSON", "≥ 10"),
    *(Goal(f"rows/s, Arrow : {name}", rate, "Arrow", name) for name in (PAIMON, DELTA)),
    Goal("CPU, Arrow : JSON", cpu, "Arrow", "JSON"),
    *(Goal(f"CPU, Arrow : {name}", cpu, "Arrow", name) for name in (PAIMON, DELTA)),
)


@dataclass(frozen=True)
class _Posting:
    """One body again and again for ``seconds``."""

    records: int
    seconds: float
    bodies: Mapping[str, Body]

    def keyfold(self, server: Server) -> dict[str, Contender]:
        """Each format into the same table."""
        return {name: self._contender(server, body.post(BATCHES), 202) for name, body in self.bodies.items()}

    def neighbour(self, neighbour: Neighbour, folder: Path, exits: ExitStack) -> dict[str, Contender]:
        """Its ways, after a body by each. Raises ``RuntimeError`` when it refuses one or has not all of its rows."""
        backed = exits.enter_context(neighbour.open(folder))
        with client_of(backed.route.url) as client:
            for name, way in neighbour.ways.items():
                body = self.bodies[way.body]
                answer = client.post(way.path, content=body.content, headers={"Content-Type": body.media_type})
                if answer.status_code != 200:
                    raise RuntimeError(f"{name} answered {answer.status_code}: {answer.text[:200]}")
            if (count := client.get("/count").json()) != self.records:
                raise RuntimeError(f"it has {count} of {self.records} rows")
        posts = {name: self.bodies[way.body].post(way.path) for name, way in neighbour.ways.items()}
        return {name: self._contender(backed.route, post, 200, backed.store) for name, post in posts.items()}

    def _contender(self, server: Server, post: bytes, status: int, store: Server | None = None) -> Contender:
        return Contender(server, lambda: [post], status, store, connections=1, seconds=self.seconds)


def measure_ingest(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Yield rows a second by format and of other services, then batches a second of one client and of many."""
    records, seconds = sizes.rows(RECORDS), TURN_SECONDS * sizes.scale
    posting = _Posting(records, seconds, bodies(records))
    with TemporaryDirectory(prefix="keyfold-bench-") as made:
        folder = Path(made)
        with started(keyfold(folder / "data", "--processes", "1"), folder / "log", NO_WORKERS) as server:
            with client_of(server.url) as client:
                wait_ok(client, "/readyz")
                client.post(CATALOG, json={"name": "bench"}).raise_for_status()
                for name in FOUR_TABLES:
                    _create_table(client, name)
            yield list(_by_format(posting, server, folder, sizes.rounds))
            yield list(_at_once(server, seconds, sizes.rounds))
            yield list(_events(server, seconds, sizes.rounds))


def _create_table(client: httpx.Client, name: str) -> None:
    fields = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    schema = {"fields": fields, "primaryKeys": [KEY], "options": {}, "partitionKeys": [], "comment": None}
    made = {"identifier": {"database": "bench", "object": name}, "schema": schema}
    client.post(f"{CATALOG}/bench/tables", json=made).raise_for_status()


def _by_format(posting: _Posting, server: Server, folder: Path, rounds: int) -> Iterator[str]:
    contenders, absent = posting.keyfold(server), []
    with ExitStack() as exits:
        for neighbour in NEIGHBOURS:
            fault = neighbour.missing
            if not fault:
                try:
                    contenders |= posting.neighbour(neighbour, folder, exits)
                except RuntimeError as error:
                    fault = str(error)
            absent += [f"**{name}: not measured. {fault}**" for name in neighbour.ways if fault]
        turns = take_turns(contenders, rounds)
    about = (
        f"One client posts bodies of {posting.records:,} records of {len(COLUMNS)} columns, {posting.seconds:.1f} s a"
    )
    yield from ("### Ingest by format", "", f"{about} turn. CPU is the server's and, apart, its store's.", "", *absent)
    yield from ("" for _ in absent[:1])
    head = ("", "rows/s", "least", "most", "ms a body", "CPU s a million rows", "store's CPU s")
    yield from table(head, [(name, *_rows(taken, posting.records)) for name, taken in turns.items()])
    yield from goals_table(turns, GOALS)


def _rows(taken: Sequence[Turn], records: int) -> Iterator[str]:
    one: Turns = {"": taken}
    rates = [turn.a_second * records for turn in taken]
    yield from (f"{middle(one, '', rate) * records:,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}")
    yield from (f"{middle(one, '', p50):.1f}", f"{middle(one, '', cpu) / records:.2f}")
    store = middle(one, "", lambda turn: turn.store_micros) / records
    yield f"{store:.2f}" if store else ""


def _at_once(server: Server, seconds: float, rounds: int) -> Iterator[str]:
    post = json_body(SMALL).post(BATCHES)

    def by(clients: int) -> Contender:
        return Contender(server, lambda: [post], status=202, connections=clients, seconds=seconds)

    turns = take_turns({ONE: by(1), MANY: by(CLIENTS)}, rounds)
    about = f"Bodies of {SMALL} records; those that come at once share fsync and catalog transaction."
    yield from ("### Small batches at once", "", about, "", *turns_table(turns))
    yield from goals_table(turns, [Goal(f"batches/s, {MANY} : {ONE}", rate, MANY, ONE)])


def _events(server: Server, seconds: float, rounds: int) -> Iterator[str]:
    """Yield change events of one table and of four, compared with the same rows as NDJSON."""
    events = {EVENTS_OF_ONE: FOUR_TABLES[:1], EVENTS_OF_FOUR: FOUR_TABLES}
    posts = {
        NDJSON_OF_ONE: bodies(EVENTS)["NDJSON"].post(BATCHES),
        **{name: event_body(EVENTS, tables).post(OF_DATABASE) for name, tables in events.items()},
        EVENT: event_body(1, FOUR_TABLES).post(OF_DATABASE),
    }
    contenders = {
        name: Contender(server, partial(list, [post]), status=202, connections=1, seconds=seconds)
        for name, post in posts.items()
    }
    turns = take_turns(contenders, rounds)
    about = f"Bodies of {EVENTS:,} events of Debezium, without schemas; one client. Goals are by bodies."
    yield from ("### Change events", "", about, "", *turns_table(turns))
    yield from goals_table(turns, EVENT_GOALS)
