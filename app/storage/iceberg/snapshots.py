"""A published version in Iceberg's form: a snapshot, whose list names the manifests of the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from app.core.table.history import Run
from app.core.table.published import FileCounts, Published, PublishedVersion
from app.files.folders import at_once
from app.files.layout import Warehouse, iceberg_file
from app.storage.iceberg.avro_schemas import MANIFEST_LIST
from app.storage.iceberg.manifests import (
    Content,
    Manifest,
    avro_bytes,
    read_avro,
    run_manifest,
    write_change_manifests,
    write_manifests,
)
from app.storage.published.facts import read_facts
from app.storage.published.replaced import replace_file

Named = Mapping[str, Any]
"""What a list says of a manifest."""


def list_file(version: PublishedVersion) -> tuple[str, ...]:
    """Return the segments of a version's list."""
    return iceberg_file(version.table_id, "metadata", f"snap-{version.version}.avro")


def sequence_number(version: PublishedVersion) -> int:
    """Return Iceberg's number of a version, which grows from 1."""
    return version.version + 1


def write_snapshot(warehouse: Warehouse, published: Published, before: PublishedVersion | None) -> FileCounts:
    """Write the metadata files of a version: manifests of runs that are not in ``before``, those of changes, and the
    list. Return the counts and bytes of the files.

    Raise ``DamagedFile``, ``Unfoldable``, ``OSError``.
    """
    version = published.version
    earlier = {} if before is None else _read(warehouse, before)
    named = {run.id: [*_known(warehouse, version, run, earlier)] for run in published.runs}
    new = [run for run in published.runs if not named[run.id]]
    read_facts(warehouse, published, new)
    written = at_once(warehouse, partial(write_manifests, warehouse, published), new)
    named |= {
        run.id: [_named(version, manifest) for manifest in manifests]
        for run, manifests in zip(new, written, strict=True)
    }
    records = [manifest for run in published.runs for manifest in named[run.id]]
    records += (_named(version, manifest) for manifest in write_change_manifests(warehouse, published, before))
    header = {
        "snapshot-id": str(version.as_of),
        "sequence-number": str(sequence_number(version)),
        "format-version": "2",
    }
    replace_file(warehouse, list_file(version), avro_bytes(MANIFEST_LIST, records, header))
    return FileCounts(
        data_files=_sum(records, Content.DATA, "added_files_count"),
        rows=_sum(records, Content.DATA, "added_rows_count"),
        delete_files=_sum(records, Content.DELETES, "added_files_count"),
        deleted_rows=_sum(records, Content.DELETES, "added_rows_count"),
    )


def _known(warehouse: Warehouse, version: PublishedVersion, run: Run, earlier: Mapping[str, Named]) -> Iterator[Named]:
    """Yield the manifests of a run in the list of an earlier version."""
    for content in Content:
        name = warehouse.uri(*run_manifest(version.table_id, run.id, content))
        if name in earlier:
            yield earlier[name]


def _sum(records: Sequence[Named], content: Content, counted: str) -> int:
    return sum(record[counted] for record in records if record["content"] == content)


def _named(version: PublishedVersion, manifest: Manifest) -> Named:
    number = sequence_number(version)
    return {
        "manifest_path": manifest.uri,
        "manifest_length": manifest.size_bytes,
        "partition_spec_id": 0,
        "content": manifest.content,
        "sequence_number": number,
        "min_sequence_number": number,
        "added_snapshot_id": version.as_of,
        "added_files_count": manifest.files,
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": manifest.rows,
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }


def _read(warehouse: Warehouse, version: PublishedVersion) -> dict[str, Named]:
    """Return the manifests in the list of an earlier version, by URI; empty if the list is gone."""
    return {record["manifest_path"]: record for record in read_avro(warehouse, list_file(version))}
