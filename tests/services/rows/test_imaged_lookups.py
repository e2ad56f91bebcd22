"""Lookups answered from images are those answered from state rows: in all engines, whatever is merged, compacted and
altered meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.files.layout import Warehouse
from app.services.rows.lookups import Consistency, FoundRow, Images, get_rows
from app.services.rows.many_lookups import read_keys, rows_as_json
from app.services.rows.views import view_of
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.storage.images.builder import Builder
from tests.services.builders import QUIET, compact, create_table, merge, post
from tests.services.one_catalog import catalog_kind
from tests.storage.images.imaged import build, files_of

__all__ = ["catalog_kind"]

KEYS = range(12)
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "removals in order": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
        "sequence.field": "n",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "last value": {"merge-engine": "aggregation", "fields.n.aggregate-function": "last_value"},
}


@pytest.fixture
def apart(tmp_path: Path, warehouse: Warehouse) -> Iterator[Images]:
    """Images that are never made: every answer is of state rows."""
    opened = Images(tmp_path / "none", warehouse)
    opened.asking.builds = False
    yield opened
    opened.close()


def found(
    database: CatalogDatabase, images: Images, table: Table, consistency: Consistency = Consistency.MERGED
) -> list[tuple[Any, ...]]:
    with database.reading() as repository:
        current = repository.tables.find(table.id) or table
        rows = get_rows(repository, images, current, [(key,) for key in KEYS], consistency)
    return [reported(row) for row in rows]


def reported(row: FoundRow) -> tuple[Any, ...]:
    return row.key, row.body, row.tag, row.written


def many(database: CatalogDatabase, images: Images, table: Table) -> bytes:
    with database.reading() as repository:
        current = repository.tables.find(table.id) or table
        return rows_as_json(images, read_keys(view_of(repository, current).merged, [{"id": key} for key in KEYS]))


def drawn(draw: random.Random, engine: str) -> Sequence[Mapping[str, Any]]:
    kinds = ["+I", "+U"] if engine in ("first-row", "last value") else ["+I", "+U", "-D"]
    return [
        {"_kind": draw.choice(kinds), "id": draw.choice(KEYS[:10]), "n": draw.randrange(50)}
        for _ in range(draw.randrange(1, 6))
    ]


@pytest.mark.slow(reason="plays a history of every engine")
@pytest.mark.parametrize("engine", ENGINES)
def test_images_answer_as_state_rows_do(site: MergeSite, images: Images, apart: Images, engine: str) -> None:
    table = create_table(site.database, {**ENGINES[engine], **QUIET})
    images.asking.builds = False
    draw = random.Random(11)
    finished = 0
    for turn in range(6):
        merge(site, table, *drawn(draw, engine))
        if turn == 3:
            compact(site, table)
        expected = found(site.database, apart, table)
        assert found(site.database, images, table) == expected
        build(images)
        assert found(site.database, images, table) == expected
        assert many(site.database, images, table) == many(site.database, apart, table)
        build(images)
        assert found(site.database, images, table) == expected
        finished += sum(body is not None for _, body, _, _ in expected)
    assert finished
    assert files_of(images)
    assert not files_of(apart)
    post(site.database, site.warehouse, *drawn(draw, engine))
    latest = found(site.database, apart, table, Consistency.LATEST)
    assert found(site.database, images, table, Consistency.LATEST) == latest


def test_a_row_keeps_its_tag_when_its_runs_are_compacted(site: MergeSite, images: Images) -> None:
    images.asking.builds = False
    table = create_table(site.database, {**ENGINES["aggregation"], **QUIET})
    for _ in range(3):
        merge(site, table, *({"id": key, "n": key} for key in KEYS))
    before = found(site.database, images, table)
    compact(site, table)
    assert found(site.database, images, table) == before
    build(images)
    assert found(site.database, images, table) == before


def altered(database: CatalogDatabase, *changes: Mapping[str, Any]) -> None:
    alter_table(database, ("shop", "wide"), changes)


def test_an_altered_table_is_answered_as_it_is_now(site: MergeSite, images: Images, apart: Images) -> None:
    images.asking.builds = False
    table = create_table(site.database, {**QUIET})
    merge(site, table, *({"id": key, "n": key} for key in KEYS[:8]))
    found(site.database, images, table)
    build(images)
    made = files_of(images)
    altered(site.database, {"action": "setOption", "key": "merge.max-staleness", "value": "3 d"})
    found(site.database, images, table)
    build(images)
    assert files_of(images) == made  # no byte of an answer depends on it
    altered(site.database, {"action": "renameColumn", "fieldNames": ["n"], "newName": "m"})
    renamed = found(site.database, images, table)
    assert renamed[1][1] == b'{"id":1,"m":1}'
    assert renamed == found(site.database, apart, table)
    build(images)
    assert len(files_of(images)) > len(made)
    assert found(site.database, images, table) == renamed
    altered(site.database, {"action": "addColumn", "fieldNames": ["o"], "dataType": "INT"})
    merge(site, table, {"id": 1, "m": 5, "o": 6})
    for _ in range(2):
        assert found(site.database, images, table) == found(site.database, apart, table)
        build(images)
    assert found(site.database, images, table)[1][1] == b'{"id":1,"m":5,"o":6}'


@pytest.mark.slow(reason="looks up for seconds")
def test_a_storm_of_lookups_meets_no_wrong_row(database: CatalogDatabase, site: MergeSite, images: Images) -> None:
    """Every turn sets each key's number to the turn's: a lookup sees one turn for all keys, and never goes back."""
    images.asking.builds = False
    table = create_table(database, {**QUIET})
    faults: list[object] = []
    done = threading.Event()

    def storm() -> None:
        last = 0
        while not done.is_set():
            try:
                with database.reading() as repository:
                    current = repository.tables.find(table.id) or table
                    rows = get_rows(repository, images, current, [(key,) for key in KEYS])
                turns = {row.row["n"] if row.row else 0 for row in rows}
                if len(turns) != 1 or min(turns) < last:
                    faults.append((last, turns))
                last = max(turns)
            except Exception as error:  # whatever it is, the test tells it
                faults.append(error)

    def builder() -> None:
        making = Builder(images.folder, images.warehouse, 10**9)
        while not done.is_set():
            if not making.work():
                time.sleep(0.01)

    threads = [threading.Thread(target=act, daemon=True) for act in (storm, storm, builder)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(1, 10):
            merge(site, table, *({"id": key, "n": turn} for key in KEYS))
            time.sleep(0.2)
            if turn % 3 == 0:
                compact(site, table)
            if turn == 5:
                with database.reading() as repository:
                    images.keep_only(repository.snapshots.live_run_ids())
            if turn == 7:
                for path in files_of(images):
                    path.unlink()
                images.note_use()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert faults == []
    assert files_of(images)
