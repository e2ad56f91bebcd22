"""Small files that are there as a whole or not at all: of a Delta log, of Iceberg's metadata."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress

from app.files.layout import Warehouse, sync_folder


def replace_file(warehouse: Warehouse, segments: tuple[str, ...], content: bytes) -> None:
    """Write a file, in the place of one that is there: readers see the one or the other, as a whole."""
    path = warehouse.path(*segments)
    if warehouse.local:
        os.replace(written_aside(path, content), path)
        sync_folder(os.path.dirname(path))
        return
    if not warehouse.is_store:
        warehouse.filesystem.create_dir(os.path.dirname(path))
    with warehouse.filesystem.open_output_stream(path) as sink:
        sink.write(content)


def written_aside(path: str, content: bytes) -> str:
    """Return a durable file in the folder of ``path`` that holds ``content``.

    Readers pass over its name: it has a dot in front.
    """
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        sync_folder(os.path.dirname(folder))
    aside = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    return aside
