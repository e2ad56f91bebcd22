"""What a table of very many files costs the service, without its bytes: the catalog's rows, and what processes keep."""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from app.catalog.database import CatalogDatabase
from app.core.table.history import DataFile, Run, Snapshot, SnapshotKind, Table
from app.core.table.schema import TableSchema
from app.files.tokens import files_with
from bench.figures import table
from bench.served.growth import exponent
from bench.site import DATABASE
from bench.sizes import Sizes
from bench.wide_table import schema_json

FILES = (100, 1_000, 10_000)
FILE_BYTES, FILE_ROWS = 128 * 2**20, 1_600_000  # a file of the default target size, of rows of 80 bytes
DIGEST_BYTES = FILE_BYTES // 2**20 * 8
SEARCHES = 10_000
STEPS = (
    "first load of the snapshot in a process, ms",
    "commit of one more run, ms",
    "load of the snapshot after that commit, ms",
    "memory of a process for the snapshot, MiB",
    "files of a token, µs",
    "catalog, MiB",
)


def measure_many_files(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Milliseconds of CPU by number of files, which stand for tables of up to 1.3 TB."""
    figures = {count: _figures(count, sizes.rounds) for count in FILES}
    head = ("", *(f"{count:,} files" for count in FILES), "exponent")
    lines = [
        (name, *(f"{figures[count][name]:,.2f}" for count in FILES), f"{_slope(name, figures):.2f}") for name in STEPS
    ]
    about = (
        "A snapshot whose base run has so many files (in the catalog; nothing of them is on the disk), SQLite, seconds "
        "of CPU. One more run is committed, and the snapshot loaded by a process that knew the one before."
    )
    yield ["### Many files", "", about, "", *table(head, lines)]


def _slope(name: str, figures: dict[int, dict[str, float]]) -> float:
    return exponent(list(figures), [max(1e-3, figure[name]) for figure in figures.values()]) or 0.0


def _figures(count: int, rounds: int) -> dict[str, float]:
    with TemporaryDirectory(prefix="keyfold-bench-") as name:
        path = Path(name) / "catalog.sqlite"
        writer = _opened(path)
        writer.migrate()
        with writer.transaction() as repository:
            repository.databases.create(DATABASE, {})
            made = repository.tables.create(DATABASE, "t", TableSchema.from_json(schema_json()))
        _committed(writer, made, _run("base", count))
        first, commits, later = [], [], []
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        reader = _opened(path)
        snapshot = _loaded(reader, made)
        memory = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        for number in range(rounds):
            fresh = _opened(path)
            first.append(_cpu(partial(_loaded, fresh, made)))
            fresh.close()
            commits.append(_cpu(partial(_committed, writer, made, _run(f"r{number}", 1))))
            later.append(_cpu(partial(_loaded, reader, made)))
        figures = (*map(median, (first, commits, later)), memory / 2**20, _search_micros(snapshot.runs[0]))
        writer.close()
        reader.close()
        return dict(zip(STEPS, (*figures, os.path.getsize(path) / 2**20), strict=True))


def _opened(path: Path) -> CatalogDatabase:
    return CatalogDatabase(f"sqlite:///{path}")


def _run(name: str, count: int) -> Run:
    width = 2**64 // count
    first = [number * width - 2**63 for number in range(count)]
    draw = random.Random(name)
    return Run(name, 0, tuple(_file(name, one, one + width - 1, draw) for one in first))


def _file(run: str, first: int, last: int, draw: random.Random) -> DataFile:
    name = f"part-00000-{run}-{draw.randbytes(16).hex()}-c000.zstd.parquet"
    return DataFile(name, FILE_ROWS, FILE_BYTES, first, last, draw.randbytes(16).hex(), draw.randbytes(DIGEST_BYTES))


def _committed(database: CatalogDatabase, made: Table, run: Run) -> None:
    with database.reading() as repository:
        base = repository.snapshots.current(made.id)
    with database.transaction() as repository:
        runs = (*(base.runs if base else ()), run)
        repository.snapshots.commit(made.id, base.id if base else None, runs, SnapshotKind.MERGE)


def _loaded(database: CatalogDatabase, made: Table) -> Snapshot:
    with database.reading() as repository:
        current = repository.snapshots.current(made.id)
    assert current is not None
    return current


def _cpu(act: Callable[[], object]) -> float:
    """Milliseconds of this process."""
    began = time.process_time()
    act()
    return 1000 * (time.process_time() - began)


def _search_micros(run: Run) -> float:
    tokens = [random.randrange(-(2**63), 2**63) for _ in range(SEARCHES)]
    assert len(run.last_tokens) == len(run.files)
    began = time.process_time()
    for token in tokens:
        assert len([*files_with(run, token)]) <= 1
    return 1e6 * (time.process_time() - began) / SEARCHES
