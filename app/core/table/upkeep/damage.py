"""Damage: a file that the catalog names and that is missing or not as it was written (docs/damage.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from app.core.errors import ErrorCode, KeyfoldError


class FileKind(StrEnum):
    """The kind of a file that the catalog names."""

    STAGING = "staging"  # the records of one batch
    RUN = "run"  # state rows of one run
    CHANGELOG = "changelog"  # changes that one snapshot brought
    HISTORY = "history"  # records that are merged: many batches', or one batch's where it is in no other file yet


class DamageReason(StrEnum):
    """The fault of a file."""

    MISSING = "missing"  # it is not there
    WRONG_SIZE = "wrong_size"  # it is shorter or longer than it was written
    WRONG_CONTENT = "wrong_content"  # its bytes have another digest
    UNREADABLE = "unreadable"  # the system cannot read it, or its bytes mean nothing


@dataclass(frozen=True)
class NamedFile:
    """A file that the catalog names, with its size and digests.

    ``path`` is relative to the warehouse. ``digest`` is xxh3-128 of all bytes as hexadecimal digits, ``block_digests``
    xxh3-64 of each block, 8 bytes each, in order; both None if they were never computed. A staging file has
    ``batch_id`` and ``batch_number``, also once it is history, a data file ``run_id``, a changelog file
    ``snapshot_id``.
    """

    kind: FileKind
    table_id: str
    path: str
    size_bytes: int
    digest: str | None = None
    block_digests: bytes | None = field(default=None, repr=False)
    batch_id: str | None = None
    batch_number: int | None = None
    run_id: str | None = None
    snapshot_id: int | None = None

    @property
    def expected(self) -> str:
        """The expected size and digest, for restoring the file."""
        return f"{self.size_bytes} bytes" + (f", xxh3-128 {self.digest}" if self.digest else "")


class DamagedFile(KeyfoldError):
    """A file that the catalog names is missing or damaged; ``found`` describes its present content."""

    default_code = ErrorCode.DAMAGED_FILE

    def __init__(self, file: NamedFile, reason: DamageReason, found: str) -> None:
        what = _WORDS[reason].format(found)
        message = f"{file.path} {what}; restore it from a backup ({file.expected}){_ELSE[file.kind].format(file)}"
        super().__init__(message, resource_type="FILE", resource_name=file.path)
        self.file = file
        self.reason = reason
        self.found = found

    @property
    def missing(self) -> bool:
        """Whether the file is missing: then it may have been removed rightly."""
        return self.reason is DamageReason.MISSING

    @property
    def members(self) -> dict[str, str | int | None]:
        """The damage as JSON, with the members of ``GET T/damage``."""
        file = self.file
        return {
            "tableId": file.table_id,
            "file": file.path,
            "kind": file.kind,
            "reason": self.reason,
            "expected": file.expected,
            "found": self.found,
            "batchId": file.batch_id,
            "batchNumber": file.batch_number,
            "runId": file.run_id,
            "snapshotId": file.snapshot_id,
        }


_WORDS: Mapping[DamageReason, str] = {
    DamageReason.MISSING: "is missing",
    DamageReason.WRONG_SIZE: "is damaged: it has {}",
    DamageReason.WRONG_CONTENT: "is damaged: {}",
    DamageReason.UNREADABLE: "cannot be read: {}",
}
_ELSE: Mapping[FileKind, str] = {
    FileKind.STAGING: (
        ", or withdraw batch {0.batch_number} (DELETE …/batches/{0.batch_id}); until then consistency=merged answers"
    ),
    FileKind.RUN: "; until then reads that need it are refused, and all others answered",
    FileKind.CHANGELOG: "; until then changes of snapshot {0.snapshot_id} are refused, and all others answered",
    FileKind.HISTORY: "; until then, or until history begins after it, explanations that need it are refused",
}


@dataclass(frozen=True)
class Damage:
    """A known fault of a file, and the time when it was found; other members are those of its ``NamedFile``."""

    table_id: str
    path: str
    kind: FileKind
    reason: DamageReason
    expected: str
    found: str
    batch_id: str | None
    batch_number: int | None
    run_id: str | None
    snapshot_id: int | None
    found_at: datetime
