"""What the merge executor is asked to do, as frozen values: merges, compactions, changelogs, overflow checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.core.plan.merge_plan import MergePlan

ROWS_PER_RANGE: Final = 1_000_000  # what one task sorts in memory with ease


@dataclass(frozen=True)
class StoredFile:
    """One data file: its URI and the (inclusive) range of its tokens."""

    uri: str
    min_token: int
    max_token: int


@dataclass(frozen=True)
class StoredRun:
    """One run: the plan under which it was written, and its files."""

    plan: MergePlan
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class FileSizes:
    """How much a job reads and how large its files shall be: bytes and rows in all, bytes of one file."""

    rows: int
    size_bytes: int
    target_file_bytes: int

    @property
    def ranges(self) -> int:
        """The power of two of token ranges that keeps files near their target size and tasks small; it follows the
        table as it grows.
        """
        count = 1
        while count * ROWS_PER_RANGE < self.rows or count * self.target_file_bytes < self.size_bytes:
            count *= 2
        return count


@dataclass(frozen=True)
class MergeJob:
    """Which records to fold: the URIs of the staging files with their batch numbers; ``output`` is the URI of the
    folder of the new runs, ``now`` the time of the merge in epoch seconds.

    With ``input_changelog`` the records themselves are also written, below that URI (merge-semantics §8.2).
    ``distinct_keys``: no key comes twice in all of the batches, so that each record is folded by itself.
    """

    plan: MergePlan
    batches: Mapping[str, int]
    sizes: FileSizes
    output: str
    now: int
    input_changelog: str | None = None
    distinct_keys: bool = False


@dataclass(frozen=True)
class CompactionJob:
    """Which neighbouring runs to combine, oldest first, into runs below the URI ``output``.

    ``oldest``: nothing older lies below, so rows that only hide older ones can go where the plan allows it; ``now``
    (epoch seconds) tells which are old enough.
    """

    plan: MergePlan
    runs: tuple[StoredRun, ...]
    sizes: FileSizes
    output: str
    now: int
    oldest: bool


@dataclass(frozen=True)
class ChangesJob:
    """The changes of rows that ``newer`` runs bring on top of ``older`` ones, written below the URI ``output``.

    Only keys of ``newer`` can change. With ``row_deduplicate`` a row that stays equal, ``ignored_fields`` left out of
    the comparison, gives no change (merge-semantics §8.3, §8.4).
    """

    plan: MergePlan
    older: tuple[StoredRun, ...]
    newer: tuple[StoredRun, ...]
    sizes: FileSizes
    output: str
    row_deduplicate: bool = False
    ignored_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class OverflowJob:
    """Whether over all ``runs`` (oldest first) a total of a key of the newest, which was written under ``plan``, leaves
    its column's type (merge-semantics A.7). Its result is the state row of such a key.
    """

    plan: MergePlan
    runs: tuple[StoredRun, ...]


Job = MergeJob | CompactionJob | ChangesJob | OverflowJob
Result = Mapping[str, Any] | None  # of an OverflowJob what it found; every other job writes files, and returns None
Progress = Callable[[float, Mapping[str, int]], None]
"""Hears the fraction of the tasks known so far that are done (it falls when Spark plans further stages), and the counts
``tasks``, ``tasksDone``, ``tasksRunning``, ``stages``, ``stagesDone`` of the job's queries so far."""
