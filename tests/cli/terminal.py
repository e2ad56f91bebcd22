"""The commands as a terminal runs them, on a real service. Those that ask it over HTTP run in this process: to start
one takes longer than most of them.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.overview import COMMANDS
from app.cli.program import command_of

DATABASE = "shop"
SUMS = "CREATE TABLE {} (id BIGINT NOT NULL PRIMARY KEY NOT ENFORCED, word STRING, n BIGINT) WITH ({})"
OPTIONS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "merge.max-staleness": "1 d"}
COMMAND = [sys.executable, "-m", "app.cli"]


class Terminal:
    """A folder, and the environment of commands that run in it."""

    def __init__(self, folder: Path, url: str, **environment: str) -> None:
        self.folder = folder
        own = {name: value for name, value in os.environ.items() if not name.startswith("KEYFOLD_")}
        self.environment = {**own, "PYTHONPATH": os.getcwd(), "KEYFOLD_URL": url, **environment}

    def run(self, *words: str, stdin: str | bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
        """A command that ended, however it did."""
        typed = stdin.encode() if isinstance(stdin, str) else stdin
        own = {**self.environment, **environment}
        if COMMANDS[words[0]].module.startswith("client."):
            return self._carried_out(words, typed, own)
        done = subprocess.run(
            [*COMMAND, *words], cwd=self.folder, env=own, input=typed, capture_output=True, check=False, timeout=300
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(words, done.returncode, out, err)

    def _carried_out(
        self, words: tuple[str, ...], typed: bytes, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """The same, without a process of its own."""
        streams = [io.TextIOWrapper(io.BytesIO(sent), "utf-8") for sent in (typed, b"", b"")]
        ended = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name in {*os.environ} - {*environment}:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["keyfold", *words])
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            try:
                command_of(words)()
            except SystemExit as end:
                ended = int(end.code or 0)
        out, err = (stream.buffer.getvalue().decode() for stream in streams[1:] if not stream.flush())  # type: ignore[attr-defined]
        return subprocess.CompletedProcess(words, ended, out, err)

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """A command that goes on."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*COMMAND, *words], cwd=self.folder, env=self.environment, **pipes)  # type: ignore[call-overload]

    def result(self, *words: str) -> Any:
        """Return the JSON that a successful command prints with ``--json``."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def http(self, method: str, path: str) -> httpx.Response:
        """Call the API directly."""
        return httpx.request(method, self.environment["KEYFOLD_URL"] + path, trust_env=False).raise_for_status()

    def table(self, name: str, **options: str) -> str:
        """Makes a table of sums; its full name."""
        written = ", ".join(f"'{key}' = '{value}'" for key, value in (OPTIONS | options).items())
        done = self.run("table", "create", "-d", DATABASE, "-f", "-", stdin=SUMS.format(name, written))
        assert done.returncode == 0, done.stderr
        return f"{DATABASE}.{name}"

    def rows(self, table: str) -> list[Mapping[str, Any]]:
        """All rows, what is staged included."""
        done = self.run("scan", table, "--format", "ndjson")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    def sums(self, table: str) -> tuple[int, int]:
        """How many rows there are, and the sum of ``n``."""
        rows = self.rows(table)
        return len(rows), sum(row["n"] for row in rows)


def numbered_csv(rows: Iterable[int]) -> str:
    """A file of records of the table of sums: each adds one."""
    return "id,word,n\n" + "".join(f"{number},w{number},1\n" for number in rows)
