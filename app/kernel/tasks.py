"""Tasks and their results: frozen values that travel to a Spark worker and back as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum
from functools import lru_cache
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from app.core.table.history import Batch, ChangelogFile, DataFile, Run
from app.core.table.schema import TableSchema
from app.core.table.total_ranges import TotalRanges
from app.core.table.upkeep.damage import DamageReason, NamedFile
from app.core.table.upkeep.forgetting import Sought
from app.core.table.upkeep.late_records import LateOfSender

LEAST_TOKEN: Final = -(2**63)
MOST_TOKEN: Final = 2**63 - 1
NO_KEYS: Final = Sought()
_REMOVALS, _EPOCH = "remembersRemovals", "epoch"
T = TypeVar("T")
Progress = Callable[[float, Mapping[str, int]], None]
"""Hears which share of a job's tasks is done, and the counts ``tasks``, ``tasksDone``, ``tasksRunning``, ``stages`` and
``stagesDone``.
"""


class Work(StrEnum):
    """The kinds of tasks."""

    MERGE = "merge"  # folds staged records into files of a new run
    COMPACT = "compact"  # combines neighbouring runs into files of a new run
    CHANGES = "changes"  # writes the changes of rows that newer runs bring
    OVERFLOW = "overflow"  # looks for a total outside its column's type
    REWRITE = "rewrite"  # writes files again without some keys
    LATE = "late"  # counts late records


@dataclass(frozen=True)
class Rewrite:
    """A file that may have rows of forgotten keys, and the folder in the warehouse for the file without them."""

    file: NamedFile
    folder: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One part of a merge, compaction or forgetting: its inputs, its range of tokens (both ends included), its outputs.

    ``schemas`` are JSON texts by number; ``schema_id`` is that of written files. ``runs`` are oldest first; the last
    ``newer`` of them are those that changes and overflow checks are about. ``output`` is the folder of new runs,
    ``changelog`` that of changes. ``now`` is the time of the work in epoch seconds. ``oldest``: nothing older lies
    below ``runs``. ``place`` is the number of the task among those that write to ``output``. ``rewrites`` are the files
    in which the keys of ``sought`` are looked for; ``schema_id`` is that of all of them.
    """

    work: Work
    table_id: str
    schemas: Mapping[str, str]
    schema_id: int
    output: str
    now: int
    batches: tuple[Batch, ...] = ()
    runs: tuple[Run, ...] = ()
    newer: int = 0
    changelog: str | None = None
    partition: str | None = None
    first_token: int = LEAST_TOKEN
    last_token: int = MOST_TOKEN
    oldest: bool = False
    row_deduplicate: bool = False
    ignored_fields: tuple[str, ...] = ()
    place: int = 0
    rewrites: tuple[Rewrite, ...] = ()
    sought: Sought = NO_KEYS

    @property
    def schema(self) -> TableSchema:
        """The schema to write under."""
        return self.schema_at(self.schema_id)

    def schema_at(self, number: int) -> TableSchema:
        """Return the schema with this number, parsed once a process."""
        return schema_of(self.schemas[str(number)])

    @property
    def share(self) -> float:
        """The share of all tokens that lie in its range."""
        return (self.last_token - self.first_token + 1) / 2**64

    @property
    def size_bytes(self) -> int:
        """The most bytes of files that it reads."""
        batches, runs = sum(batch.size_bytes for batch in self.batches), sum(run.size_bytes for run in self.runs)
        return batches + runs + sum(rewrite.file.size_bytes for rewrite in self.rewrites)


@dataclass(frozen=True)
class Job:
    """Tasks that run together. ``warehouse`` is the address of the files; ``title`` names the work in Spark's pages."""

    warehouse: str
    title: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class WrittenFile:
    """A file of state rows of one partition: ``live_rows`` excludes deleted keys, ``totals`` the
    ranges of its totals.
    """

    file: DataFile
    live_rows: int
    totals: TotalRanges
    partition: str | None = None


@dataclass(frozen=True)
class RewrittenFile:
    """A file without the keys that it had: ``rows`` are left and ``removed`` are not, ``live`` ones among them.
    ``tokens`` are the first and the last, if the file has any.
    """

    name: str
    rows: int
    removed: int
    live: int
    size_bytes: int
    digest: str
    block_digests: bytes
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Overflow:
    """A total outside the type of ``column``: ``key`` is the primary key by column, as JSON has it."""

    column: str
    key: Mapping[str, Any]
    endless: bool = False


class FailureKind(StrEnum):
    """Why a task has no result."""

    UNFOLDABLE = "unfoldable"  # the records cannot be folded; a retry cannot help
    DAMAGED = "damaged"  # an input file is damaged
    FAILED = "failed"  # anything else: a retry may succeed


@dataclass(frozen=True)
class Failure:
    """Why a task has no result: the damaged file, or the column, key (by column, as JSON has it) and batch of the
    unfoldable records, if known.
    """

    kind: FailureKind
    message: str
    file: NamedFile | None = None
    reason: DamageReason | None = None
    found: str = ""
    column: str | None = None
    key: Mapping[str, Any] | None = None
    batch_number: int | None = None


@dataclass(frozen=True)
class Result:
    """The result of a task: written files, or a failure. ``rows`` are the records or state rows that it read.

    ``rewritten`` has a place for each of the task's ``rewrites``, None if the file has none of the keys. ``late`` are
    the counts of late records.
    """

    files: tuple[WrittenFile, ...] = ()
    changes: tuple[ChangelogFile, ...] = ()
    rows: int = 0
    rewritten: tuple[RewrittenFile | None, ...] = ()
    overflow: Overflow | None = None
    late: tuple[LateOfSender, ...] = ()
    failure: Failure | None = None


def schema_text(schema: TableSchema) -> str:
    """Return the JSON of a schema as tasks carry it."""
    extra = {_REMOVALS: schema.remembers_removals, _EPOCH: schema.epoch}
    return json.dumps({**schema.to_json(), **extra}, separators=(",", ":"))


@lru_cache(maxsize=256)
def schema_of(text: str) -> TableSchema:
    """Return the schema whose JSON is ``text``."""
    body = json.loads(text)
    return replace(TableSchema.from_json(body), remembers_removals=body[_REMOVALS], epoch=body[_EPOCH])


def to_text(value: object) -> str:
    """Return a task or result as JSON text."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def from_text(kind: type[T], text: str) -> T:
    """Return the value of ``kind`` from the text of ``to_text``."""
    made: T = _built(kind, json.loads(text))
    return made


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b85encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else dict(value) if isinstance(value, Mapping) else value


def _built(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, UnionType):
        return _built(next(argument for argument in get_args(kind) if argument is not type(None)), value)
    if get_origin(kind) is tuple:
        return tuple(_built(get_args(kind)[0], item) for item in value)
    if not isinstance(kind, type):
        return value
    if is_dataclass(kind):
        return kind(**{name: _built(member_kind, value[name]) for name, member_kind in _hints(kind).items()})
    read = _READ.get(kind)
    return read(value) if read else kind(value) if issubclass(kind, Enum) else value


_READ: Mapping[type, Any] = {bytes: base64.b85decode, datetime: datetime.fromisoformat}


@lru_cache(maxsize=64)
def _hints(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
