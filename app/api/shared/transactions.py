"""Handlers with a transaction: reading, computing and writing run in one thread."""

from __future__ import annotations

from collections.abc import Callable
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
# Parameters of a handler: the transaction, and the table that the path names, as the transaction sees it.
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
    """Return a handler that FastAPI can call: it begins and ends the transaction in the thread that runs ``handler``.

    A handler that needs only the table has no transaction: the table comes from the lookups' view, without a thread if
    the view is current.

    As dependencies, begin, table and end of the transaction had a thread each, which took half of a small answer's
    time. The transaction ends before the response is sent, so a 2xx never precedes
    its commit. Raise ``TypeError`` for an ``async`` handler that has one.
    """
    declared = signature(handler, eval_str=True)
    writing, tables = _named(declared, _WRITES), _named(declared, _TABLE)
    repositories = [*_named(declared, _READS), *writing]
    if not repositories and not tables:
        return handler
    if iscoroutinefunction(handler):
        raise TypeError(f"{handler.__qualname__} has a transaction, and so needs a thread: it cannot be async")
    own_parameters = [
        parameter for name, parameter in declared.parameters.items() if name not in {*repositories, *tables}
    ]
    requests = [
        parameter.name for parameter in own_parameters if parameter.annotation is Request
    ]  # FastAPI gives a handler one of them
    request_name = requests[0] if requests else "request_"

    def run(request: Request, parts: Parts, given: dict[str, Any]) -> Any:
        if not repositories:
            return handler(**given, **dict.fromkeys(tables, parts.views.current_table(_name_in(request))))
        with parts.database.transaction() if writing else parts.database.reading() as repository:
            given |= dict.fromkeys(repositories, repository)
            if tables:
                given |= dict.fromkeys(tables, repository.tables.get(*_name_in(request)))
            return handler(**given)

    async def handle(**given: Any) -> Any:
        of_handler = {parameter.name: given[parameter.name] for parameter in own_parameters}
        known = None if repositories else given[_PARTS].views.known_table(_name_in(given[request_name]))
        if known is not None:
            return handler(**of_handler, **dict.fromkeys(tables, known))
        if writing:
            return await in_writers_thread(given[_PARTS], run, given[request_name], given[_PARTS], of_handler)
        return await run_in_threadpool(run, given[request_name], given[_PARTS], of_handler)

    added = {request_name: Request, _PARTS: PartsDep} | (dict.fromkeys(_PATH, Segment) if tables else {})
    names = {parameter.name for parameter in own_parameters}
    parameters = [
        *(_keyword(name, annotation) for name, annotation in added.items() if name not in names),
        *(parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own_parameters),
    ]
    handle.__name__, handle.__doc__ = handler.__name__, handler.__doc__
    handle.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]  # for FastAPI
    return handle


def _name_in(request: Request) -> tuple[str, str]:
    database, table = (sent_name(request.scope, noun, request.path_params[noun]) for noun in _PATH)
    return database, table


def _named(declared: Signature, marker: str) -> list[str]:
    """Return the names of the parameters that have the marker."""
    return [name for name, parameter in declared.parameters.items() if marker in get_args(parameter.annotation)[1:]]


def _keyword(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation)
