"""What does not exist is said in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.core.errors import ErrorCode, Resource, not_found

APP = Path(__file__).parent.parent.parent / "app"


@pytest.mark.parametrize("resource", Resource)
def test_what_does_not_exist_has_a_code_a_name_and_a_text_of_its_own(resource: Resource) -> None:
    error = not_found(resource, "lost")
    assert (error.code, error.resource_type, error.resource_name) == (
        ErrorCode[f"{resource}_NOT_FOUND"],
        resource.value,
        "lost",
    )
    words = error.message.replace("-", " ")
    assert words.startswith(f"{resource.lower().replace('_', ' ')} 'lost' does not exist")


@pytest.mark.parametrize("resource", Resource)
def test_no_other_says_that_it_does_not_exist(resource: Resource) -> None:
    said = re.compile(rf"\bErrorCode\.{resource}_NOT_FOUND\b")
    assert [path.name for path in APP.rglob("*.py") if said.search(path.read_text())] == ["errors.py"]
