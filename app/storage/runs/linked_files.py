"""Put files into a second folder: linked on a disk, copied in a bucket."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from app.files.folders import at_once
from app.files.layout import Warehouse, sync_folder, sync_new_folders


def link_files(warehouse: Warehouse, old: tuple[str, ...], new: tuple[str, ...], names: Sequence[str]) -> None:
    """Put the files ``names`` of folder ``old`` into folder ``new``, too, durably. Raise ``OSError``."""
    if not names:
        return
    if not warehouse.is_store:
        warehouse.filesystem.create_dir(warehouse.path(*new), recursive=True)

    def link(name: str) -> None:
        source, target = warehouse.path(*old, name), warehouse.path(*new, name)
        if not warehouse.local:
            warehouse.filesystem.copy_file(source, target)
            return
        try:
            os.link(source, target)
        except OSError:  # a file system without links
            shutil.copyfile(source, target)
            sync_folder(target)

    at_once(warehouse, link, names)
    if warehouse.local:
        sync_folder(warehouse.path(*new))
        sync_new_folders(warehouse, *new)
