"""Every decoder on the inputs that are stored, and on some hundreds made of them: no error but ours, and no hang."""

from __future__ import annotations

import logging
import zlib
from random import Random

import pytest

from lab.fuzz.bounds import TooMuch, in_memory, in_time
from lab.fuzz.findings import corpus, tried
from lab.fuzz.mutations import mutated
from lab.fuzz.target import CORPUS, Target
from lab.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow(reason="tries thousands of mutations")


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_ends_in_another_error_than_ours(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    target, stored = TARGETS[name], [path.read_bytes() for path in corpus(name)]
    random = Random(zlib.crc32(name.encode()))
    with target.opened() as run:
        for body in (*stored, b"", *mutated(stored, target.words, target.mutations, random)):
            with in_time():
                error = tried(target, run, body)
            if error is not None:
                error.add_note(f"input: {body!r}")
                raise error


def test_every_target_has_stored_inputs_and_all_of_them_are_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(corpus(name) for name in TARGETS)
    assert sum(path.stat().st_size for name in TARGETS for path in corpus(name)) < 200_000


def test_unexpected_errors_and_inputs_that_take_too_much_are_found() -> None:
    def run(body: bytes) -> None:
        raise {b"a": KeyError, b"b": ValueError}[body]("odd")

    target = Target.of(run, ValueError)
    assert isinstance(tried(target, run, b"a"), KeyError)
    assert tried(target, run, b"b") is None
    with pytest.raises(TooMuch), in_time(0.01):
        while True:
            pass
    with pytest.raises(TooMuch), in_memory(20):
        bytearray(100 * 2**20)
