"""Idempotency keys under way: told apart between threads, between processes, and given back whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from app.storage.staging.keys_in_flight import KeysInFlight

_HOLDER = """
import sys
from pathlib import Path
from app.storage.staging.keys_in_flight import KeysInFlight
with KeysInFlight(Path(sys.argv[1])).taking("table", "key") as free:
    print(free, flush=True)
    sys.stdin.read()
"""


def free(keys: KeysInFlight, key: str | None = "key", table: str = "table") -> bool:
    with keys.taking(table, key) as taken:
        return taken


def test_a_key_is_taken_once_at_a_time() -> None:
    keys = KeysInFlight()
    with keys.taking("table", "key") as first:
        assert (first, free(keys), free(keys)) == (True, False, False)
        assert free(keys, "other")
        assert free(keys, table="another")
    assert free(keys)


def test_who_sends_no_key_waits_for_nobody() -> None:
    keys = KeysInFlight()
    with keys.taking("table", None) as first:
        assert first
        assert free(keys, None)


def test_a_key_is_given_back_by_a_request_that_fails(tmp_path: Path) -> None:
    keys = KeysInFlight(tmp_path / "keys")
    try:
        with keys.taking("table", "key"):
            raise ValueError
    except ValueError:
        assert free(keys)


def test_a_key_that_another_process_holds_is_free_once_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys = KeysInFlight(path)
    assert free(keys)
    command = [sys.executable, "-c", _HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "True\n"
        assert not free(keys)
        assert free(keys, "other"), "and giving that back gives nothing else back"
        assert not free(keys)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert free(keys)


def test_where_the_file_cannot_be_made_every_key_is_free(tmp_path: Path) -> None:
    assert free(KeysInFlight(tmp_path / "gone" / "keys"))
