"""What it costs to write what other engines read of a version, by format and number of data files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pyarrow as pa

from app.core.table.history import Run, SnapshotKind, Table
from app.core.table.published import Format
from app.core.table.records import RowKind
from app.core.table.schema import TableSchema
from app.files.layout import delta_log, iceberg_file, run_folder
from app.services.publishing.publications import LEAST_INTERVAL, Publisher, write_version
from app.services.tables.tables import alter_table
from app.storage.published import facts
from bench.figures import seconds, table
from bench.site import DATABASE, NO_COMPACTION, BenchSite, bench_site
from bench.sizes import Sizes

FILES = (1, 100, 1_000)
ROWS = 2_000  # of a file, each tenth of them deleted
BASE_ROWS, MERGED, MERGES = 1_000_000, 1_000, 50
_FOLDERS = {Format.DELTA: delta_log, Format.ICEBERG: iceberg_file}
_COLUMNS = {"id": "BIGINT", "at": "TIMESTAMP(3)", **{f"v{number}": "STRING" for number in range(10)}}


def measure_publication(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Milliseconds and KiB."""
    with bench_site() as site:
        followed = list(_followed(site, sizes))
        figures = {(form, count): _figures(site, form, count, sizes.rounds) for form in Format for count in FILES}
    lines = [
        (form.value.title(), f"{count:,}", *(f"{one:,.1f}" for one in figures[form, count]))
        for form in Format
        for count in FILES
    ]
    about = (
        f"A version of a run with so many files of {ROWS:,} rows, of which a tenth is deleted: all of them are new to "
        "the format, and then under one more column. The process forgets the files before."
    )
    head = ("format", "files", "all new, ms", "the same run again, ms", "all new, KiB")
    yield ["### Publication", "", about, "", *table(head, lines)]
    yield followed


def _followed(site: BenchSite, sizes: Sizes) -> Iterator[str]:
    """What merges cost with and without the changelog that versions follow, and what these versions cost."""
    rows, records = sizes.rows(BASE_ROWS), sizes.rows(MERGED)
    merges: dict[str, list[float]] = {"none": [], "lookup": []}
    versions: dict[Format, list[float]] = {form: [] for form in Format}
    made = {producer: _filled(site, producer, rows) for producer in merges}
    publisher = Publisher(site.merges.database, site.merges.warehouse)
    publisher.publish()
    for number in range(1, MERGES + 1):
        for producer, of_table in made.items():
            site.stage(of_table, _some_records(rows, records, number))
            merges[producer].append(seconds(partial(site.merge, of_table)))
        with site.merges.database.reading() as repository:
            later = repository.now() + LEAST_INTERVAL
        publisher.follow_merges(later)
        with site.merges.database.reading() as repository:
            pending = repository.published.pending()
        assert {one.as_of for one in pending} == {number + 1}, "each merge is followed"
        for version in pending:
            write = partial(write_version, site.merges.database, site.merges.warehouse, version)
            versions[version.format].append(seconds(write))
    yield "### Versions after merges"
    yield ""
    yield (
        f"Merges of {records:,} records into {rows:,} rows of 12 columns, of keys at random, without a compaction "
        f"between. Milliseconds, medians of ten: the first ten of {MERGES}, and the last."
    )
    yield ""
    costs = [(f"a merge, changelog-producer = {one}", *_ends(times)) for one, times in merges.items()]
    costs += [(f"a version of {form.value.title()}", *_ends(times)) for form, times in versions.items()]
    yield from table(("", "first", "last"), costs)


def _ends(times: Sequence[float]) -> tuple[str, str]:
    return f"{1000 * median(times[:10]):,.0f}", f"{1000 * median(times[-10:]):,.0f}"


def _filled(site: BenchSite, producer: str, rows: int) -> Table:
    published = {form.publish: "true" for form in Format} if producer == "lookup" else {}
    options = {**NO_COMPACTION, **published, "sequence.field": "at", "changelog-producer": producer}
    made = site.create(f"followed_{producer}", _schema(options))
    site.stage(made, _records(rows))
    site.merge(made)
    return made


def _some_records(rows: int, count: int, number: int) -> pa.Table:
    records = _records(rows).take(pa.array(Random(number).sample(range(rows), count)))
    later = pa.array([10**15 + number] * count, pa.timestamp("us"))
    return records.set_column(records.schema.get_field_index("at"), "at", later)


def _schema(options: dict[str, str]) -> TableSchema:
    fields = [{"name": column, "type": kind} for column, kind in _COLUMNS.items()]
    described: dict[str, Any] = {"fields": fields, "primaryKeys": ["id"], "options": options}
    return TableSchema.from_json(described)


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
    made = site.create(name, _schema(options))
    kinds = [RowKind.INSERT if number % 10 else RowKind.DELETE for number in range(ROWS)]
    site.stage(made, _records(ROWS), kinds=kinds)
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


def _records(rows: int) -> pa.Table:
    ids = list(range(rows))
    texts = [f"{number:08}" if number % 3 else None for number in ids]
    columns: dict[str, Any] = {"id": ids, "at": pa.array([1_000_000 * one for one in ids], pa.timestamp("us"))}
    return pa.table(columns | {name: texts for name in _COLUMNS if name.startswith("v")})


def _bytes(site: BenchSite, form: Format, made: Table) -> int:
    root = Path(site.merges.warehouse.path(*_FOLDERS[form](made.id)))
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
