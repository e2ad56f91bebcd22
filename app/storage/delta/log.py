"""Versions of a Delta log as files: each a file of actions, JSON line by line, which appears atomically.

Only the catalog decides the content of a version (``published_versions``), so any process may write it, any number of
times. Delta's PROTOCOL.md defines the form.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.core.errors import Conflict
from app.core.plan.columns.delta_schema import delta_schema
from app.core.table.published import Published
from app.files.layout import Warehouse, delta_log, sync_folder
from app.storage.delta.files import added_files, removed_file
from app.storage.published.replaced import replace_file, written_aside

ENGINE: Final = "Keyfold"
# Readers look at readerFeatures only. Writers must know all of writerFeatures (PROTOCOL.md, Table Features): this one
# keeps them from writing to a log that is not theirs.
_OURS: Final = "keyfold"
_VECTORS: Final = "deletionVectors"
# Spark goes back to no version that is older, 168 hours without it. Which versions there are is decided by
# ``delta.log-retained`` alone, which counts from when the next one came: the age of a version has no bound.
_READABLE: Final = "delta.deletedFileRetentionDuration"
Added = Mapping[str, Mapping[str, Any]]
"""The ``add`` actions of a version's files, by path."""


def version_name(version: int) -> str:
    """Return the file of a version."""
    return f"{version:020}.json"


def protocol_of(added: Added) -> dict[str, Any]:
    """Return Delta's ``protocol`` of a version with these files. Deletion vectors are required only if rows are
    hidden: some readers do not support them.
    """
    features = ["timestampNtz", *([_VECTORS] if _hides(added) else [])]
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, _OURS],
    }


def _hides(added: Added) -> bool:
    return any("deletionVector" in action for action in added.values())


def metadata_of(published: Published, added: Added) -> dict[str, Any]:
    """Return Delta's ``metaData`` of a version with these files: the visible columns; the same table for as long as
    there is one.
    """
    vectors = {"delta.enableDeletionVectors": "true"} if _hides(added) else {}
    return {
        "id": str(uuid.UUID(published.version.table_id)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(delta_schema(published.schema)),
        "partitionColumns": [],
        "configuration": {_READABLE: "interval 36500 days", **vectors},
        "createdTime": 0,
    }


def write_version(warehouse: Warehouse, published: Published, before: Published | None) -> None:
    """Add a version to the log, after ``before`` (None: it is the first, and complete); an existing one is kept.

    Raise ``DamagedFile``, ``Conflict`` if another writer has written to the log, ``OSError``.
    """
    lines = [json.dumps(action, ensure_ascii=False) for action in _actions(warehouse, published, before)]
    content = "".join(f"{line}\n" for line in lines).encode()
    version = published.version
    segments = delta_log(version.table_id, version_name(version.version))
    if not _create(warehouse, segments, content) and not _is_same_version(warehouse, segments, published):
        raise Conflict(
            f"{'/'.join(segments)} is not the version that the catalog has: another program wrote it, or the catalog is"
            " older than the warehouse; remove it and the versions after it"
        )


def _actions(warehouse: Warehouse, published: Published, before: Published | None) -> Iterable[dict[str, Any]]:
    at = _millis(published)
    added = added_files(warehouse, published)
    gone = {} if before is None else added_files(warehouse, before)
    yield {"commitInfo": _commit_info(published)}
    if before is None or protocol_of(gone) != protocol_of(added):
        yield {"protocol": protocol_of(added)}
    if before is None or metadata_of(before, gone) != metadata_of(published, added):
        yield {"metaData": metadata_of(published, added)}
    yield from ({"remove": removed_file(gone[path], at)} for path in gone if path not in added)
    yield from ({"add": added[path]} for path in added if path not in gone)


def _millis(published: Published) -> int:
    return int(published.version.committed_at.timestamp() * 1000)


def _commit_info(published: Published) -> dict[str, Any]:
    return {
        "timestamp": _millis(published),
        "operation": "WRITE",
        "operationParameters": {"mode": "Overwrite", "snapshotId": str(published.version.as_of)},
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": ENGINE,
    }


def _is_same_version(warehouse: Warehouse, segments: tuple[str, ...], published: Published) -> bool:
    """Return whether a file of the log is the version that the catalog has: with its snapshot and its time."""
    with warehouse.filesystem.open_input_stream(warehouse.path(*segments)) as source:
        first = source.read().split(b"\n", 1)[0]
    try:
        written, wanted = json.loads(first)["commitInfo"], _commit_info(published)
        return all(written[name] == wanted[name] for name in ("timestamp", "operationParameters", "engineInfo"))
    except (ValueError, KeyError, TypeError):
        return False


def _create(warehouse: Warehouse, segments: tuple[str, ...], content: bytes) -> bool:
    """Create the file atomically. Return whether it did not exist."""
    path = warehouse.path(*segments)
    if warehouse.local:
        aside = written_aside(path, content)
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(aside)
        sync_folder(os.path.dirname(path))
        return True
    # No store of pyarrow's creates exclusively; two writers at the same time write the same bytes.
    if warehouse.filesystem.get_file_info(path).is_file:
        return False
    replace_file(warehouse, segments, content)
    return True
