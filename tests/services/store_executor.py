"""Merges without Spark in an object store: what Spark does with ``s3a://``, done by ``PythonExecutor`` in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.core.plan.jobs import Job, Progress, Result, StoredRun
from app.storage.layout import Warehouse
from tests.object_store import put
from tests.services.executor import PythonExecutor


class StoreExecutor(PythonExecutor):
    """What a job reads is fetched into ``folder`` each time, and what it has written is put into the store."""

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        super().__init__()
        self._warehouse = warehouse
        self._folder = folder
        self._put: set[Path] = set()

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        here = {name: put_here(self, getattr(job, name)) for name, put_here in _PLACES.items() if hasattr(job, name)}
        found = super().run(tag, replace(job, **here), report)
        for path in set(self._folder.rglob("*.parquet")) - self._put:
            put(self._warehouse, str(path.relative_to(self._folder)), path.read_bytes())
            self._put.add(path)
        return found

    def place_of(self, uri: str | None) -> str | None:
        """Where what ``uri`` names is written first."""
        return None if uri is None else f"file://{self._folder / self._key(uri)}"

    def fetched(self, uri: str) -> str:
        """Where what ``uri`` names is to be read."""
        key = self._key(uri)
        place = self._folder / key
        place.parent.mkdir(parents=True, exist_ok=True)
        with self._warehouse.filesystem.open_input_file(self._warehouse.path(key)) as source:
            place.write_bytes(source.read())
        self._put.add(place)
        return f"file://{place}"

    def fetched_batches(self, batches: Mapping[str, int]) -> Mapping[str, int]:
        """Staging files with their numbers."""
        return {self.fetched(uri): number for uri, number in batches.items()}

    def fetched_runs(self, runs: Sequence[StoredRun]) -> tuple[StoredRun, ...]:
        """All files of runs."""
        return tuple(
            replace(run, files=tuple(replace(file, uri=self.fetched(file.uri)) for file in run.files)) for run in runs
        )

    def _key(self, uri: str) -> str:
        start = f"s3a://{self._warehouse.path()}/"
        assert uri.startswith(start), uri
        return uri.removeprefix(start)


_PLACES: dict[str, Callable[[StoreExecutor, Any], Any]] = {
    "batches": StoreExecutor.fetched_batches,
    "runs": StoreExecutor.fetched_runs,
    "older": StoreExecutor.fetched_runs,
    "newer": StoreExecutor.fetched_runs,
    "output": StoreExecutor.place_of,
    "input_changelog": StoreExecutor.place_of,
}
