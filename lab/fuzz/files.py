"""Files on the service's own disks, without a digest of them (those of before version 0.1.0 kept any)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from app.core.errors import KeyfoldError
from app.core.table.history import DataFile
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse, data_file, staging_file
from app.files.named_files import check_file, file_of_run
from app.storage.images.container import BLOCK_ROWS, Container, Damaged
from app.storage.images.requests import WANTED, read_request
from app.storage.images.states import rows_in_image, rows_in_parquet
from app.storage.staging.staged_index import load_batch
from app.storage.staging.staging import Staged
from lab.fuzz.bodies import batch_of
from lab.fuzz.tables import EVERY_TYPE
from lab.fuzz.target import Run, Target

_TOKENS = range(-3, 3)
LEAST, MOST = -(2**63), 2**63 - 1


@contextmanager
def _written(*segments: str, read: Callable[[Warehouse, bytes], object]) -> Iterator[Run]:
    """What reads a file of a warehouse that holds the input."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, *segments)
        path.parent.mkdir(parents=True, exist_ok=True)

        def run(body: bytes) -> None:
            path.write_bytes(body)
            read(Warehouse(folder), body)

        yield run


def _image(warehouse: Warehouse, _: bytes) -> None:
    image = Container(Path(warehouse.path("image")))
    for token in {*_TOKENS, *image.tokens[:20].tolist()}:
        for row in image.rows_of(token):
            image.entry(row)
    if image.meta:
        list(rows_in_image(image, [*image.tokens[: 2 * BLOCK_ROWS].tolist()]))


def _staged(warehouse: Warehouse, body: bytes) -> None:
    batch = replace(batch_of(Staged("b.parquet", len(body), 1, 0, "")), digest=None)
    rows = load_batch(warehouse, batch, EVERY_TYPE)
    for row in range(min(20, rows.rows.num_rows)):
        rows.record(row)


def _run(warehouse: Warehouse, body: bytes) -> None:
    """Looked through by ``keyfold verify``, by a lookup, and by the builder of its images."""
    stored = DataFile("part.parquet", 1, len(body), LEAST, MOST)
    file = file_of_run("t", "r", stored)
    check_file(warehouse, file)
    list(rows_in_parquet(warehouse, file, [*_TOKENS]))


def _wanted(warehouse: Warehouse, _: bytes) -> None:
    request = read_request(Path(warehouse.path(WANTED, "one.json")))
    assert request.plans is None or len(request.plans) == 2


FILES = {
    "images": Target(lambda: _written("image", read=_image), (Damaged,)),
    "staged_files": Target(lambda: _written(*staging_file("t", "b.parquet"), read=_staged), (DamagedFile,)),
    "run_files": Target(lambda: _written(*data_file("t", "r", "part.parquet"), read=_run), (DamagedFile,)),
    "wanted_images": Target(lambda: _written(WANTED, "one.json", read=_wanted), (ValueError, KeyfoldError)),
}
