"""Keyfold as a data source of Spark 4: ``spark.read.format("keyfold")`` and the same of writes and streams.

Register it once in a session: ``spark.dataSource.register(KeyfoldSource)``. Executors need this package, too.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from keyfold_client.arrow import STREAM, as_stream, reader_of
from keyfold_client.errors import Misuse, Refused
from keyfold_client.pieces import PIECE_BYTES, PIECE_RECORDS, Piece
from keyfold_client.sync.client import Client
from keyfold_client.sync.table import Table
from keyfold_client.values import to_text

PATIENCE_SECONDS: Final = 600.0  # that a task asks again for: a task that fails costs more
ROWS_OF_PARTITION: Final = 250_000
MOST_PARTITIONS: Final = 256
_LEAST_TOKEN: Final = -(2**63)
_TOKENS: Final = 2**64
_KIND, _SNAPSHOT = "_kind", "_snapshot"
_NO_ROWS: Final = (1, 0)  # an empty range of tokens: what is answered are the columns alone
_PAGE_CHANGES: Final = "10000"
_OPTIONS: Final = frozenset(
    {
        *("url", "token", "path", "columns", "filter", "pushfilters", "asof", "partitions"),
        *("changes", "since", "idempotencykey"),
    }
)
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True)
class Settings:
    """The options of a read or a write."""

    url: str
    token: str | None
    table: str
    columns: tuple[str, ...] | None
    filters: tuple[str, ...]
    pushes_filters: bool
    as_of: str | None
    partitions: int | None
    changes: bool
    since: int | None
    idempotency_key: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Return what the options say. Raise ``Misuse`` for unknown ones, and for a missing URL or table."""
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - _OPTIONS - _OF_SPARK):
            raise Misuse(f"unknown options: {', '.join(unknown)}; options are {', '.join(sorted(_OPTIONS))}")
        if missing := [name for name in ("url", "path") if not given.get(name)]:
            raise Misuse(f"missing: {', '.join(missing)}; write .option('url', 'http://…').load('database.table')")
        numbers = {name: _number(given, name) for name in ("partitions", "since")}
        return cls(
            url=given["url"],
            token=given.get("token"),
            table=given["path"],
            columns=tuple(name.strip() for name in given["columns"].split(",")) if given.get("columns") else None,
            filters=tuple(line for line in given.get("filter", "").splitlines() if line),
            pushes_filters=given.get("pushfilters", "").lower() == "true",
            as_of=given.get("asof"),
            partitions=numbers["partitions"],
            changes=given.get("changes", "").lower() == "true",
            since=numbers["since"],
            idempotency_key=given.get("idempotencykey"),
        )

    def client(self) -> Client:
        """Return a client of the service."""
        return Client(self.url, self.token, patience_seconds=PATIENCE_SECONDS)


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise Misuse(f"{name} is a whole number from 1 on, not {text!r}")
    return int(text)


class KeyfoldSource(DataSource):
    """``format("keyfold")``."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` takes."""
        return "keyfold"

    @property
    def _settings(self) -> Settings:
        return Settings.of(dict(self.options))

    def schema(self) -> StructType:
        """Return the columns of the table; of changes their kind and snapshot, too."""
        settings = self._settings
        with settings.client() as client:
            columns, _ = _pinned(client.table(settings.table), settings)
        if settings.changes:
            columns = pa.schema([*columns, pa.field(_KIND, pa.string()), pa.field(_SNAPSHOT, pa.int64())])
        return from_arrow_schema(columns, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a table of one moment."""
        if self._settings.changes:
            raise Misuse("changes are read as a stream: spark.readStream")
        return (_PushingReader if self._settings.pushes_filters else _Reader)(self._settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return what reads the changes of a table."""
        if not self._settings.changes:
            raise Misuse("a stream reads changes: write .option('changes', 'true')")
        return _Changes(self._settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        """Return what writes a job's rows, each of its tasks once."""
        if overwrite:
            raise Misuse("records are added to a table: write .mode('append')")
        settings = self._settings
        return _Writer(settings, settings.idempotency_key or f"spark-{uuid.uuid4().hex}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """Return what writes the rows of a streaming query, each of its epochs once."""
        if overwrite:
            raise Misuse("records are added to a table: write .outputMode('append') or 'update'")
        return _StreamWriter(self._settings)


def _pinned(table: Table, settings: Settings) -> tuple[pa.Schema, int]:
    """Return the columns that are read, and the snapshot; 0 where there is none."""
    scan = table.scan(settings.columns, as_of=settings.as_of, consistency=_merged(settings.as_of), tokens=_NO_ROWS)
    answer = scan.answer()
    return reader_of(answer.content).schema, int(answer.headers.get("Keyfold-Snapshot") or 0)


def _merged(as_of: str | None) -> str | None:
    return "merged" if as_of is None else None


@dataclass
class _Share(InputPartition):
    """A range of tokens of one snapshot."""

    snapshot: int
    first: int
    last: int


class _Reader(DataSourceReader):
    def __init__(self, settings: Settings, schema: StructType) -> None:
        self._settings, self._schema = settings, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return shares of the table as it is now; all tasks read the same snapshot."""
        with self._settings.client() as client:
            table = client.table(self._settings.table)
            _, snapshot = _pinned(table, self._settings)
            if not snapshot:
                return []
            rows = table.count(as_of=snapshot)
        count = self._settings.partitions or min(MOST_PARTITIONS, -(-rows // ROWS_OF_PARTITION) or 1)
        bounds = [_LEAST_TOKEN + _TOKENS * number // count for number in range(count + 1)]
        return [_Share(snapshot, first, end - 1) for first, end in itertools.pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        settings = self._settings
        if not isinstance(partition, _Share):  # what Spark makes of none
            return
        columns = to_arrow_schema(self._schema, timezone="UTC")
        with settings.client() as client:
            table = client.table(settings.table)
            tokens = (partition.first, partition.last)
            scan = table.scan(self._schema.names, filter=settings.filters, as_of=partition.snapshot, tokens=tokens)
            for batch in scan.reader():
                yield _cast(batch, columns)


_COMPARED: Final[Mapping[type[Filter], str]] = {
    EqualTo: "eq",
    GreaterThan: "gt",
    GreaterThanOrEqual: "gte",
    LessThan: "lt",
    LessThanOrEqual: "lte",
}
_NULL: Final[Mapping[type[Filter], str]] = {IsNull: "is.null", IsNotNull: "is.not_null"}


class _PushingReader(_Reader):
    """One that is told the filters of a query. Spark takes it only where ``spark.sql.python.filterPushdown.enabled`` is
    on, and refuses it else: so it is an option.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Have the service leave out rows. Yield all filters: Spark still looks at each row that comes."""
        pushed = [text for one in filters if (text := _text_of(one)) is not None]
        self._settings = replace(self._settings, filters=(*self._settings.filters, *pushed))
        yield from filters


def _text_of(asked: Filter) -> str | None:
    """Return a filter as the service has it; None for one that it may see otherwise than Spark."""
    path: tuple[str, ...] = getattr(asked, "attribute", ())
    value = getattr(asked, "value", None)
    if len(path) != 1 or "." in path[0]:
        return None
    if type(asked) in _NULL:
        return f"{path[0]}.{_NULL[type(asked)]}"
    operator = _COMPARED.get(type(asked))
    whole = isinstance(value, (int, Decimal, date)) and not isinstance(value, (bool, datetime))
    if operator is None or not (whole or (operator == "eq" and isinstance(value, str))):
        return None
    return f"{path[0]}.{operator}.{to_text(value)}"


def _cast(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns that Spark expects; null for those that they do not have."""
    known = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in known else pa.nulls(len(batch), field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _store(
    settings: Settings, name: str, batches: Iterator[pa.RecordBatch], *, named_by_user: bool = False
) -> WriterCommitMessage:
    """Store the rows of one task under ``name``: once, however often the task runs.

    A task that runs again may have its rows in another order. So rows are cut by their keys, not by their places: each
    share is a batch that has the same rows each time, and one that is stored already is left alone. A name that a user
    gave may stand before other rows the next time, which must not get lost: then what the rows are is a part of it.
    """
    rows = [batch for batch in batches if batch.num_rows]
    if not rows:
        return WriterCommitMessage()
    whole = pa.Table.from_batches(rows)
    count = max(1, -(-whole.num_rows // PIECE_RECORDS), -(-whole.nbytes // PIECE_BYTES))
    with settings.client() as client:
        table = client.table(settings.table)
        shares = [whole] if count == 1 else list(_by_key(whole, table.schema().primary_key, count))
        for number, share in enumerate(shares):
            if not share.num_rows:
                continue
            key = f"{name}-{number}-of-{count}" + (f"-{_digest(share):x}" if named_by_user else "")
            try:
                table.store(Piece(as_stream(share), share.num_rows, STREAM), key)
            except Refused as refused:
                if refused.code != "idempotency_key_reused":
                    raise
    return WriterCommitMessage()


def _by_key(rows: pa.Table, key: Sequence[str], count: int) -> Iterator[pa.Table]:
    """Yield the rows in ``count`` shares by the hash of their keys, those of a share in their order."""
    hashes = _hashes(rows.select([name for name in key if name in rows.column_names])) % count
    for number in range(count):
        yield rows.filter(pa.array(hashes == number))


def _hashes(rows: pa.Table) -> npt.NDArray[np.uint64]:
    """Return a hash of each row, the same in every process."""
    hashes: npt.NDArray[np.uint64] = pd.util.hash_pandas_object(rows.to_pandas(), index=False).to_numpy()
    return hashes


def _digest(rows: pa.Table) -> int:
    """Return a digest of the rows in whatever order."""
    return int(_hashes(rows).sum(dtype=np.uint64))


class _Writer(DataSourceArrowWriter):
    def __init__(self, settings: Settings, job: str) -> None:
        self._settings, self._job = settings, job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of a task; they are durable when it returns."""
        named_by_user = self._settings.idempotency_key is not None
        name = f"{self._job}-{_task().partitionId()}"
        return _store(self._settings, name, iterator, named_by_user=named_by_user)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of a task of an epoch; they are durable when it returns."""
        task = _task()
        query, epoch = (task.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if query is None or epoch is None:
            raise Misuse("Spark does not say which query and epoch this is: rows could count twice")
        return _store(self._settings, f"spark-{query}-{epoch}-{task.partitionId()}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the rows are durable."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the epoch is run again, and what is stored counts once."""


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise Misuse("rows are written by the tasks of a Spark job")
    return task


@dataclass
class _Snapshots(InputPartition):
    """Snapshots from the first to the last, both included."""

    first: int
    last: int


class _Changes(DataSourceStreamReader):
    """Offsets are numbers of snapshots: all changes up to it are read."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self._settings, self._schema = settings, schema

    def _current(self) -> int:
        with self._settings.client() as client:
            return int(client.table(self._settings.table).stats()["snapshotId"] or 0)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return where a new query begins: at the snapshot ``since``, else behind the current one."""
        since = self._settings.since
        return {"snapshot": self._current() if since is None else since - 1}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: ARG002, N802
        """Return the last snapshot."""
        return {"snapshot": self._current()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return what is between two offsets, as one task: changes come in their order."""
        first, last = start["snapshot"] + 1, end["snapshot"]
        return [_Snapshots(first, last)] if first <= last else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes, page after page. Raise ``Refused`` where they are not kept any more."""
        snapshots, columns = cast("_Snapshots", partition), to_arrow_schema(self._schema, timezone="UTC")
        params = {"fromSnapshot": str(snapshots.first), "toSnapshot": str(snapshots.last), "maxResults": _PAGE_CHANGES}
        with self._settings.client() as client:
            table = client.table(self._settings.table)
            while True:
                answer = table.page_of_changes(params)
                for batch in reader_of(answer.content):
                    yield _cast(batch, columns)
                token = answer.headers.get("Next-Page-Token")
                if token is None:
                    return
                params["pageToken"] = token

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the service keeps changes as long as the table says."""
