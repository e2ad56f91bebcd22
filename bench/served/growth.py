"""What grows with a table, and how fast: merge, compaction, lookups, memory and files at several sizes, on a disk."""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from bench.figures import chart, seconds, table
from bench.over_http.client import request
from bench.over_http.turns import Contender, Turn
from bench.served.processes import Server, cpu_by_kind, keyfold, started, status_mib
from bench.served.serving import client_of, wait_ok
from bench.site import DATABASE, bench_site_in
from bench.sizes import Sizes
from bench.wide_table import batch_records

TABLE_ROWS = (1_000_000, 3_000_000, 10_000_000)
WARM_UPS = 2
IMAGE_BYTES = 2 * 2**30  # about four million rows: a larger table is one that is too large for its machine's images
IMAGE_BYTES_A_ROW = 500
KEYS_AT_ONCE = 1000
PATIENCE_SECONDS = 3600
NAME = "wide"
TABLE = f"/v1/catalog/databases/{DATABASE}/tables/{NAME}"
ARROW = "application/vnd.apache.arrow.stream"
_MIB = 2**20

Figures = dict[str, float]
"""Name, with its unit, to what was found at one size."""


@dataclass(frozen=True)
class Grown:
    """What a table of so many rows showed."""

    rows: int
    figures: Figures


def measure_growth(sizes: Sizes) -> Iterator[Sequence[str]]:
    """A table of all figures by size, each with the exponent of its growth; then a curve for each."""
    wanted = sizes.tables or [sizes.rows(count) for count in TABLE_ROWS]
    grown = [Grown(rows, _measured(rows, sizes)) for rows in wanted]
    yield [*_heading(sizes), *_lines(grown)]
    shown = [f"{one.rows / 1e6:g}" for one in grown]
    every = [name for name in grown[0].figures if all(name in one.figures for one in grown)]
    yield [
        line for name in every for line in chart(name, "million rows", [one.figures[name] for one in grown], at=shown)
    ]


def _measured(rows: int, sizes: Sizes) -> Figures:
    """Everything of one table, which is gone afterwards. The system's folder of temporary files says on which disk."""
    figures: Figures = {}
    with TemporaryDirectory(prefix="keyfold-growth-") as name:
        for part in _parts(Path(name), rows, sizes):
            print(json.dumps({"rows": rows, **part}), file=sys.stderr, flush=True)  # all of it takes an hour
            figures |= part
    return figures


def _parts(folder: Path, rows: int, sizes: Sizes) -> Iterator[Figures]:
    yield _loaded(folder, rows)
    yield from _written(folder, rows, sizes)
    yield _stored(folder)
    yield _lookups_alone(folder, rows, "row groups", 0)
    if rows * IMAGE_BYTES_A_ROW < IMAGE_BYTES:
        yield _lookups_alone(folder, rows, "images", IMAGE_BYTES)
        yield {"images, MiB": _bytes_below(folder / "data" / "images") / _MIB}


def _loaded(folder: Path, rows: int) -> Figures:
    """Return how long the load of the table takes: merges of a million records, then one run of all."""
    with bench_site_in(folder / "data") as site:
        created = site.create_table(NAME)
        return {"load, s": seconds(lambda: site.load(created, rows))}


def _written(folder: Path, rows: int, sizes: Sizes) -> Iterator[Figures]:
    """Merges of one batch each, then a compaction of all their runs, by a service with its own Spark."""
    with (
        started(keyfold(folder / "data"), folder / "serve.log") as server,
        client_of(server.url) as client,
    ):
        wait_ok(client, "/readyz", PATIENCE_SECONDS)
        batches = range(1, WARM_UPS + sizes.rounds + 1)
        merges = [_merge(server, client, rows, number, sizes.records) for number in batches][WARM_UPS:]
        yield {name: median(merge[name] for merge in merges) for name in merges[0]}
        stored = client.get(f"{TABLE}/stats").raise_for_status().json()["sizeBytes"]
        yield {"compaction, MiB read": stored / _MIB, **_compaction(server, client)}
        yield _peaks(server)


def _merge(server: Server, client: httpx.Client, rows: int, number: int, records: int) -> Figures:
    """One batch, posted and merged at once."""
    before = cpu_by_kind(server)
    task = merged(client, rows, number, records)
    taken = cpu_by_kind(server).since(before)
    return {
        "merge, s": _taken(task),
        "merge, CPU s of Spark": taken.spark,
        "merge, of these the JVM": taken.jvm,
        "merge with its POST, CPU s of the service": taken.service,
    }


def _compaction(server: Server, client: httpx.Client) -> Figures:
    before = cpu_by_kind(server)
    task = compacted(client)
    taken = cpu_by_kind(server).since(before)
    return {
        "compaction, s": _taken(task),
        "compaction, CPU s of Spark": taken.spark,
        "compaction, of these the JVM": taken.jvm,
        "compaction, CPU s of the service": taken.service,
        "compaction, tasks": task["progressDetail"].get("tasks", 0),
    }


def merged(client: httpx.Client, rows: int, number: int, records: int) -> Mapping[str, Any]:
    """The merge of batch ``number`` for the table that began with so many rows, posted here."""
    body = _arrow(batch_records(number, rows, records))
    answer = client.post(f"{TABLE}/batches", content=body, headers={"Content-Type": ARROW, "Prefer": "wait=60"})
    batch = answer.raise_for_status().json()
    return _finished(client, lambda: client.get(f"{TABLE}/batches/{batch['id']}").json()["mergeId"])


def compacted(client: httpx.Client) -> Mapping[str, Any]:
    """Request a compaction of all runs, and return it once it has ended."""
    task = client.post(f"{TABLE}/compact", json={"full": True}).raise_for_status().json()["id"]
    return _finished(client, lambda: task)


def _finished(client: httpx.Client, id_of: Callable[[], str | None]) -> Mapping[str, Any]:
    """The merge or compaction when it has succeeded. Raises ``RuntimeError`` when it has not, and ``TimeoutError``."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        wanted = id_of()
        task = client.get(f"{TABLE}/merges/{wanted}").raise_for_status().json() if wanted else {"state": "pending"}
        if task["state"] == "succeeded":
            return dict(task)
        if task["state"] not in ("pending", "running"):
            raise RuntimeError(f"{task['state']}: {task['error']}")
        time.sleep(0.5)  # shorter pauses would measure the requests
    raise TimeoutError("the merge or compaction did not end")


def _taken(task: Mapping[str, Any]) -> float:
    """Seconds from its claim to its commit."""
    return float(task["finishedAt"] - task["startedAt"]) / 1000


def _peaks(server: Server) -> Figures:
    """Return the most that Spark's JVM, the largest of its Python workers, and the largest other process ever had."""
    jvms = [process for process in server.family if "java" in process.name()]
    workers = [process for jvm in jvms for process in jvm.children(recursive=True)]
    known = {process.pid for process in (*jvms, *workers)}
    others = [process for process in server.family if process.pid not in known]
    kinds = {"Spark's JVM": jvms, "a Python worker": workers, "a process of the service that merges": others}
    return {
        f"memory of {kind}, most MiB": max((status_mib(process, "VmHWM") for process in processes), default=0.0)
        for kind, processes in kinds.items()
    }


def _stored(folder: Path) -> Figures:
    """What lies on the disk after all this: the compacted run, and what it replaced until that is swept."""
    data = folder / "data"
    with (
        started(keyfold(data), folder / "stats.log", {"KEYFOLD_WORKERS": "0"}) as server,
        client_of(server.url) as client,
    ):
        wait_ok(client, "/readyz", PATIENCE_SECONDS)
        stats = client.get(f"{TABLE}/stats").raise_for_status().json()
    return {
        "table, files": stats["files"],
        "table, MiB": stats["sizeBytes"] / _MIB,
        "warehouse, files": sum(1 for path in (data / "warehouse").rglob("*") if path.is_file()),
        "warehouse, MiB": _bytes_below(data / "warehouse") / _MIB,
        "catalog, MiB": sum(path.stat().st_size for path in data.glob("catalog.sqlite*")) / _MIB,
    }


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _lookups_alone(folder: Path, rows: int, way: str, image_bytes: int) -> Figures:
    """Lookups of a service that has only them to do, with images or without; one at a time."""
    environment = {"KEYFOLD_WORKERS": "0", "KEYFOLD_IMAGE_BYTES": str(image_bytes)}
    command = keyfold(folder / "data", "--processes", "1")
    with started(command, folder / "asked.log", environment) as server, client_of(server.url) as client:
        wait_ok(client, "/readyz", PATIENCE_SECONDS)
        present, missing = ([request("GET", f"{TABLE}/rows?key={key}") for key in _keys(rows, last)] for last in (0, 1))
        figures = (
            {}
            if image_bytes
            else {
                "first lookup of a process, ms": 1000 * seconds(lambda: _get(client, _keys(rows, 0, 1)[0], 200)),
                "first lookup of a missing key, ms": 1000 * seconds(lambda: _get(client, _keys(rows, 1, 1)[0], 404)),
            }
        )
        if image_bytes:
            figures["making images, s"] = seconds(lambda: _wait_for_images(client, rows))
        several = request("POST", f"{TABLE}/rows:batchGet", "Content-Type: application/json\r\n", _body(rows))
        contenders = {
            "lookup": Contender(server, lambda: present, connections=1),
            "lookup of a missing key": Contender(server, lambda: missing, 404, connections=1),
            f"batchGet of {KEYS_AT_ONCE:,} keys": Contender(server, lambda: [several], connections=1),
        }
        for name, contender in contenders.items():
            contender.turn()
            figures |= _shown(f"{name}, {way}", contender.turn())
        held = [status_mib(family, "RssAnon") for family in server.family]
        figures[f"memory of a process that answers, {way}, MiB"] = max(held)
    return figures


def _shown(name: str, turn: Turn) -> Figures:
    return {f"{name}, ms": turn.p50_millis, f"{name}, CPU ms": turn.cpu_micros / 1000}


def _keys(rows: int, last: int, count: int = 2000) -> list[int]:
    """Keys of the base at random, or with ``last`` 1 such as no record has."""
    return [2 * random.randrange(rows) + last for _ in range(count)]


def _body(rows: int) -> bytes:
    return json.dumps({"keys": [{"id": key} for key in _keys(rows, 0, KEYS_AT_ONCE)]}).encode()


def _get(client: httpx.Client, key: int, status: int) -> None:
    answer = client.get(f"{TABLE}/rows?key={key}")
    assert answer.status_code == status, answer.text


def _wait_for_images(client: httpx.Client, rows: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        client.post(f"{TABLE}/rows:batchGet", content=_body(rows)).raise_for_status()
        images = client.get(f"{TABLE}/stats").raise_for_status().json()["images"]
        if images["made"] == images["files"]:
            return
        time.sleep(1)
    raise TimeoutError("the images are not made")


def _arrow(records: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, records.schema) as writer:
        writer.write_table(records)
    return bytes(out.getvalue())


def exponent(rows: Sequence[int], values: Sequence[float]) -> float | None:
    """The slope of ``values`` over ``rows`` on logarithmic scales: 1 is a straight line, 0 does not grow. None where
    there is none.
    """
    if len(rows) < 2 or min(values) <= 0:
        return None
    return float(np.polyfit([math.log(row) for row in rows], [math.log(value) for value in values], 1)[0])


def _heading(sizes: Sizes) -> Iterator[str]:
    yield from ("### Growth", "")
    yield (
        f"The wide table of 20 columns on a disk, loaded with so many rows, then {WARM_UPS + sizes.rounds} batches of "
        f"{sizes.records:,} records, posted as Arrow to a `keyfold serve` and merged one by one (medians of the last "
        f"{sizes.rounds}), then one compaction of all runs. Lookups afterwards, one at a time, of services without "
        "workers: from row groups (`KEYFOLD_IMAGE_BYTES=0`), and with images where those take less than "
        f"{IMAGE_BYTES // 2**30} GiB. The exponent is the slope on logarithmic scales: 1 is a straight line."
    )
    yield ""


def _lines(grown: Sequence[Grown]) -> Iterator[str]:
    names = dict.fromkeys(name for one in grown for name in one.figures)
    head = ("", *(f"{one.rows / 1e6:g} M" for one in grown), "exponent")
    yield from table(head, [_line(name, grown) for name in names])


def _line(name: str, grown: Sequence[Grown]) -> Sequence[str]:
    known = [(one.rows, one.figures[name]) for one in grown if name in one.figures]
    slope = exponent(*map(list, zip(*known, strict=True)))
    cells = [f"{one.figures[name]:,.2f}" if name in one.figures else "" for one in grown]
    return name, *cells, "" if slope is None else f"{slope:.2f}"
