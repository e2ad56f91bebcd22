"""What is told of a damaged file: which, what is wrong, what it should be, and what to do."""

from __future__ import annotations

import pytest

from app.core.errors import ErrorCode
from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind, NamedFile

OWNERS = {"batch_id": "b1", "batch_number": 7, "run_id": "r1", "snapshot_id": 3}


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("reason", DamageReason)
def test_every_damage_names_the_file_and_what_to_restore(kind: FileKind, reason: DamageReason) -> None:
    file = NamedFile(kind, "t1", "t1/staging/f.parquet", 120, "0f" * 16, **OWNERS)
    error = DamagedFile(file, reason, "what was found")
    assert (error.code, error.resource_type, error.resource_name) == (ErrorCode.DAMAGED_FILE, "FILE", file.path)
    assert error.message.startswith(f"{file.path} is ") or error.message.startswith(f"{file.path} cannot be read: ")
    assert f"restore it from a backup (120 bytes, xxh3-128 {'0f' * 16})" in error.message
    assert "until then" in error.message
    assert error.missing is (reason is DamageReason.MISSING)
    assert error.missing or "what was found" in error.message
    assert error.members["kind"] == kind.value
    assert error.members["expected"] == file.expected


def test_the_ways_out_name_the_batch_and_the_snapshot() -> None:
    reported = {
        kind: DamagedFile(NamedFile(kind, "t1", "f", 1, **OWNERS), DamageReason.MISSING, "").message
        for kind in FileKind
    }
    assert "withdraw batch 7 (DELETE …/batches/b1)" in reported[FileKind.STAGING]
    assert "changes of snapshot 3 are refused" in reported[FileKind.CHANGELOG]


def test_a_file_without_digest_is_reported_by_its_size() -> None:
    assert NamedFile(FileKind.RUN, "t1", "f", 120).expected == "120 bytes"
