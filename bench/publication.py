"""What it costs to write what other engines read of a version, by format and number of data files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from app.core.table.history import Run, SnapshotKind, Table
from app.core.table.published import Format
from app.core.table.records import RowKind
from app.core.table.schema import TableSchema
from app.files.layout import delta_log, iceberg_file, run_folder
from app.services.publishing.publications import Publisher
from app.services.tables.tables import alter_table
from app.storage.published import facts
from bench.figures import seconds, table
from bench.site import DATABASE, NO_COMPACTION, BenchSite, bench_site
from bench.sizes import Sizes

FILES = (1, 100, 1_000)
ROWS = 2_000  # of a file, each tenth of them deleted
_FOLDERS = {Format.DELTA: delta_log, Format.ICEBERG: iceberg_file}
_COLUMNS = {"id": "BIGINT", "at": "TIMESTAMP(3)", **{f"v{number}": "STRING" for number in range(10)}}


def measure_publication(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Milliseconds and KiB."""
    with bench_site() as site:
        found = {(form, count): _figures(site, form, count, sizes.rounds) for form in Format for count in FILES}
    lines = [
        (form.value.title(), f"{count:,}", *(f"{one:,.1f}" for one in found[form, count]))
        for form in Format
        for count in FILES
    ]
    about = (
        f"A version of a run with so many files of {ROWS:,} rows, of which a tenth is deleted: all of them are new to "
        "the format, and then under one more column. Whatever the process knows of the files is forgotten before."
    )
    head = ("format", "files", "all new, ms", "the same run again, ms", "all new, KiB")
    yield ["### Publication", "", about, "", *table(head, lines)]


def _figures(site: BenchSite, form: Format, count: int, rounds: int) -> tuple[float, float, float]:
    firsts, agains, sizes = [], [], []
    for number in range(rounds):
        made = _table(site, f"{form}_{count}_{number}", form, count)
        publisher = Publisher(site.merges.database, site.merges.warehouse)
        facts._facts.cache_clear()  # as a worker does that has just started
        firsts.append(seconds(publisher.publish))
        sizes.append(_bytes(site, form, made))
        added = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}
        alter_table(site.merges.database, (DATABASE, made.name), [added])
        facts._facts.cache_clear()  # the same
        agains.append(seconds(publisher.publish))
    return 1000 * median(firsts), 1000 * median(agains), median(sizes) / 1024


def _table(site: BenchSite, name: str, form: Format, count: int) -> Table:
    """A table whose run has ``count`` files: one that Spark has written, by many names."""
    options = {**NO_COMPACTION, "sequence.field": "at"}
    fields = [{"name": column, "type": kind} for column, kind in _COLUMNS.items()]
    described: dict[str, Any] = {"fields": fields, "primaryKeys": ["id"], "options": options}
    made = site.create(name, TableSchema.from_json(described))
    kinds = [RowKind.INSERT if one % 10 else RowKind.DELETE for one in range(ROWS)]
    site.stage(made, _records(), kinds=kinds)
    site.merge(made)
    snapshot = site.snapshot(made)
    [run] = snapshot.runs
    many = Run(f"{run.id}m", run.schema_id, tuple(replace(run.files[0], name=f"{n}.parquet") for n in range(count)))
    folders = [Path(site.merges.warehouse.path(*run_folder(made.id, one.id))) for one in (run, many)]
    folders[1].mkdir()
    for file in many.files:
        os.link(folders[0] / run.files[0].name, folders[1] / file.name)
    change = {"action": "setOption", "key": form.publish, "value": "true"}
    with site.merges.database.transaction() as repository:
        repository.snapshots.commit(made.id, snapshot.id, (many,), SnapshotKind.COMPACTION)
    alter_table(site.merges.database, (DATABASE, name), [change])
    return made


def _records() -> pa.Table:
    ids = list(range(ROWS))
    texts = [f"{number:08}" if number % 3 else None for number in ids]
    columns: dict[str, Any] = {"id": ids, "at": pa.array([1_000_000 * one for one in ids], pa.timestamp("us"))}
    return pa.table(columns | {name: texts for name in _COLUMNS if name.startswith("v")})


def _bytes(site: BenchSite, form: Format, made: Table) -> int:
    root = Path(site.merges.warehouse.path(*_FOLDERS[form](made.id)))
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
