"""The requests of the benchmark: keys drawn at random, as the bytes that the client sends."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

import httpx

from bench.over_http.client import request
from bench.reads.orders import Orders

REQUESTS = 20_000  # of a turn; sent again from the first where it takes more
TAGGED = 2_000
Drawn = Callable[[], Sequence[bytes]]


def constant(path: str) -> Drawn:
    """The same request again and again."""
    return lambda: [request("GET", path)]


def numbers(rows: int, count: int = REQUESTS) -> list[int]:
    """Orders at random."""
    return [random.randrange(rows) for _ in range(count)]


def row_path(table: str, orders: Orders, number: int, query: str = "") -> str:
    """The path of an order's row."""
    return f"{table}/rows?{urlencode([('key', one) for one in orders.key(number)])}{query}"


def lookups(table: str, orders: Orders, rows: int, query: str = "") -> Drawn:
    """Rows that are there."""
    return lambda: [request("GET", row_path(table, orders, number, query)) for number in numbers(rows)]


def missing(table: str, orders: Orders, rows: int) -> Drawn:
    """Rows that are not there, their keys as long as those of rows that are."""
    return lambda: [request("GET", row_path(table, orders, rows + number)) for number in numbers(rows)]


def known(table: str, orders: Orders, rows: int, client: httpx.Client) -> Drawn:
    """Rows that the client has already: it names their ETag."""
    paths = [row_path(table, orders, number) for number in numbers(rows, TAGGED)]
    tagged = [(path, client.get(path).raise_for_status().headers["ETag"]) for path in paths]
    return lambda: [request("GET", path, f"If-None-Match: {tag}\r\n") for path, tag in tagged]


def plain(rows: int) -> Drawn:
    """Rows of a route ``/rows/{key}`` with whole numbers as keys."""
    return lambda: [request("GET", f"/rows/{number}") for number in numbers(rows)]


def many(table: str, orders: Orders, rows: int, count: int, accept: str) -> Drawn:
    """``count`` rows at once."""
    headers = f"Content-Type: application/json\r\nAccept: {accept}\r\n"

    def draw() -> Sequence[bytes]:
        return [request("POST", f"{table}/rows:batchGet", headers, keys_body(orders, rows, count)) for _ in range(20)]

    return draw


def keys_body(orders: Orders, rows: int, count: int) -> bytes:
    """The body of a request for many rows."""
    names = list(orders.key_columns)
    keys = [dict(zip(names, orders.key(number), strict=True)) for number in numbers(rows, count)]
    return json.dumps({"keys": keys}).encode()
