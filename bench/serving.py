"""A real ``keyfold serve`` process and a client of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

PATIENCE_SECONDS = 120


@contextmanager
def serving(folder: Path) -> Iterator[httpx.Client]:
    """A service that works in ``folder/data``, from the moment it listens: a client of it."""
    # Without its compiled modules Python would compile the whole service at every start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data", str(folder / "data")]
    with (
        open(folder / "log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, (folder / "log").read_text()
            with httpx.Client(base_url=found[0], trust_env=False, timeout=PATIENCE_SECONDS) as client:
                yield client
        finally:
            process.terminate()


def wait_ok(client: httpx.Client, path: str) -> None:
    """Returns when ``path`` answers 200."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if client.get(path).status_code == 200:
                return
        except httpx.ConnectError:
            pass
        time.sleep(0.01)
    raise TimeoutError(f"{path} did not answer 200 in {PATIENCE_SECONDS} s")
