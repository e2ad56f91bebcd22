"""Keyfold in the same harness: batches staged and merged as the worker does it, with its default compaction."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.keys import Key
from app.files.layout import data_file
from app.services.rows.lookups import Consistency, get_rows
from app.storage.images import Images
from app.storage.images.builder import Builder
from app.storage.images.folder import DEFAULT_BYTES
from bench.figures import seconds
from bench.peers.system import System, run
from bench.site import BenchSite
from bench.wide_table import COLUMNS

LOOKUPS = 200
LOADED_AT_ONCE = 1_000_000  # rows


class Keyfold(System):
    """A table of a merge site; decoding of JSON and HTTP are not in its time."""

    version = f"keyfold {version('keyfold')}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.site = BenchSite(folder)
        self.site.executor.warm_up()
        self.table = self.site.create_table("t", options={})

    def load(self, base: pa.Table) -> None:
        for first in range(0, len(base), LOADED_AT_ONCE):
            self.update(base.slice(first, LOADED_AT_ONCE))

    def update(self, batch: pa.Table) -> None:
        self.site.stage(self.table, batch)
        self.site.merge(self.table)
        self.site.compact_if_due()

    def settle(self) -> None:
        """Combine the runs that the default policy has left, so that any reader can read the table's files."""
        self.site.compact(self.table)

    def read(self) -> pa.Table:
        """The compacted files as PyArrow reads them."""
        return pa.concat_tables(pq.read_table(file, columns=list(COLUMNS)) for file in self._files())

    def _files(self) -> list[str]:
        [run] = self.site.snapshot(self.table).runs
        warehouse = self.site.merges.warehouse
        return [warehouse.path(*data_file(self.table.id, run.id, file.name)) for file in run.files]

    def build_images(self) -> bool:
        """Build what a first lookup asks for, by the builder in one thread. That its process starts is not in it."""
        images = self._images()
        images.asking.builds = False
        builder = Builder(images.folder, images.warehouse, DEFAULT_BYTES)
        threads = pa.cpu_count(), pa.io_thread_count()
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        self._want(images)
        while builder.work():
            pass
        images.close()
        pa.set_cpu_count(threads[0])
        pa.set_io_thread_count(threads[1])
        return True

    def _images(self) -> Images:
        return Images(self.folder / "images", self.site.merges.warehouse)

    def _want(self, images: Images) -> None:
        plan = self.site.plan(self.table)
        for one in self.site.snapshot(self.table).runs:
            images.want(self.table.id, one, plan.schema, plan)

    def extras(self) -> dict[str, float]:
        """A scan of the compacted files by Spark, and a lookup in them."""
        with self.site.session() as spark:
            rows = spark.read.parquet(*self._files())
            scan = seconds(lambda: rows.write.format("noop").mode("overwrite").save())
        return {"the same read by Spark": scan, "a lookup of one key": self._lookup()}

    def _lookup(self) -> float:
        """Return the mean seconds of a lookup, without HTTP, from the images."""
        images, plan = self._images(), self.site.plan(self.table)
        made = images.progress(self.table.id, self.site.snapshot(self.table).runs, plan)
        assert made.files == made.made, "a file has no image"
        keys = [(2 * number,) for number in range(LOOKUPS)]
        self._look_up(images, keys)
        taken = seconds(lambda: self._look_up(images, keys)) / LOOKUPS
        images.close()
        return taken

    def _look_up(self, images: Images, keys: Sequence[Key]) -> None:
        with self.site.merges.database.reading() as repository:
            for key in keys:
                get_rows(repository, images, self.table, [key], Consistency.MERGED)

    def close(self) -> None:
        self.site.close()


if __name__ == "__main__":
    run(Keyfold)
