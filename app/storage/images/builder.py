"""``python -m app.storage.images.builder``: the process that makes the images of a machine's folder (decision 17).

The lock file allows only one at a time. It has one thread and low priority, and ends when there was no request for a
while.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from collections import deque
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.errors import KeyfoldError, Unavailable
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse
from app.files.named_files import file_of_run, opened_parquet
from app.files.writable import NO_ROOM
from app.storage.images.container import Damaged
from app.storage.images.lock import builders_lock
from app.storage.images.making import write_answers, write_states
from app.storage.images.requests import WANTED, ImageRequest, read_request
from app.storage.images.room import RECENT_SECONDS, Room

logger = logging.getLogger(__name__)
_IDLE_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_NICE = 15
_WRITING = "builder.writing"


class Builder:
    """Makes the requested images in ``folder``, in the order of requests; images take ``limit`` bytes at most."""

    def __init__(self, folder: Path, warehouse: Warehouse, limit: int, recent_seconds: float = RECENT_SECONDS) -> None:
        self.folder = folder
        self.warehouse = warehouse
        self.limit = limit
        self._room = Room(folder, limit, recent_seconds)
        self._waiting: deque[Path] = deque()
        self._aside = folder / _WRITING
        shutil.rmtree(self._aside, ignore_errors=True)  # leftovers of a killed builder
        for path in folder.glob("*/*/*.arrow*"):
            path.unlink(missing_ok=True)  # images of version 0.1

    def work(self) -> bool:
        """Make one requested image, if possible. Return whether there was a request."""
        if not self._waiting:  # there may be thousands: they are listed once they are all done
            self._waiting.extend(self._requests())
        while self._waiting:
            path = self._waiting.popleft()
            try:
                os.utime(path)  # if this one kills the process, the next builder begins with another
            except FileNotFoundError:  # it was withdrawn
                continue
            self._answer(path)
            return True
        return False

    def _answer(self, path: Path) -> None:
        try:
            self._make(read_request(path))
        except DamagedFile as error:
            if error.missing:  # most often its table was dropped; a lookup reports it if it is still needed
                logger.info("no image for %s: its data file is not there", path.name)
            else:
                logger.warning("no image for %s: %s", path.name, error)
        except Unavailable as error:
            logger.warning("no image for %s now: %s", path.name, error.message)
        except (OSError, ValueError, ArithmeticError, KeyfoldError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                cause = "the data folder's disk is full; make room, or lower KEYFOLD_IMAGE_BYTES"
                logger.warning("no image for %s: %s", path.name, cause)
            elif not isinstance(error, FileNotFoundError) or path.exists():  # it was not withdrawn meanwhile
                logger.warning("no image for %s", path.name, exc_info=True)  # lookups continue with the Parquet file
        path.unlink(missing_ok=True)

    def _requests(self) -> list[Path]:
        requests = []
        for path in (self.folder / WANTED).glob("*.json"):
            try:
                requests.append((path.stat().st_mtime, path))
            except FileNotFoundError:
                continue
        return [path for _, path in sorted(requests)]

    def _make(self, request: ImageRequest) -> None:
        place = request.name.path(self.folder)
        if place.exists():
            return
        name = request.name
        with opened_parquet(self.warehouse, file_of_run(name.table_id, name.run_id, request.file)) as source:
            if not self._fits(sum(source.metadata.row_group(i).total_byte_size for i in range(source.num_row_groups))):
                return
            self._aside.mkdir(parents=True, exist_ok=True)
            aside = self._aside / f"{name.form}.{os.getpid()}"
            try:
                self._write(source, aside, request)
                size = aside.stat().st_size
                if self._fits(size):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    aside.replace(place)
                    self._room.take(size)
            finally:
                aside.unlink(missing_ok=True)

    def _fits(self, size: int) -> bool:
        fits = self._room.fits(size)
        if not fits:
            logger.info("images in use leave no room for %d bytes more; KEYFOLD_IMAGE_BYTES is %d", size, self.limit)
        return fits

    def _write(self, source: pq.ParquetFile, path: Path, request: ImageRequest) -> None:
        plans = request.plans
        if plans is None:
            write_states(source, path)
            return
        if plans[1].answer_form != request.name.form:
            raise Damaged(f"the request of form {request.name.form} asks for another one")
        write_answers(source, path, *plans)


def main() -> None:
    """Build until there was no request for a while. The first line of the input has the arguments: a command line is
    public, and must not contain a warehouse's credentials.
    """
    wanted = json.loads(sys.stdin.readline())
    folder = Path(wanted["folder"])
    os.nice(_NICE)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with builders_lock(folder) as locked:
        if locked:
            build(Builder(folder, Warehouse(wanted["warehouse"]), wanted["limit"]))


def build(builder: Builder, idle_seconds: float = _IDLE_SECONDS) -> None:
    """Build until there was no request for ``idle_seconds``."""
    last = time.monotonic()
    while time.monotonic() - last < idle_seconds:
        if builder.work():
            last = time.monotonic()
        else:
            time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main()
