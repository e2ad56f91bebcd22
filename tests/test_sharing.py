"""What a test run shares is opened once, used side by side, and closed after its last user."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sharing import shared

USERS = 3
PATIENCE_SECONDS = 60


class Server:
    """Counts what happens to it."""

    def __init__(self) -> None:
        self.users = 0
        self.opened = 0
        self.users_at_the_end: list[int] = []
        self.lock = threading.Lock()

    @contextmanager
    def open(self) -> Iterator[str]:
        self.opened += 1
        yield f"address {self.opened}"
        self.users_at_the_end.append(self.users)

    def use(self, folder: Path, met: threading.Barrier) -> str:
        with shared(folder, "server", self.open) as address:
            with self.lock:
                self.users += 1
            met.wait(PATIENCE_SECONDS)
            with self.lock:
                self.users -= 1
        return address


def test_all_users_meet_at_what_was_opened_once_and_the_last_of_them_ends_it(tmp_path: Path) -> None:
    server, met = Server(), threading.Barrier(USERS)
    with ThreadPoolExecutor(USERS) as pool:
        addresses = [user.result() for user in [pool.submit(server.use, tmp_path, met) for _ in range(USERS)]]
    assert addresses == ["address 1"] * USERS
    assert (server.opened, server.users_at_the_end) == (1, [0])


def test_a_user_after_the_end_opens_the_server_again(tmp_path: Path) -> None:
    server = Server()
    assert [server.use(tmp_path, threading.Barrier(1)) for _ in range(2)] == ["address 1", "address 2"]


def test_a_user_that_fails_ends_it_too(tmp_path: Path) -> None:
    server = Server()
    with pytest.raises(ValueError, match="broken"), shared(tmp_path, "server", server.open):
        raise ValueError("broken")
    assert server.use(tmp_path, threading.Barrier(1)) == "address 2"
