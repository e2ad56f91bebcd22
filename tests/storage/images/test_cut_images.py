"""Images that were cut off while they are open: a page behind the end of a mapped file kills the process."""

from __future__ import annotations

import os

import numpy as np
import pytest

from app.core.table.keys import token_of
from app.files.layout import Warehouse
from app.storage.images import Images
from tests.storage.images.imaged import PLAN, answered, built, files_of, made, state
from tests.storage.images.test_images import again, body


@pytest.mark.parametrize("kept", [0, 1, 4096])
def test_an_image_that_was_cut_off_while_it_is_open_is_a_miss(images: Images, warehouse: Warehouse, kept: int) -> None:
    run = made(warehouse, 1000)
    built(images, run)
    other = again(images)
    assert answered(other, run, 7) == body(7)
    assert state(other, run, 7) == "7"
    for path in files_of(images):
        os.truncate(path, kept)
    assert answered(other, run, 7) is None
    tokens = np.array([token_of(PLAN.schema, (7,))])
    assert other.answers("t1", run, PLAN.schema, PLAN, tokens, [b"[7]"]) == [None]
    assert state(other, run, 7) == "7"
    assert not files_of(images)
