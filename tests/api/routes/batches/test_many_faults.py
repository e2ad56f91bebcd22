"""A body of many wrong elements costs its reader one fault, not one for each: the event loop reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel, TypeAdapter, ValidationError

from app.api.document.payloads import MOST_READ
from tests.api.conftest import DATABASES

MANY = MOST_READ + 1
WRONG: dict[str, Any] = {
    "numbers": [1] * MANY,
    "objects": [{}] * MANY,
    "an object of numbers": {str(number): 1 for number in range(MANY)},
    "an object of objects": {str(number): {} for number in range(MANY)},
}


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models that ``kind`` is made of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from models(field.annotation)
    for part in get_args(kind):
        yield from models(part)


def bodies(app: FastAPI) -> set[type[BaseModel]]:
    """The models that the routes read from bodies."""
    read = [field.field_info.annotation for route in app.routes if (field := getattr(route, "body_field", None))]
    return {model for kind in read for model in models(kind)}


@pytest.mark.parametrize("wrong", WRONG)
def test_no_body_has_a_fault_for_each_of_many_elements(app: FastAPI, wrong: str) -> None:
    read = bodies(app)
    assert len(read) > 8
    for model in read:
        sent = {field.alias or name: WRONG[wrong] for name, field in model.model_fields.items()}
        assert faults_of(model, sent) <= 3 * len(model.model_fields), model


def faults_of(kind: Any, sent: object) -> int:
    try:
        TypeAdapter(kind).validate_python(sent)
    except ValidationError as error:
        return error.error_count()
    return 0


def test_of_many_wrong_elements_the_first_is_reported_with_its_place(shop: TestClient) -> None:
    removals = ["a", "b", *WRONG["numbers"]]
    reported = shop.post(
        f"{DATABASES}/shop", json={"removals": removals, "updates": WRONG["an object of numbers"]}
    ).json()
    assert [fault["pointer"] for fault in reported["errors"]] == ["/removals/2", "/updates/0"]


def test_many_right_elements_are_taken(shop: TestClient) -> None:
    many = {str(number): "x" for number in range(MANY)}
    reported = shop.post(f"{DATABASES}/shop", json={"updates": many})
    assert (reported.status_code, len(reported.json()["updated"])) == (200, MANY)
    assert len(shop.post(f"{DATABASES}/shop", json={"removals": list(many)}).json()["removed"]) == MANY
