"""Requests that are at fault: the service that they are sent to, and how they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, fields_of

NUMBERS = count()


@dataclass(frozen=True)
class Service:
    """A service that is open to this machine, with the database ``shop``."""

    app: FastAPI
    client: TestClient
    folder: Path  # for a catalog of a case's own


# What provokes the code: the faults (or warnings) that the service, or the function behind it, answers.
Case = Callable[[Service], Iterable[Mapping[str, Any]]]


def reported(response: Any) -> list[dict[str, Any]]:
    body = response.json()
    return [*body.get("errors", ()), *body.get("warnings", ())]


def schema(columns: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A schema with the key ``k`` and the columns ``a`` and ``b`` or others."""
    types = {"k": "INT NOT NULL", **({"a": "INT", "b": "INT"} if columns is None else columns)}
    fields = fields_of(**types)
    return {"fields": fields, "primaryKeys": ["k"], "options": {}} | members


def created(columns: Mapping[str, Any] | None = None, name: str = "t", **members: Any) -> Case:
    """Creating a table; nothing is stored."""
    body = {"identifier": {"database": "shop", "object": name}, "schema": schema(columns, **members)}
    return lambda service: reported(service.client.post(TABLES, json=body, params={"validateOnly": "true"}))


def options(more: Mapping[str, str], columns: Mapping[str, Any] | None = None, **members: Any) -> Case:
    return created(columns, options=more, **members)


def declared(statement: str) -> Case:
    """Creating a table with the key ``k`` by SQL; nothing is stored."""
    body = {"ddl": statement}
    return lambda service: reported(
        service.client.post(f"{TABLES}:fromDdl", json=body, params={"validateOnly": "true"})
    )


def new_table(service: Service, described: Mapping[str, Any]) -> str:
    """The URL of a table that nothing else uses."""
    name = f"t{next(NUMBERS)}"
    body = {"identifier": {"database": "shop", "object": name}, "schema": described}
    response = service.client.post(TABLES, json=body)
    assert response.status_code == 200, response.text
    return f"{TABLES}/{name}"


def posted(record: Any, columns: Mapping[str, Any] | None = None, **members: Any) -> Case:
    """Posting one record."""

    def provoke(service: Service) -> Iterable[Mapping[str, Any]]:
        url = new_table(service, schema(columns, **members))
        return reported(service.client.post(f"{url}/batches", json={"records": [record]}))

    return provoke


def value(kind: str, wrong: Any) -> Case:
    """Posting a wrong value of a type."""
    return posted({"k": 1, "v": wrong}, {"v": kind})


def altered(*changes: Any, columns: Mapping[str, Any] | None = None, has_rows: bool = False, **members: Any) -> Case:
    """Altering a table."""

    def provoke(service: Service) -> Iterable[Mapping[str, Any]]:
        url = new_table(service, schema(columns, **members))
        if has_rows:
            assert service.client.post(f"{url}/batches", json={"records": [{"k": 1}]}).status_code == 202
        return reported(service.client.post(url, json={"changes": changes}))

    return provoke


def asked(method: str, path: str, table: Mapping[str, Any] | None = None, **sent: Any) -> Case:
    """Any request; ``{table}`` in its path is a new table."""

    def provoke(service: Service) -> Iterable[Mapping[str, Any]]:
        url = path.format(table=new_table(service, table or schema()) if "{table}" in path else "")
        return reported(service.client.request(method, url, **sent))

    return provoke


def add(name: str = "n", kind: Any = "INT", **members: Any) -> dict[str, Any]:
    return {"action": "addColumn", "fieldNames": [name], "dataType": kind} | members


def change(action: str, *path: str, **members: Any) -> dict[str, Any]:
    return {"action": action, "fieldNames": list(path)} | members


def set_option(key: str, text: Any) -> dict[str, Any]:
    return {"action": "setOption", "key": key, "value": text}
