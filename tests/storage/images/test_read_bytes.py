"""Many rows are read no more at a time than there is memory for."""

from __future__ import annotations

import numpy as np
import pytest

from app.core.plan.records.answers import key_json
from app.core.table.keys import token_of
from app.files.layout import Warehouse
from app.storage.images import Images, ReadBytes, TooMuchAtOnce
from tests.storage.images.imaged import PLAN, built, made

KEYS = [(number,) for number in range(10)]
TOKENS = [token_of(PLAN.schema, key) for key in KEYS]


@pytest.mark.parametrize("with_images", [False, True])
def test_state_rows_beyond_the_bound_are_not_read(images: Images, warehouse: Warehouse, with_images: bool) -> None:
    run = made(warehouse, len(KEYS))
    if with_images:
        built(images, run)
    names = PLAN.schema.primary_key
    with pytest.raises(TooMuchAtOnce):
        images.find_all("t1", run, TOKENS, names, KEYS, ReadBytes(20))
    assert None not in images.find_all("t1", run, TOKENS, names, KEYS, ReadBytes())


def test_answers_beyond_the_bound_are_not_read(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, len(KEYS))
    built(images, run)
    texts = [key_json(PLAN.schema, key) for key in KEYS]
    asked = ("t1", run, PLAN.schema, PLAN, np.array(TOKENS), texts)
    with pytest.raises(TooMuchAtOnce):
        images.answers(*asked, ReadBytes(20))
    assert None not in images.answers(*asked, ReadBytes())
