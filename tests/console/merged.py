"""A table whose batches are merged as soon as they are posted, for pages that show what merges made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.merging.compactions import ask_for_compaction
from app.services.shared.executor import MergeSite
from tests.api.conftest import fields_of
from tests.services.builders import merge_staged, run_next_compaction
from tests.services.executor import PythonExecutor

HOSTILE = "<b onx=1>\"'&{{7*7}}"
FIELDS = fields_of(id="BIGINT NOT NULL", note="STRING", n="BIGINT")
MANUAL = {"num-sorted-run.compaction-trigger": "99"}


@dataclass(frozen=True)
class MergedTable:
    """One table; ``client`` speaks HTTP to the service that has ``database`` and ``warehouse`` open."""

    client: Any
    path: str
    table_id: str
    database: CatalogDatabase
    warehouse: Warehouse

    def stage(self, *records: Mapping[str, Any]) -> None:
        """Posts records."""
        self.client.post(f"{self.path}/batches", json={"records": list(records)}).raise_for_status()

    def merge(self, *records: Mapping[str, Any]) -> None:
        """Posts records and merges them."""
        self.stage(*records)
        merge_staged(self.database, self.warehouse, self.table_id)

    def compact(self) -> None:
        """Combines all runs."""
        site = MergeSite(self.database, self.warehouse, PythonExecutor(), 600)
        with self.database.transaction() as repository:
            ask_for_compaction(repository, self.table_id)
        assert run_next_compaction(site, "compactor")

    def alter(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Changes the schema."""
        self.client.post(self.path, json={"changes": list(changes)}).raise_for_status()

    def options(self) -> dict[str, str]:
        """The options that it has now."""
        reported: dict[str, str] = self.client.get(self.path).json()["schema"]["options"]
        return reported

    def snapshots(self) -> list[dict[str, Any]]:
        """Its snapshots, the newest first."""
        reported: list[dict[str, Any]] = self.client.get(f"{self.path}/snapshots").json()["snapshots"]
        return reported


Merged = Callable[..., MergedTable]
EVENTS: Sequence[Sequence[Mapping[str, Any]]] = (
    [{"id": 1, "note": "a", "n": 1}, {"id": 2, "note": "b"}],
    [{"id": 1, "note": "c", "n": 1}, {"id": 3, "note": HOSTILE}],
    [{"id": 2, "_kind": "-D"}],
)
"""Three batches: rows are added, changed and removed."""
