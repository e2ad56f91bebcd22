"""History and forgetting in a bucket of a real S3 server over HTTP."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from app.core.table.history import Table
from app.core.table.upkeep.damage import DamagedFile
from app.core.table.upkeep.forgetting import ForgettingState
from app.files.layout import Warehouse
from app.services.explaining.history import file_history
from app.services.operating.readiness import take_warehouse
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.services.upkeep.forgettings import end_forgettings
from app.services.upkeep.sweeps import sweep
from tests.object_store import flip, objects_in
from tests.services.builders import create_table, merge
from tests.services.explaining.test_history import CALM, reported
from tests.services.upkeep.forgetting import (
    ADA,
    BOB,
    ENGINES,
    STREET,
    forgotten,
    known,
    merged,
    people,
    person,
    posted,
    row,
)

pytestmark = pytest.mark.slow(reason="starts an object store")
NO_GRACE = timedelta(seconds=-10)


def test_records_are_filed_found_joined_and_removed_with_their_table(site: MergeSite) -> None:
    take_warehouse(site.database, site.warehouse)
    table = create_table(site.database, CALM)
    for number in range(1, 4):
        merge(site, table, {"id": 1, "n": number}, {"id": 2, "n": 0})
        sweep(site.database, site.warehouse, NO_GRACE)
        assert reported(site, table, 1) == [(one, one, one) for one in range(1, number + 1)]
    assert not [one for one in objects_in(site.warehouse) if "/staging/" in one]
    sweep(site.database, site.warehouse, NO_GRACE)
    files = [one for one in objects_in(site.warehouse) if "/history/" in one]
    assert len(files) == 1
    flip(site.warehouse, files[0], 50)
    with pytest.raises(DamagedFile, match="/history/"):
        reported(site, table, 1)
    drop_table(site.database, site.warehouse, ("shop", "wide"))
    sweep(site.database, site.warehouse, NO_GRACE)
    assert not [one for one in objects_in(site.warehouse) if one.startswith(table.id)]


def holding(warehouse: Warehouse, table: Table) -> list[str]:
    """The objects of the table that hold what is Ada's."""
    found = []
    for name in objects_in(warehouse):
        if name.startswith(table.id) and name.endswith(".parquet"):
            with warehouse.filesystem.open_input_file(warehouse.path(name)) as source:
                if STREET in repr(pq.ParquetFile(source).read().to_pylist()):
                    found.append(name)
    return found


def test_objects_are_written_again_copied_and_removed(site: MergeSite, images: Images) -> None:
    take_warehouse(site.database, site.warehouse)
    table = people(site, {**ENGINES["deduplicate"], "changelog-producer": "lookup"})
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    file_history(site.database, site.warehouse, table)
    merged(site, table, person(ADA, 2, STREET), person(BOB, 2))
    posted(site, person(ADA, 3, STREET), person(BOB, 3))
    assert len(holding(site.warehouse, table)) >= 6
    one = forgotten(site, table)
    assert (row(site, images, table, ADA), row(site, images, table, BOB)) == (None, person(BOB, 3))
    for _ in range(2):
        sweep(site.database, site.warehouse, NO_GRACE)
    assert holding(site.warehouse, table) == []
    end_forgettings(site, NO_GRACE)
    assert known(site, one).state is ForgettingState.GONE
    assert row(site, images, table, BOB, latest=False) == person(BOB, 2)
