"""A worker whose clock is an hour ahead of the file system's: what a merge under way has written is not old to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse, run_folder
from app.files.writable import claim
from lab.faults.places import Clock
from tests.services.builders import create_table

SWEEP = """
import sys
from datetime import UTC, datetime
from app.catalog.database import CatalogDatabase
from app.services.upkeep.sweeps import sweep
from app.files.layout import Warehouse
database = CatalogDatabase(sys.argv[1])
print(datetime.now(UTC).timestamp(), sweep(database, Warehouse(sys.argv[2], marked=True)))
database.close()
"""


@pytest.mark.slow(reason="starts a process")
def test_a_young_file_is_young_by_the_file_systems_clock(
    database: CatalogDatabase, catalog_url: str, tmp_path: Path
) -> None:
    clock = Clock.made(tmp_path)
    if clock.why_not:
        pytest.skip(clock.why_not)
    warehouse = Warehouse(str(tmp_path / "warehouse"), marked=True)
    claim(warehouse)
    table = create_table(database)
    folders = [Path(warehouse.path(*run_folder(table.id, name))) for name in ("young", "old")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "part-00000.parquet").write_bytes(b"rows")
    for path in (folders[1] / "part-00000.parquet", folders[1]):
        os.utime(path, (path.stat().st_mtime - 4000,) * 2)
    command = [sys.executable, "-c", SWEEP, catalog_url, warehouse.root]
    environment = {**os.environ, **clock.environment(tmp_path)}
    with clock.ahead(1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    told, removed = done.stdout.split()
    assert float(told) > folders[0].stat().st_mtime + 3000, "its clock is ahead"
    assert (removed, [folder.exists() for folder in folders]) == ("1", [True, False])
