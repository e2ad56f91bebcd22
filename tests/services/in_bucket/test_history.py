"""History in a bucket of a real S3 server over HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.table.upkeep.damage import DamagedFile
from app.services.operating.readiness import take_warehouse
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.services.upkeep.sweeps import sweep
from tests.object_store import flip, objects_in
from tests.services.builders import create_table, merge
from tests.services.explaining.test_history import CALM, told

pytestmark = pytest.mark.slow(reason="starts an object store")
NO_GRACE = timedelta(seconds=-10)


def test_records_are_filed_found_joined_and_removed_with_their_table(site: MergeSite) -> None:
    take_warehouse(site.database, site.warehouse)
    table = create_table(site.database, CALM)
    for number in range(1, 4):
        merge(site, table, {"id": 1, "n": number}, {"id": 2, "n": 0})
        sweep(site.database, site.warehouse, NO_GRACE)
        assert told(site, table, 1) == [(one, one, one) for one in range(1, number + 1)]
    assert not [one for one in objects_in(site.warehouse) if "/staging/" in one]
    sweep(site.database, site.warehouse, NO_GRACE)
    files = [one for one in objects_in(site.warehouse) if "/history/" in one]
    assert len(files) == 1
    flip(site.warehouse, files[0], 50)
    with pytest.raises(DamagedFile, match="/history/"):
        told(site, table, 1)
    drop_table(site.database, site.warehouse, ("shop", "wide"))
    sweep(site.database, site.warehouse, NO_GRACE)
    assert not [one for one in objects_in(site.warehouse) if one.startswith(table.id)]
