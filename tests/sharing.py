"""One server for all processes of a test run: the first that asks for it starts it, the others find it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest


def run_folder(tmp_path_factory: pytest.TempPathFactory, config: pytest.Config) -> Path:
    """A folder that all processes of this run have, and no other run; with pytest-xdist each has a folder below it."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(config, "workerinput") else own


@contextmanager
def shared(folder: Path, name: str, opened: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """The address of what ``opened`` opens, opened once for all processes that share ``folder``.

    Whoever opened it closes it, once nobody else uses it: users hold a shared lock, which the kernel takes from a
    process that dies.
    """
    address = folder / f"{name}.address"
    with open(folder / f"{name}.turn", "w") as turn, open(folder / f"{name}.users", "w") as users, ExitStack() as exits:
        fcntl.flock(turn, fcntl.LOCK_EX)
        owner = not address.exists()
        if owner:
            address.write_text(exits.enter_context(opened()))
        found = address.read_text()
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield found
        finally:
            if owner:
                fcntl.flock(turn, fcntl.LOCK_EX)
                fcntl.flock(users, fcntl.LOCK_EX)
                address.unlink()
