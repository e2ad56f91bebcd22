"""Lookups on one process: compared with constant routes and stores, with staged records, in three runs, concurrent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.figures import table
from bench.over_http import asking
from bench.over_http.ground import KINDS, Ground, Service, path_of, stage
from bench.over_http.stores import STORES, Backed
from bench.over_http.turns import (
    Contender,
    Goal,
    Turns,
    cpu,
    goals_table,
    middle,
    p50,
    p99,
    rate,
    take_turns,
    turns_table,
)
from bench.reads.orders import BIGINT
from bench.served.processes import Server, started, with_this_python

HIT, MERGED, LATEST = "hit", "hit, `consistency=merged`", "hit, `consistency=latest`"
SAME, LAST, BARE = "constant, same application", "constant, its last route", "constant, bare FastAPI"
REDIS, POSTGRES = (store.name for store in STORES)
THREE = "key in 3 of 3 runs"
BIGINT_ROWS = path_of("bigint")
STAGED_RECORDS, POST_RECORDS = 100_000, 10_000
KEYS_AT_ONCE, CONNECTIONS_AT_ONCE = 1000, 4
SPELLED_ALIKE = ("id", "customer", "quantity", "paid", "status", "city", "note", "day")  # by every store
MEDIA_TYPES = {"JSON": "application/json", "Arrow": "application/vnd.apache.arrow.stream"}

GOALS = (
    Goal("CPU, hit : constant, same application", cpu, HIT, SAME, f"≤ {1 / 0.85:.2f}"),
    Goal("p99, hit : constant, same application", p99, HIT, SAME, "≤ 1.50"),
    Goal("CPU, hit : constant, bare FastAPI", cpu, HIT, BARE),
    Goal("CPU, hit : Redis", cpu, HIT, REDIS, "< 1"),
    Goal("requests/s, hit : Redis", rate, HIT, REDIS, "> 1"),
    Goal("CPU, hit : PostgreSQL", cpu, HIT, POSTGRES, "< 1"),
    Goal("requests/s, hit : PostgreSQL", rate, HIT, POSTGRES, "> 1"),
    Goal("CPU, missing key : hit", cpu, "missing key", HIT, "≤ 1.05"),
    Goal("CPU, 304 : hit", cpu, "304", HIT),
    Goal("CPU, string key : hit", cpu, "hit, string key", HIT),
    Goal("CPU, composite key : hit", cpu, "hit, composite key", HIT),
    Goal("CPU, latest : merged, nothing staged", cpu, LATEST, MERGED, "≤ 1.10"),
)
STAGED = (Goal("CPU, latest : merged, 100,000 staged", cpu, LATEST, MERGED, "≤ 1.30"),)
RUNS = (Goal("CPU, 3 of 3 runs : one run", cpu, THREE, "hit, string key", "≤ 2.00"),)


def compared(ground: Ground, service: Service, rounds: int) -> Iterator[str]:
    """Yield lookups of every kind, compared with constant routes and the stores that are installed."""
    with ExitStack() as exits:
        contenders = _lookups(ground, service) | _constants(ground.folder, exits)
        absent = []
        for store in STORES:
            if store.missing:
                absent.append(f"**{store.name}: not measured. {store.missing}**")
                continue
            backed = exits.enter_context(store.open(ground.folder, BIGINT_ROWS, service.client))
            _agree(ground.rows, service, backed)
            drawn = asking.plain(ground.rows)
            contenders[store.name] = Contender(backed.route, drawn, store=backed.store)
        turns = take_turns(contenders, rounds)
    yield from ("### Lookups on one process", "", *absent, *turns_table(turns), *goals_table(turns, GOALS))


def _lookups(ground: Ground, service: Service) -> dict[str, Contender]:
    server, rows = service.server, ground.rows
    hits = {"hit, string key": "string", "hit, composite key": "composite", HIT: "bigint"}
    return {
        **{name: Contender(server, asking.lookups(path_of(of), KINDS[of], rows)) for name, of in hits.items()},
        **_consistencies(ground, service),
        "missing key": Contender(server, asking.missing(BIGINT_ROWS, BIGINT, rows), status=404),
        "304": Contender(server, asking.known(BIGINT_ROWS, BIGINT, rows, service.client), status=304),
    }


def _consistencies(ground: Ground, service: Service) -> dict[str, Contender]:
    queries = {MERGED: "&consistency=merged", LATEST: "&consistency=latest"}
    return {
        name: Contender(service.server, asking.lookups(BIGINT_ROWS, BIGINT, ground.rows, query))
        for name, query in queries.items()
    }


def _constants(folder: Path, exits: ExitStack) -> dict[str, Contender]:
    def route(name: str, *arguments: str) -> Server:
        command = with_this_python(f"bench.over_http.routes.{name}", *arguments)
        return exits.enter_context(started(command, folder / f"{name}.log"))

    same = route("same_application", str(folder / "empty"))
    return {
        SAME: Contender(same, asking.constant("/first")),
        LAST: Contender(same, asking.constant("/last")),
        BARE: Contender(route("constant"), asking.constant("/constant")),
    }


def _agree(rows: int, service: Service, backed: Backed) -> None:
    """Raises ``AssertionError`` unless the store has Keyfold's rows."""
    for number in asking.numbers(rows, 20):
        ours = service.client.get(f"{BIGINT_ROWS}/rows/{number}").raise_for_status().json()
        theirs = service.client.get(f"{backed.route.url}/rows/{number}").raise_for_status().json()
        assert theirs.keys() == ours.keys()
        assert all(theirs[name] == ours[name] for name in SPELLED_ALIKE)


def staged(ground: Ground, service: Service, rounds: int) -> Iterator[str]:
    """``latest`` while records of other keys are staged; they are withdrawn afterwards."""
    batches = stage(service.client, "bigint", ground.rows, STAGED_RECORDS, POST_RECORDS)
    turns = take_turns(_consistencies(ground, service), rounds)
    for batch in batches:
        service.client.delete(f"{BIGINT_ROWS}/batches/{batch}").raise_for_status()
    yield from (f"### With {STAGED_RECORDS:,} staged records of other keys", "")
    yield from (*turns_table(turns), *goals_table(turns, STAGED))


def three_runs(ground: Ground, service: Service, rounds: int) -> Iterator[str]:
    """Yield lookups of keys in three runs, compared with string keys in one run."""
    for _ in range(2):
        ground.commit("bigint")
    ground.image(service.client, "bigint")
    lookups = _lookups(ground, service)
    contenders = {THREE: lookups[HIT], "missing in 3 of 3 runs": lookups["missing key"]}
    turns = take_turns(contenders | {"hit, string key": lookups["hit, string key"]}, rounds)
    yield from ("### Keys in several runs", "", *turns_table(turns), *goals_table(turns, RUNS))


def many_at_once(ground: Ground, service: Service, rounds: int) -> Iterator[str]:
    """``rows:batchGet`` on one process."""

    def contender(media_type: str) -> Contender:
        drawn = asking.many(BIGINT_ROWS, BIGINT, ground.rows, KEYS_AT_ONCE, media_type)
        return Contender(service.server, drawn, connections=CONNECTIONS_AT_ONCE)

    turns = take_turns({name: contender(media_type) for name, media_type in MEDIA_TYPES.items()}, rounds)
    head = ("format", "rows/s", "target", "CPU µs a row", "rows a second of CPU", "p50 ms", "p99 ms")
    yield from (f"### rows:batchGet of {KEYS_AT_ONCE:,} keys", "", *table(head, list(_rows_at_once(turns))))


def _rows_at_once(turns: Turns) -> Iterator[Sequence[str]]:
    targets: Mapping[str, str] = {"JSON": "≥ 200,000"}
    for name in turns:
        micros = middle(turns, name, cpu) / KEYS_AT_ONCE
        yield (
            name,
            f"{middle(turns, name, rate) * KEYS_AT_ONCE:,.0f}",
            targets.get(name, ""),
            f"{micros:.2f}",
            f"{1e6 / micros:,.0f}",
            f"{middle(turns, name, p50):.1f}",
            f"{middle(turns, name, p99):.1f}",
        )
