"""What operators see: the lines of ``keyfold serve`` at a terminal, and commands in a folder that is none."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import COMMAND, Terminal
from tests.service import Client

pytestmark = pytest.mark.slow(reason="each command is a process")

CLOCK = r"\d\d:\d\d:\d\d "


class Screen:
    """What a process writes to a terminal."""

    def __init__(self) -> None:
        self._own, self.end = pty.openpty()
        self.text = ""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while part := os.read(self._own, 4096):
                with self._more:
                    self.text += part.decode()
                    self._more.notify_all()
        except OSError:
            pass  # Linux's way to say that nobody has the other end open
        os.close(self._own)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The line that matches, once it is there."""
        with self._more:
            assert self._more.wait_for(lambda: re.search(pattern, self.text, re.MULTILINE), 120), self.text
            found = re.search(pattern, self.text, re.MULTILINE)
            assert found is not None
            return found

    def close(self) -> None:
        """Returns once all was read."""
        os.close(self.end)
        self._reader.join()


@contextmanager
def shown(data: Path, **environment: str) -> Iterator[Screen]:
    """``keyfold serve`` at a terminal."""
    screen = Screen()
    own = {**os.environ, "KEYFOLD_PROCESSES": "1", **environment}
    command = [*COMMAND, "serve", "--port", "0", "--data", str(data)]
    with subprocess.Popen(command, stdout=screen.end, stderr=screen.end, env=own, start_new_session=True) as process:
        yield screen
        process.terminate()
    screen.close()


def test_serve_at_a_terminal_says_where_the_docs_are_when_spark_is_ready_and_each_merge(
    spark_remote: str, tmp_path: Path
) -> None:
    with shown(tmp_path / "data", KEYFOLD_SPARK_REMOTE=spark_remote) as screen:
        reported = screen.wait_for(r"^Keyfold \S+ listens on (\S+) \(console (\S+), API docs (\S+), data in (\S+)\)")
        url, console, docs = reported[1], reported[2], reported[3]
        assert console == f"{url}/"
        screen.wait_for(rf"^{CLOCK}Spark is ready\r$")
        with Client(base_url=url, trust_env=False) as client:
            assert client.get(docs).status_code == 200
        terminal = Terminal(tmp_path, url)
        assert terminal.run("database", "create", "shop").returncode == 0
        table = terminal.table("orders")
        assert terminal.run("put", table, '{"id": 1, "n": 1}').returncode == 0
        assert terminal.run("merge", table, "--wait").returncode == 0
        screen.wait_for(rf"^{CLOCK}merge \w+ of shop.orders succeeded: 1 records, 1 rows, [\d.]+ s\r$")
    assert "uvicorn" not in screen.text


@pytest.mark.parametrize("words", [("token", "list"), ("token", "revoke", "x"), ("verify",), ("backup", "kept")])
def test_a_command_in_the_wrong_folder_says_so_and_makes_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False, env=_here())
    assert done.returncode == 1
    assert done.stderr == (
        f"keyfold: there is no catalog in {tmp_path.resolve()}/keyfold-data, and none was made: say by --data or"
        " KEYFOLD_DATA where the service keeps its data, or by KEYFOLD_DATABASE_URL\n"
    )
    assert list(tmp_path.iterdir()) == []


def _here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
