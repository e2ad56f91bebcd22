"""Keyfold as a data source of Spark 4: ``spark.read.format("keyfold")`` and the same of writes and streams.

Register it once in a session: ``spark.dataSource.register(KeyfoldSource)``. Executors need this package, too.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import blake2b
from inspect import signature
from typing import Any, Final, cast

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
from keyfold_client.spark_options import FOLLOWED, OF_ALL, READ, WRITTEN, Settings
from keyfold_client.sync.table import Table
from keyfold_client.values import to_text

ROWS_OF_PARTITION: Final = 250_000
MOST_PARTITIONS: Final = 256
_LEAST_TOKEN: Final = -(2**63)
_TOKENS: Final = 2**64
_KIND, _SNAPSHOT = "_kind", "_snapshot"
_NO_ROWS: Final = (1, 0)  # an empty range of tokens: what is answered are the columns alone
_PAGE_CHANGES: Final = "10000"


class KeyfoldSource(DataSource):
    """``format("keyfold")``."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` takes."""
        return "keyfold"

    def _settings(self, known: AbstractSet[str]) -> Settings:
        return Settings.from_options(dict(self.options), known)

    def schema(self) -> StructType:
        """Return the columns of the table; of changes their kind and snapshot, too."""
        settings = self._settings(READ | FOLLOWED)
        with settings.client() as client:
            columns, _ = _pinned(client.table(settings.table), settings)
        if settings.changes:
            columns = pa.schema([*columns, pa.field(_KIND, pa.string()), pa.field(_SNAPSHOT, pa.int64())])
        known = pa.schema([pa.field(column.name, _without_times(column.type)) for column in columns])
        return from_arrow_schema(known, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a table of one moment."""
        settings = self._settings(READ)
        if settings.changes:
            raise Misuse("changes are read as a stream: spark.readStream")
        return (_PushingReader if settings.pushes_filters else _Reader)(settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return what reads the changes of a table."""
        settings = self._settings(FOLLOWED)
        if not settings.changes:
            raise Misuse("a stream reads changes: write .option('changes', 'true')")
        return _Changes(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        """Return what writes a job's rows, each of its tasks once."""
        if overwrite:
            raise Misuse("records are added to a table: write .mode('append')")
        settings = self._settings(WRITTEN)
        return _Writer(settings, settings.idempotency_key or f"spark-{uuid.uuid4().hex}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """Return what writes the rows of a streaming query, each of its epochs once."""
        if overwrite:
            raise Misuse("records are added to a table: write .outputMode('append') or 'update'")
        return _StreamWriter(self._settings(OF_ALL))


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
            count = self._settings.partitions
            if count is None:
                count = min(MOST_PARTITIONS, -(-table.count(as_of=snapshot) // ROWS_OF_PARTITION) or 1)
        bounds = [_LEAST_TOKEN + _TOKENS * number // count for number in range(count + 1)]
        return [_Share(snapshot, first, end - 1) for first, end in itertools.pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        settings = self._settings
        if not isinstance(partition, _Share):  # what Spark makes of none
            return
        columns = _arrow_schema(self._schema)
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
_ORDERED: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "DATE"})
_TEXT: Final = "STRING"
_NULL: Final[Mapping[type[Filter], str]] = {IsNull: "is.null", IsNotNull: "is.not_null"}


class _PushingReader(_Reader):
    """A reader that gets the filters of a query. Spark takes it only where ``spark.sql.python.filterPushdown.enabled``
    is on, and refuses it otherwise: so it is an option.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Have the service leave out rows. Yield all filters: Spark still looks at each row that comes."""
        with self._settings.client() as client:
            fields = client.table(self._settings.table).details()["schema"]["fields"]
        kinds = {field["name"]: str(field["type"]).partition("(")[0].split()[0] for field in fields}
        pushed = [text for condition in filters if (text := _text_of(condition, kinds)) is not None]
        self._settings = replace(self._settings, filters=(*self._settings.filters, *pushed))
        yield from filters


def _text_of(condition: Filter, kinds: Mapping[str, str]) -> str | None:
    """Return a filter in the service's spelling; None if its result could differ from Spark's. ``kinds`` are the types
    of the table's columns: a TIME is a whole number for Spark alone.
    """
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    kind = kinds.get(path[0]) if len(path) == 1 and "." not in path[0] else None
    if kind not in _ORDERED and kind != _TEXT:
        return None
    if type(condition) in _NULL:
        return f"{path[0]}.{_NULL[type(condition)]}"
    operator = _COMPARED.get(type(condition))
    if operator is None or (kind == _TEXT and operator != "eq"):
        return None
    return f"{path[0]}.{operator}.{to_text(getattr(condition, 'value', None))}"


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns as Spark expects them, which are in UTC: Spark 4.1 always says so, later ones where asked."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def _without_times(data_type: pa.DataType) -> pa.DataType:
    """Return the type with milliseconds of the day in place of times, which Spark does not take."""
    if pa.types.is_time32(data_type):
        return pa.int32()
    if pa.types.is_list(data_type):
        return pa.list_(_without_times(data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(_without_times(data_type.key_type), _without_times(data_type.item_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _without_times(field.type)) for field in data_type])
    return data_type


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
    share is a batch that has the same rows each time, and one that is stored already is left alone. A user may give
    the same name to other rows later, which must not get lost: then the digest of the rows is a part of the key.
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
    import pandas as pd  # noqa: PLC0415  # Spark starts Python for each step of a query: it takes as long as all others

    if missing := [name for name in key if name not in rows.column_names]:
        raise Misuse(f"the rows have no column {', '.join(missing)}: the table's key is {', '.join(key)}")
    hashes = pd.util.hash_pandas_object(rows.select(key).to_pandas(), index=False).to_numpy() % count
    for number in range(count):
        yield rows.filter(pa.array(hashes == number))


def _digest(rows: pa.Table) -> int:
    """Return a digest of the rows in any order. It reads each value whole: pandas hashes arrays by a text that leaves
    digits out.
    """
    lines = (repr(row).encode() for batch in rows.to_batches() for row in batch.to_pylist())
    return sum(int.from_bytes(blake2b(line, digest_size=16).digest()) for line in lines) % 2**128


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
        snapshots, columns = cast("_Snapshots", partition), _arrow_schema(self._schema)
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
