"""The repository is made of parts, which inherit nothing and name the parts that they need."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import get_type_hints

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.shared.transaction import Transaction

PARTS = {name: part for name, part in get_type_hints(Repository).items() if part is not Transaction}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_a_part_is_frozen_inherits_nothing_and_holds_other_parts_only(part: type) -> None:
    assert part.__bases__ == (object,)
    assert is_dataclass(part)
    assert part.__dataclass_params__.frozen  # type: ignore[attr-defined]
    held = get_type_hints(part)
    assert held.pop("transaction") is Transaction
    assert held.items() <= PARTS.items()


def test_a_part_works_on_the_repositorys_own_parts(database: CatalogDatabase) -> None:
    with database.reading() as repository:
        for name in PARTS:
            part = getattr(repository, name)
            assert part.transaction is repository.transaction
            for field in fields(part):
                assert getattr(part, field.name) is getattr(repository, field.name)
