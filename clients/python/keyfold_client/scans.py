"""Scans: all rows of a table of one moment, as Arrow, pandas, polars or one by one."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import httpx

from keyfold_client.aio.transport import AsyncTransport
from keyfold_client.sync.transport import Transport

Params = Sequence[tuple[str, str]]
_STREAM: Final = {"Accept": "application/vnd.apache.arrow.stream"}
_READ_BYTES: Final = 2**20


def _arrow() -> ModuleType:
    """Import the module that needs PyArrow, an extra. Raise ``Misuse`` if PyArrow is missing."""
    return import_module("keyfold_client.arrow")


class Scan:
    """A scan that begins when it is read, and again each time. To DuckDB, polars and others it is an Arrow stream."""

    def __init__(self, transport: Transport, path: str, params: Params) -> None:
        self._transport, self._path, self._params = transport, path, params

    def reader(self) -> Any:
        """Return a ``pyarrow.RecordBatchReader``; rows are read as they come. Raise ``Refused``, ``Unreachable``."""
        # A reader that is given up is closed by the collector of garbage, perhaps within a call of httpx that holds the
        # lock of its connections: those of the others must not be the same.
        apart = self._transport.apart()
        try:
            response = apart.begun(self._path, params=self._params, headers=_STREAM)
            opened = _arrow().reader_of(io.BufferedReader(_Body(apart, response), _READ_BYTES))
        except BaseException:
            apart.close()
            raise

        def batches() -> Iterator[Any]:
            with closing(apart), opened:
                yield from opened

        return _arrow().reader_of_batches(opened.schema, batches())

    def answer(self) -> httpx.Response:
        """Return the whole answer, an Arrow stream with its headers. Raise ``Refused``, ``Unreachable``."""
        return self._transport.ask("GET", self._path, params=self._params, headers=_STREAM)

    def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``."""
        return self.reader().read_all()

    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``; whole numbers and booleans of types that know null, so that no
        BIGINT becomes a float.
        """
        return _arrow().to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """Return the rows as a ``polars.DataFrame``."""
        return _arrow().to_polars(self.to_arrow())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.reader():
            yield from batch.to_pylist()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)


class AsyncScan:
    """A scan that begins when it is read, and again each time. The rows are held in memory while they are read."""

    def __init__(self, transport: AsyncTransport, path: str, params: Params) -> None:
        self._transport, self._path, self._params = transport, path, params

    async def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``. Raise ``Refused``, ``Unreachable``."""
        request: Mapping[str, Any] = {"params": self._params, "headers": _STREAM}
        async with self._transport.streamed(self._path, **request) as response:
            return _arrow().reader_of(await response.aread()).read_all()

    async def to_pandas(self) -> Any:
        """As ``Scan.to_pandas``."""
        return _arrow().to_pandas(await self.to_arrow())

    async def to_polars(self) -> Any:
        """As ``Scan.to_polars``."""
        return _arrow().to_polars(await self.to_arrow())

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        for batch in (await self.to_arrow()).to_batches():
            for row in batch.to_pylist():
                yield row


class _Body(io.RawIOBase):
    """The body of an answer as a file."""

    def __init__(self, transport: Transport, response: httpx.Response) -> None:
        self._transport, self._parts, self._rest = transport, response.iter_bytes(), memoryview(b"")

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill ``into`` as far as what has come reaches. Raise ``Unreachable`` where the answer breaks off."""
        try:
            while not self._rest:
                part = next(self._parts, None)
                if part is None:
                    return 0
                self._rest = memoryview(part)
        except httpx.TransportError as error:
            raise self._transport.broken(error) from error
        size = min(len(into), len(self._rest))
        into[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
