"""``python -m lab.faults.flips --n 3000 --seed 1``: files are damaged by chance, and every answer is compared.

An answer is what it was before the damage, or a problem that names the damaged file; a merge or a compaction of it
fails by its name. Everything else is wrong, and printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.catalog.shared.models import batches
from app.core.table.history import CatalogTask, TaskState
from app.files.named_files import damaged_files
from app.main import create_app
from app.services.explaining.history import file_history
from app.services.merging.compactions import ask_for_compaction
from app.services.merging.merges import request_merge
from app.services.rows.kept_views import Views
from app.services.shared.damage import named_files
from app.services.shared.executor import MergeSite
from app.settings import Settings
from app.storage.images import Images
from tests.services.builders import run_next_compaction, run_next_merge
from tests.services.executor import PythonExecutor
from tests.storage.images.imaged import build

DATABASES = "/v1/catalog/databases"
KEYS = range(100)
Read = tuple[str, str, Any, int]  # method, path, body, how often it is asked
CALM = {"merge.max-staleness": "1 d", "num-sorted-run.compaction-trigger": "99"}
FIELDS = {
    "id": "BIGINT NOT NULL",
    "at": "INT",
    "text": "STRING",
    "money": "DECIMAL(12, 2)",
    "seen": "TIMESTAMP(3)",
    "tags": "ARRAY<STRING>",
    "n": "BIGINT",
}
TABLES: Mapping[str, Mapping[str, str]] = {
    "assembled": {
        "merge-engine": "partial-update",
        "fields.at.sequence-group": "text,money,n",
        "fields.n.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
    "summed": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.at.aggregate-function": "max",
    },
    "latest": {"changelog-producer": "input"},
}


def flip(content: bytes, random: Random) -> bytes:
    """One bit is another one."""
    changed = bytearray(content)
    changed[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(content: bytes, random: Random) -> bytes:
    """The end is missing."""
    return content[: random.randrange(len(content))]


def zeros(content: bytes, random: Random) -> bytes:
    """Some bytes are zeros, as of a block that was never written."""
    start = random.randrange(len(content))
    length = random.choice([1, 16, 512])
    return content[:start] + bytes(min(length, len(content) - start)) + content[start + length :]


DAMAGES: Mapping[str, Callable[[bytes, Random], bytes | None]] = {
    "flip": flip,
    "cut": cut,
    "zeros": zeros,
    "gone": lambda _content, _random: None,
}
ODDS = {"flip": 10, "cut": 2, "zeros": 1, "gone": 1}
# And how often each is damaged.
KINDS: Mapping[str, int] = {"staging": 3, "runs": 3, "changelog": 2, "images": 2, "history": 2}
READS = 8  # of each trial


@dataclass
class Tally:
    """What came of the trials. ``answers`` are counted by kind of file and outcome: ``equal`` to the truth, a problem
    that has ``named`` the file, another ``error``, or a ``wrong`` answer; ``hit`` are trials that had a wrong one.
    """

    trials: Counter[str] = field(default_factory=Counter)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def count(self, kind: str, outcome: str, detail: str) -> None:
        """Count an answer; ``detail`` says what was requested and answered."""
        self.answers[kind, outcome] += 1
        if outcome in {"error", "wrong"}:
            self.faults.append(f"{kind}: {outcome}: {detail}")

    def lines(self) -> Iterator[str]:
        """A line for each kind of file, then what was wrong, the first twenty."""
        for kind in KINDS:
            counts = ", ".join(f"{self.answers[kind, one]} {one}" for one in ("equal", "named", "error", "wrong"))
            yield f"{kind:10} {self.trials[kind]:5} damaged: {counts}; wrong answers in {self.hit[kind]} of them"
        yield from self.faults[:20]


@dataclass(frozen=True)
class Said:
    """An answer."""

    status: int
    body: bytes

    @property
    def damaged(self) -> str | None:
        """The file that a problem names as damaged."""
        answer = json.loads(self.body) if self.status == 503 else {}
        return str(answer["resourceName"]) if answer.get("errorCode") == "damaged_file" else None


class Campaign:
    """Three tables with runs, staged batches, changelogs and images, and what they answer while nothing is damaged.

    ``jobs``: merges and compactions are tried on damaged files, too.
    """

    def __init__(self, app: FastAPI, client: TestClient, random: Random, *, jobs: bool = True) -> None:
        self.app = app
        self.client = client
        self.random = random
        self.jobs = jobs
        self.tally = Tally()
        self.parts: Parts = app.state.parts
        self.parts.images.asking.builds = False
        self.site = MergeSite(self.parts.database, self.parts.warehouse, PythonExecutor(), 600)
        assert client.post(DATABASES, json={"name": "shop"}).status_code == 200
        self.ids = {self._fill(name, options): name for name, options in TABLES.items()}
        self.reads = {name: list(_reads(name, options)) for name, options in TABLES.items()}
        self.truth = {name: [self._ask(read) for read in reads] for name, reads in self.reads.items()}
        assert {said.status for every in self.truth.values() for said in every} <= {200, 404}
        build(self.parts.images)  # what the reads have asked for
        self._restart(images=True)
        assert self.truth == {name: [self._ask(read) for read in reads] for name, reads in self.reads.items()}

    def _fill(self, name: str, options: Mapping[str, str]) -> str:
        fields = [{"id": number, "name": one, "type": kind} for number, (one, kind) in enumerate(FIELDS.items())]
        schema = {"fields": fields, "primaryKeys": ["id"], "partitionKeys": [], "options": {**CALM, **options}}
        body = {"identifier": {"database": "shop", "object": name}, "schema": schema}
        table_id = str(self.client.post(f"{DATABASES}/shop/tables", json=body).json()["id"])
        for place, merges in enumerate((True, True, True, False, False)):
            own = KEYS[20 * place : 20 * place + 20]  # most rows are of one record
            sent = {"records": [_record(self.random, key) for key in (*own, *self.random.sample(KEYS, 6))]}
            assert self.client.post(f"{_path(name)}/batches", json=sent).status_code == 202
            assert not merges or self._merge(table_id).state is TaskState.SUCCEEDED
            if place == 1:
                with self.parts.database.reading() as repository:
                    table = repository.tables.existing(table_id)
                file_history(self.parts.database, self.parts.warehouse, table)
        return table_id

    def _ask(self, read: Read) -> Said:
        method, path, body, _ = read
        answer = self.client.request(method, path, json=body)
        return Said(answer.status_code, re.sub(rb'"requestId":"[^"]*",', b"", answer.content))

    def _restart(self, *, images: bool) -> None:
        """As a process that has nothing in memory; without ``images`` it reads Parquet."""
        folder = self.parts.images.folder if images else self.parts.images.folder.with_name("none")
        opened = Images(folder, self.parts.warehouse, self.parts.settings.image_bytes if images else 0)
        opened.asking.builds = False
        views = Views(self.parts.database, self.parts.warehouse)
        self.app.state.parts = replace(self.parts, views=views, images=opened)

    def files(self, kind: str) -> list[Path]:
        """The files of a kind that somebody may need."""
        if kind == "images":
            return sorted(self.parts.images.folder.glob("*/*/*.image"))
        paths = Path(self.parts.warehouse.root).glob(f"*/{kind}/**/*.parquet")
        return sorted(path for path in paths if kind != "staging" or path.name in self._staged())

    def _staged(self) -> set[str]:
        with self.parts.database.reading() as repository:
            return {batch.file for table_id in self.ids for batch in repository.batches.unmerged(table_id)}

    def run(self, count: int) -> Tally:
        """So many trials, each with one file damaged that is put back afterwards."""
        kinds, hows = (self.random.choices(list(odds), odds.values(), k=count) for odds in (KINDS, ODDS))
        files = {kind: self.files(kind) for kind in KINDS}
        for kind, how in zip(kinds, hows, strict=True):
            self._try(kind, how, self.random.choice(files[kind]))
        return self.tally

    def _try(self, kind: str, how: str, path: Path) -> None:
        whole = path.read_bytes()
        damaged = DAMAGES[how](whole, self.random)
        if damaged == whole:
            return
        self._restart(images=kind == "images" or self.random.random() < 0.3)
        if damaged is None:
            path.unlink()
        else:
            path.write_bytes(damaged)
        before = self.tally.answers[kind, "wrong"]
        self.tally.trials[kind] += 1
        self._look(kind, how, path)
        self.tally.hit[kind] += self.tally.answers[kind, "wrong"] > before
        path.write_bytes(whole)

    def _look(self, kind: str, how: str, path: Path) -> None:
        """Ask for some of what the damaged file may have to do with."""
        table_id = next(part for part in path.parts if part in self.ids)
        name = self.ids[table_id]
        file = str(path.relative_to(Path(self.parts.warehouse.root).resolve())) if kind != "images" else ""
        reads = self.reads[name]
        for place in self.random.choices(range(len(reads)), [read[-1] for read in reads], k=READS):
            said = self._ask(reads[place])
            self.tally.count(kind, _outcome(said, self.truth[name][place], file), f"{how} {path}: {said}")
        if kind == "images":
            return
        if self.jobs and kind in JOBS and self.random.random() < 0.3:
            task = getattr(self, JOBS[kind])(table_id)
            outcome = "named" if file in (task.error or "") and task.state is TaskState.FAILED else "wrong"
            self.tally.count(kind, outcome, f"{how} {path}: {task.state} {task.error}")
        if self.jobs:
            with self.parts.database.reading() as repository:
                named = named_files(repository, table_id)
            damaged = [error.file.path for error in damaged_files(self.parts.warehouse, named)]
            self.tally.count(kind, "named" if damaged == [file] else "wrong", f"{how} {path}: found were {damaged}")

    def _merge(self, table_id: str) -> CatalogTask:
        wanted = request_merge(self.parts.database, table_id)
        assert run_next_merge(self.site, "worker")
        with self.parts.database.transaction() as repository:
            # Each trial is the first for its batch, which a few of them would set aside.
            repository.transaction.execute(batches.update().values(tries=0))
            return repository.tasks.get(table_id, wanted.id)

    def _compact(self, table_id: str) -> CatalogTask:
        with self.parts.database.transaction() as repository:
            wanted = ask_for_compaction(repository, table_id)
        assert run_next_compaction(self.site, "compactor")
        with self.parts.database.reading() as repository:
            return repository.tasks.get(table_id, wanted.id)


JOBS: Mapping[str, str] = {"staging": "_merge", "runs": "_compact"}  # what reads all files of a kind


def _outcome(said: Said, truth: Said, file: str) -> str:
    if said == truth:
        return "equal"
    if said.status < 500:
        return "wrong"
    return "named" if file and said.damaged == file else "error"


def _path(name: str) -> str:
    return f"{DATABASES}/shop/tables/{name}"


def _record(random: Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "at": random.randrange(100),
        # Much of it, and nothing that packs well: most bytes of a file are of values.
        "text": random.choice([None, "", "ü", *[random.randbytes(250).hex()] * 7]),
        "money": f"{random.randrange(10**6)}.{random.randrange(100):02}",
        "seen": f"2026-01-{random.randrange(1, 29):02}T00:00:00",
        "tags": [f"t{random.randrange(9)}" for _ in range(random.randrange(3))],
        "n": random.randrange(-1000, 1000),
    }


def _reads(name: str, options: Mapping[str, str]) -> Iterator[Read]:
    path = _path(name)
    every = {"keys": [{"id": key} for key in KEYS]}
    for wanted in ("latest", "merged"):
        yield "GET", f"{path}/rows:scan?consistency={wanted}", None, 50
        yield "GET", f"{path}/rows:scan?consistency={wanted}&filter=n.gt.0&columns=id,n", None, 10
        yield "GET", f"{path}/rows:count?consistency={wanted}&exact=true&filter=at.lt.50", None, 5
        yield "POST", f"{path}/rows:batchGet?consistency={wanted}", every, 20
        yield from (("GET", f"{path}/rows?key={key}&consistency={wanted}", None, 1) for key in KEYS[::2])
    yield from (("GET", f"{path}/rows?key={key}&snapshot=2", None, 1) for key in KEYS[:10])
    yield from (("GET", f"{path}/rows:explain?key={key}", None, 3) for key in KEYS[:10])
    if "changelog-producer" in options:
        for query in ("", "?fromSnapshot=2&toSnapshot=2", "?fromSnapshot=3"):
            yield "GET", f"{path}/changelog{query}", None, 20


@contextmanager
def campaign(folder: Path, seed: int, *, jobs: bool = True) -> Iterator[Campaign]:
    """The tables of a seed, in a folder of their own."""
    app = create_app(Settings(KEYFOLD_DATA=folder, workers=0))
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        yield Campaign(app, client, Random(seed), jobs=jobs)


def main() -> None:
    """Print what came of it; status 1 if any answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=3000, help="trials")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reads-only", action="store_true", help="no merges and compactions of damaged files")
    options = parser.parse_args()
    logging.disable()  # each trial would be logged, too
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        campaign(Path(folder), options.seed, jobs=not options.reads_only) as one,
    ):
        tally = one.run(options.n)
    print("\n".join([*tally.lines(), f"{options.n} trials, seed {options.seed}, {time.monotonic() - began:.0f} s"]))  # noqa: T201
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
