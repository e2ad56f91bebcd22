"""Images: data files decoded for lookups on this machine, memory-mapped (design §5)."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.history import DataFile, Run
from app.core.table.keys import Key, same_key
from app.core.table.records import TOKEN_COLUMN
from app.storage.layout import Warehouse, data_file

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0
StateRow = Mapping[str, Any]


class Image:
    """One decoded data file: its rows sorted by token, found by binary search."""

    def __init__(self, table: pa.Table) -> None:
        self._rows = table
        self._tokens = np.asarray(table.column(TOKEN_COLUMN).to_numpy(), dtype=np.int64)

    def find(self, token: int, key_names: tuple[str, ...], key: Key) -> StateRow | None:
        """The state row of ``key``; None if the file has none. Keys with equal tokens are told apart by their
        values.
        """
        first = int(np.searchsorted(self._tokens, token, side="left"))
        last = int(np.searchsorted(self._tokens, token, side="right"))
        for row in self._rows.slice(first, last - first).to_pylist():
            if same_key(tuple(row[name] for name in key_names), key):
                return dict(row)
        return None


class Images:
    """The images of this machine, in ``folder``; made in the background, shared by all processes through the files.

    A data file without an image is served from the row groups of its Parquet file that can hold the token.
    """

    def __init__(self, folder: Path, warehouse: Warehouse, workers: int = 1) -> None:
        self.folder = folder
        self.warehouse = warehouse
        self._open: dict[str, Image] = {}
        self._wanted: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._builders = ThreadPoolExecutor(workers, thread_name_prefix="image")

    def close(self) -> None:
        """Stop building; images that are begun are left out."""
        self._closed.set()
        self._builders.shutdown(wait=True, cancel_futures=True)

    def start_sweeping(self, live_runs: Callable[[], set[tuple[str, str]]]) -> None:
        """Drop, every few minutes, the images of runs that no snapshot names; ``live_runs`` gives (table, run) ids."""

        def sweep() -> None:
            while not self._closed.wait(SWEEP_SECONDS):
                try:
                    self.keep_only(live_runs())
                except Exception:
                    logger.warning("images could not be swept; tried again later", exc_info=True)

        threading.Thread(target=sweep, name="image-sweep", daemon=True).start()

    def keep_only(self, live_runs: set[tuple[str, str]]) -> None:
        """Remove the images of all other runs; lookups that hold one go on with it."""
        for folder in self.folder.glob("*/*"):
            if (folder.parent.name, folder.name) not in live_runs:
                shutil.rmtree(folder, ignore_errors=True)
        for path in list(self._open):
            parent = Path(path).parent
            if (parent.parent.name, parent.name) not in live_runs:
                self._open.pop(path, None)

    def find(self, table_id: str, run: Run, token: int, key_names: tuple[str, ...], key: Key) -> StateRow | None:
        """The state row of ``key`` in a run; None if the run has none."""
        for file in run.files:
            if file.min_token <= token <= file.max_token:
                row = self._find_in(table_id, run, file, token, key_names, key)
                if row is not None:
                    return row
        return None

    def _find_in(
        self, table_id: str, run: Run, file: DataFile, token: int, key_names: tuple[str, ...], key: Key
    ) -> StateRow | None:
        image = self._opened(table_id, run, file)
        if image is None:
            self.want(table_id, run)
            image = Image(self._row_groups(table_id, run, file, token))
        return image.find(token, key_names, key)

    def _path(self, table_id: str, run: Run, file: DataFile) -> Path:
        return self.folder / table_id / run.id / f"{file.name}.arrow"

    def _opened(self, table_id: str, run: Run, file: DataFile) -> Image | None:
        path = self._path(table_id, run, file)
        image = self._open.get(str(path))
        if image is None and path.exists():
            image = _read(path)
            if image is not None:
                self._open[str(path)] = image
        return image

    def _row_groups(self, table_id: str, run: Run, file: DataFile, token: int) -> pa.Table:
        """The row groups of the Parquet file whose token range holds ``token``."""
        path = self.warehouse.path(*data_file(table_id, run.id, file.name))
        with self.warehouse.filesystem.open_input_file(path) as source:
            parquet = pq.ParquetFile(source)
            groups = [group for group in range(parquet.num_row_groups) if _holds(parquet, group, token)]
            return parquet.read_row_groups(groups)

    def want(self, table_id: str, run: Run) -> None:
        """Have the images of a run made in the background, unless they are made or under way."""
        for file in run.files:
            path = self._path(table_id, run, file)
            with self._lock:
                if str(path) in self._wanted or path.exists():
                    continue
                self._wanted.add(str(path))
            self._builders.submit(self._build, table_id, run, file)

    def _build(self, table_id: str, run: Run, file: DataFile) -> None:
        path = self._path(table_id, run, file)
        try:
            rows = pq.read_table(
                self.warehouse.path(*data_file(table_id, run.id, file.name)),
                filesystem=self.warehouse.filesystem,
                partitioning=None,  # the folders of partitions are no columns
            ).combine_chunks()
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f"{path.name}.{os.getpid()}.writing")
            with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            os.replace(aside, path)
        except OSError:
            # Lookups go on from the Parquet file; a table that was just dropped takes its files along.
            logger.warning("no image of run %s, file %s", run.id, file.name, exc_info=True)
        finally:
            with self._lock:
                self._wanted.discard(str(path))


def _read(path: Path) -> Image | None:
    """The image in the file; None, and the file is removed, if a power cut left it broken."""
    try:
        with pa.memory_map(str(path)) as source:
            return Image(pa.ipc.open_file(source).read_all())
    except (pa.ArrowInvalid, OSError):
        logger.warning("the image %s cannot be read and is made again", path, exc_info=True)
        path.unlink(missing_ok=True)
        return None


def _holds(parquet: pq.ParquetFile, group: int, token: int) -> bool:
    statistics = parquet.metadata.row_group(group).column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= token <= statistics.max)
