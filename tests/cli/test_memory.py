"""The allocator of the processes that serve."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from app.cli import _of
_of([{command!r}])
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize(("command", "set_to", "pool"), [("serve", "", "system"), ("worker", "mimalloc", "mimalloc")])
def test_arrow_allocates_as_python_does_unless_the_environment_says_otherwise(
    command: str, set_to: str, pool: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if set_to:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = set_to
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(command=command)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.split() == [pool]
