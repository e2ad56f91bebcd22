"""A table: records go in, rows and their changes come out."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from keyfold_client.errors import Misuse, NotFound, NotKeyfold, Refused, refused
from keyfold_client.names import path_of_table
from keyfold_client.pieces import Piece, pieces_of
from keyfold_client.results import Batch, Change, Upserted
from keyfold_client.scans import Scan
from keyfold_client.sync.transport import Transport
from keyfold_client.values import Key, Schema, to_json, to_text

MOST_KEYS: Final = 1000  # of one request
_JSON: Final = {"Content-Type": "application/json"}
_OPEN: Final = ("pending", "running")
_LOOK_SECONDS: Final = (0.1, 1.0)  # how often a merge is looked at, at first and later
_SCHEMA: Final = "schema"  # the event that names the schema of the changes after it
_PAUSE_SECONDS: Final = 0.5  # before a stream of changes that ended is requested again
Columns = Sequence[str] | None


class Table:
    """The table ``name`` of a database. Values are Python's: int, Decimal, datetime, bytes, dict; none loses a digit.

    ``consistency`` is ``latest`` (with staged records) or ``merged``; without it the table's option counts. ``as_of``
    is a snapshot's number or a tag.
    """

    def __init__(self, transport: Transport, database: str, name: str) -> None:
        self.database, self.name = database, name
        self._transport = transport
        self._newest: Schema | None = None
        self._schemas: dict[tuple[str, int], Schema] = {}  # by table id and number: a name may be used again

    def upsert(
        self,
        rows: Any,
        *,
        idempotency_key: str | None = None,
        wait: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Upserted:
        """Store records: mappings by column, or a table of Arrow, pandas or polars. When it returns, they are durable.

        Many records become several batches, each all or nothing; a request that breaks off is sent again and counts
        once. With an ``idempotency_key`` the whole call counts once, however often it is made with the same rows.
        ``wait``: return once they are merged, after so many seconds (60 at most) at the latest. ``progress`` is called
        with the number of stored records. Raise ``Refused`` with every fault of a batch: ``stored`` counts the records
        before it, which are stored.
        """
        name, stored, batches = idempotency_key or f"keyfold-{uuid.uuid4().hex}", 0, list[Batch]()
        pieces = pieces_of(rows)
        piece = next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            key = f"{name}-{len(batches)}" if batches else name
            try:
                # When the last one is merged, all are.
                batches.append(self.store(piece, key, wait=wait if following is None else None))
            except Refused as error:
                raise error.behind(stored) from None
            stored += piece.records
            if progress is not None:
                progress(stored)
            piece = following
        return Upserted(batches)

    def store(self, piece: Piece, key: str, *, wait: float | None = None) -> Batch:
        """Store a body as one batch, under an Idempotency-Key. Raise ``Refused``."""
        headers = {"Content-Type": piece.media_type, "Idempotency-Key": key, **_waiting(wait)}
        path = self._path("/batches")
        return self._batch(self._transport.ask("POST", path, content=piece.body, headers=headers, again=True))

    def _batch(self, answer: httpx.Response) -> Batch:
        replayed = answer.headers.get("Idempotency-Replayed") == "true"
        return Batch.from_answer(self._transport.read(answer), replayed=replayed)

    def delete(self, key: Key, *, values: Mapping[str, Any] | None = None, wait: float | None = None) -> Batch:
        """Store a -D record for a key, with ``values`` of other columns, such as a sequence. Raise ``Refused``."""
        headers = {"Idempotency-Key": f"keyfold-{uuid.uuid4().hex}", **_JSON, **_waiting(wait)}
        body = {} if values is None else {"content": to_json(dict(values))}
        params = [("key", text) for text in self._texts(key)]
        path = self._path("/rows")
        return self._batch(self._transport.ask("DELETE", path, params=params, headers=headers, again=True, **body))

    def get(
        self,
        key: Key,
        *,
        columns: Columns = None,
        consistency: str | None = None,
        as_of: str | int | None = None,
        after: str | None = None,
    ) -> dict[str, Any] | None:
        """Return the row of a key, None where there is none. ``after`` is a batch's id: its records are in the answer.
        Raise ``Refused``; ``NotFound`` for a table or snapshot that is not there.
        """
        params = [("key", text) for text in self._texts(key)]
        params += _params(columns, consistency, as_of) + ([("after", after)] if after else [])
        try:
            answer = self._transport.ask("GET", self._path("/rows"), params=params)
        except NotFound as error:
            if error.code == "row_not_found":
                return None
            raise
        return (self._schema_of(answer)).row(self._transport.read(answer))

    def get_many(
        self,
        keys: Iterable[Key],
        *,
        columns: Columns = None,
        consistency: str | None = None,
        as_of: str | int | None = None,
    ) -> list[dict[str, Any] | None]:
        """Return the row of each key, None if there is none, in their order. The rows of each thousand keys are of one
        moment. Raise as ``get``.
        """
        every, params = list(keys), _params(columns, consistency, as_of)
        named = self._named(every)
        rows: list[dict[str, Any] | None] = []
        for first in range(0, len(every), MOST_KEYS):
            some = slice(first, first + MOST_KEYS)
            try:
                answer = self._found(named[some], params)
            except Refused as error:
                if error.code != "invalid_key":
                    raise
                self.schema(fresh=True)  # its key may have other names since
                named = self._named(every)
                answer = self._found(named[some], params)
            found = [item["row"] for item in self._transport.read(answer)["rows"]]
            schema = self._schema_of(answer)
            rows += [None if row is None else schema.row(row) for row in found]
        return rows

    def _found(self, keys: Sequence[Mapping[str, Any]], params: Sequence[tuple[str, str]]) -> httpx.Response:
        request: dict[str, Any] = {"content": to_json({"keys": keys}), "params": params, "headers": _JSON}
        return self._transport.ask("POST", self._path("/rows:batchGet"), again=True, **request)

    def scan(
        self,
        columns: Columns = None,
        *,
        filter: str | Sequence[str] = (),  # noqa: A002  # what the service calls it
        consistency: str | None = None,
        as_of: str | int | None = None,
        tokens: tuple[int, int] | None = None,
    ) -> Scan:
        """Return all rows of one moment, or those that meet each ``filter`` (``status.eq.new``). It needs PyArrow.

        ``tokens``, the first and the last, are a share of the table, for those who read it in several tasks.
        """
        filters = [filter] if isinstance(filter, str) else filter
        params = _params(columns, consistency, as_of) + [("filter", condition) for condition in filters]
        if tokens is not None:
            params += [("firstToken", str(tokens[0])), ("lastToken", str(tokens[1]))]
        return Scan(self._transport, self._path("/rows:scan"), params)

    def changes(
        self, *, since: int | None = None, until: int | None = None, after: str | None = None
    ) -> Iterator[Change]:
        """Yield the changes of rows as they are merged, without end unless ``until`` names the last snapshot.

        They begin with snapshot ``since``, or behind ``after``, the ``place`` of a change that was read before; by
        default with the next merge. A broken connection is made again: no change is missing or comes twice. Raise
        ``Refused`` if the changes are not kept, or have expired.
        """
        schema = Schema({}, ())  # the first event names it
        for event, place in self._followed(since=since, until=until, after=after):
            values = json.loads(event.data)
            if event.event == _SCHEMA:
                schema = self._schema_at(values["id"], values["schemaId"])
                continue
            kind, snapshot = values.pop("_kind"), values.pop("_snapshot")
            yield Change(kind, snapshot, schema.row(values), place)

    def change_lines(
        self, *, since: int | None = None, until: int | None = None, after: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield the JSON of each of ``changes``, and its place."""
        for event, place in self._followed(since=since, until=until, after=after):
            if event.event != _SCHEMA:
                yield event.data, place

    def _followed(
        self, *, since: int | None, until: int | None, after: str | None
    ) -> Iterator[tuple[ServerSentEvent, str]]:
        """Yield each change, and before it its schema where that is another one, with the place behind it."""
        if after is None and since is None:
            # A place of our own from the start: reconnecting without one would miss what was merged meanwhile.
            since = ((self.stats())["snapshotId"] or 0) + 1
        place = after or f"{since}.0"
        while until is None or int(place.partition(".")[0]) <= until:
            for event in self._events(place, until):
                place = event.id or place
                if event.event == "error":
                    problem = json.loads(event.data)
                    raise refused(problem, problem["status"])
                if event.event in ("message", _SCHEMA):
                    yield event, place
            time.sleep(_PAUSE_SECONDS)

    def _events(self, place: str, until: int | None) -> Iterator[ServerSentEvent]:
        """Yield the events behind a place until the stream ends or breaks off; the caller requests the next."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store", "Last-Event-ID": place}
        params: Mapping[str, int] = {} if until is None else {"toSnapshot": until}
        try:
            with self._transport.streamed(self._path("/changelog"), params=params, headers=headers) as answer:
                try:
                    for event in EventSource(answer).iter_sse():
                        if event.data:  # a comment, sent while nothing changes, comes as an event without data
                            yield event
                except httpx.TransportError as error:
                    self._transport.paused(self._transport.broken(error), _PAUSE_SECONDS)
        except SSEError as error:
            raise NotKeyfold(self._transport.url) from error

    def page_of_changes(self, params: Mapping[str, str]) -> httpx.Response:
        """Return a page of the changelog in Arrow. Raise ``Refused`` where the changes are not kept any more."""
        headers = {"Accept": "application/vnd.apache.arrow.stream"}
        return self._transport.ask("GET", self._path("/changelog"), params=dict(params), headers=headers)

    def count(self, *, filter: str | Sequence[str] = (), as_of: str | int | None = None) -> int:  # noqa: A002
        """Return how many rows there are, or meet each ``filter``; of many it is an estimate."""
        filters = [filter] if isinstance(filter, str) else filter
        params = _params(None, None, as_of) + [("filter", condition) for condition in filters]
        return int((self._read("/rows:count", params))["count"])

    def explain(self, key: Key, *, columns: Columns = None, as_of: str | int | None = None) -> dict[str, Any]:
        """Return why the row of a key shows what it shows: its records in order, and what each did to each column."""
        params = [("key", text) for text in self._texts(key)] + [("column", name) for name in columns or ()]
        params += [("asOf", str(as_of))] if as_of is not None else []
        return self._read("/rows:explain", params)

    def rules(self) -> dict[str, Any]:
        """Return the rule of each column in words."""
        return self._read("/rules")

    def stats(self) -> dict[str, Any]:
        """Return what the table holds, keeps and waits for."""
        return self._read("/stats")

    def details(self) -> dict[str, Any]:
        """Return the table's schema and options."""
        return self._read("")

    def ddl(self, dialect: str = "flink") -> str:
        """Return the CREATE TABLE that makes the table."""
        return str((self._read("/ddl", [("dialect", dialect)]))["ddl"])

    def drop(self) -> None:
        """Drop the table with all that is in it."""
        self._transport.ask("DELETE", self._path(""))

    def merge(self, *, wait: bool = True) -> dict[str, Any]:
        """Merge the staged batches now, before they are due; ``wait`` for the end. Return the merge."""
        task: dict[str, Any] = self._transport.json("POST", self._path("/merges"), again=True)
        pause, most = _LOOK_SECONDS
        while wait and task["state"] in _OPEN:
            time.sleep(pause)
            pause = min(pause * 1.5, most)
            task = self._transport.json("GET", self._path(f"/merges/{task['id']}"))
        return task

    def schema(self, *, fresh: bool = False) -> Schema:
        """Return the columns and the key; they are read once, unless ``fresh``."""
        if self._newest is None or fresh:
            self._newest = self._kept(self.details())
        return self._newest

    def _schema_of(self, answer: httpx.Response) -> Schema:
        """Return the schema of the rows in the answer. Raise ``NotKeyfold`` if its headers do not name it."""
        try:
            return self._schema_at(answer.headers["Keyfold-Table"], int(answer.headers["Keyfold-Schema"]))
        except KeyError as error:
            raise NotKeyfold(self._transport.url) from error

    def _schema_at(self, table_id: str, number: int) -> Schema:
        """Return the schema that the table with this id has or had; each is read once."""
        known = self._schemas.get((table_id, number))
        return known or self._kept(self._read(f"/schemas/{number}"))

    def _kept(self, answer: Mapping[str, Any]) -> Schema:
        schema = Schema.from_answer(answer)
        self._schemas[answer["id"], answer["schemaId"]] = schema
        return schema

    def _read(self, rest: str, params: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.json("GET", self._path(rest), params=params)
        return answer

    def _named(self, keys: Sequence[Key]) -> list[dict[str, Any]]:
        """Return keys by column. Raise ``Misuse`` for one with other columns than the table has now."""
        schema = self.schema()
        try:
            return [schema.key(key) for key in keys]
        except Misuse:
            schema = self.schema(fresh=True)
        return [schema.key(key) for key in keys]

    def _texts(self, key: Key) -> list[str]:
        if isinstance(key, Mapping):
            [named] = self._named([key])
            key = tuple(named[name] for name in (self.schema()).primary_key)
        return [to_text(value) for value in (key if isinstance(key, tuple) else (key,))]

    def _path(self, rest: str) -> str:
        return path_of_table(self.database, self.name, rest)


def _params(columns: Columns, consistency: str | None, as_of: str | int | None) -> list[tuple[str, str]]:
    if isinstance(columns, str):
        raise Misuse(f"columns are a list of names: [{columns!r}]")
    named = {"columns": ",".join(columns) if columns else None, "consistency": consistency, "snapshot": as_of}
    return [(name, str(value)) for name, value in named.items() if value is not None]


def _waiting(seconds: float | None) -> dict[str, str]:
    return {"Prefer": f"wait={max(1, round(seconds))}"} if seconds else {}
