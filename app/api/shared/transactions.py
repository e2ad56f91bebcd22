"""Handlers with a transaction: the transaction and the handler run in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Annotated, Any, Final, get_args

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from app.api.shared.deps import Parts, PartsDep, in_writers_thread
from app.api.shared.paths import Segment, sent_name
from app.catalog.repository import Repository
from app.core.table.history import Table

_READS: Final = "a transaction that reads"
_WRITES: Final = "a transaction that writes"
_TABLE: Final = "the table of the path"
# Annotations of a handler's parameters: a transaction, and the table that the path names, as the transaction sees it.
Reading = Annotated[Repository, _READS]
Writing = Annotated[Repository, _WRITES]
TableDep = Annotated[Table, _TABLE]
Handler = Callable[..., Any]
_PATH: Final = ("database", "table")
_PARTS: Final = "parts_"


class TransactionRoute(APIRoute):
    """A route whose handler may ask for ``Reading`` or ``Writing``, and for ``TableDep``."""

    def __init__(self, path: str, endpoint: Handler, **declared: Any) -> None:
        """Take the arguments of FastAPI's route."""
        super().__init__(path, in_one_thread(endpoint), **declared)


def in_one_thread(handler: Handler) -> Handler:
    """Return ``handler`` in a form that FastAPI can call, with its transaction in the thread that runs it.

    The transaction ends before the response is sent, so a 2xx never precedes its commit. As three dependencies (begin,
    table, end) it had a thread for each, which took half of a small answer's time.

    A handler that needs only the table has no transaction: the table comes from the lookups' view, without a thread if
    the view is current.

    Return a handler without transaction and table unchanged. Raise ``TypeError`` for an ``async`` handler with either.
    """
    declared = signature(handler, eval_str=True)
    if not any(_named(declared, marker) for marker in (_READS, _WRITES, _TABLE)):
        return handler
    if iscoroutinefunction(handler):
        raise TypeError(f"{handler.__qualname__} has a transaction, and so needs a thread: it cannot be async")
    needed = _Needs(handler, declared)

    async def handle(**given: Any) -> Any:
        return await needed.call(given)

    handle.__name__, handle.__doc__ = handler.__name__, handler.__doc__
    handle.__signature__ = declared.replace(parameters=needed.parameters)  # type: ignore[attr-defined]  # for FastAPI
    return handle


class _Needs:
    """The parameters of a handler, by what fills them: transactions, tables, and those that FastAPI fills."""

    def __init__(self, handler: Handler, declared: Signature) -> None:
        self._handler = handler
        self._writes = bool(_named(declared, _WRITES))
        self._repositories = [*_named(declared, _READS), *_named(declared, _WRITES)]
        self._tables = _named(declared, _TABLE)
        ours = {*self._repositories, *self._tables}
        self._own = [parameter for name, parameter in declared.parameters.items() if name not in ours]
        # FastAPI gives a handler one parameter with the request: use the handler's, if it has one.
        requests = [parameter.name for parameter in self._own if parameter.annotation is Request]
        self._request = requests[0] if requests else "request_"

    @property
    def parameters(self) -> list[Parameter]:
        """Return the parameters that FastAPI must fill."""
        added = {self._request: Request, _PARTS: PartsDep} | (dict.fromkeys(_PATH, Segment) if self._tables else {})
        names = {parameter.name for parameter in self._own}
        return [
            *(_keyword(name, annotation) for name, annotation in added.items() if name not in names),
            *(parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in self._own),
        ]

    async def call(self, given: Mapping[str, Any]) -> Any:
        """Return the handler's answer for the arguments that FastAPI has ``given``."""
        request, parts = given[self._request], given[_PARTS]
        arguments = {parameter.name: given[parameter.name] for parameter in self._own}
        table = None if self._repositories else parts.views.known_table(_name_in(request))
        if table is not None:
            return self._handler(**arguments, **dict.fromkeys(self._tables, table))
        if self._writes:
            return await in_writers_thread(parts, self._run, request, parts, arguments)
        return await run_in_threadpool(self._run, request, parts, arguments)

    def _run(self, request: Request, parts: Parts, arguments: dict[str, Any]) -> Any:
        """Return the handler's answer, in a thread that may wait."""
        if not self._repositories:
            table = parts.views.current_table(_name_in(request))
            return self._handler(**arguments, **dict.fromkeys(self._tables, table))
        with parts.database.transaction() if self._writes else parts.database.reading() as repository:
            arguments |= dict.fromkeys(self._repositories, repository)
            if self._tables:
                arguments |= dict.fromkeys(self._tables, repository.tables.get(*_name_in(request)))
            return self._handler(**arguments)


def _name_in(request: Request) -> tuple[str, str]:
    database, table = (sent_name(request.scope, noun, request.path_params[noun]) for noun in _PATH)
    return database, table


def _named(declared: Signature, marker: str) -> list[str]:
    """Return the names of the parameters that have the marker."""
    return [name for name, parameter in declared.parameters.items() if marker in get_args(parameter.annotation)[1:]]


def _keyword(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation)
