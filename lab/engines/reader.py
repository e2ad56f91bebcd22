"""The process that reads with the engines, in its own virtual environment."""

from __future__ import annotations

import json
import pickle
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.delta_readers import Rows
from tests.environments import made_by_make

_READ: Final = Path(__file__).parent / "read.py"
_ANSWER: Final = "answer: "


class EngineError(Exception):
    """What an engine says of something that it cannot read."""


class Reader:
    """The process of ``read.py`` until ``exits`` closes."""

    def __init__(self, folder: Path, exits: ExitStack) -> None:
        self._to = folder / "rows.pickle"
        python = made_by_make(".venv-engines/.installed").parent / "bin" / "python"
        self._process = subprocess.Popen(
            [python, _READ, self._to],
            cwd="/",  # ClickHouse reads no file outside
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        exits.callback(self._process.terminate)

    def rows(self, engine: str, **wanted: object) -> Rows:
        """Return what an engine reads. Raise ``EngineError``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"engine": engine, **wanted}), file=self._process.stdin, flush=True)
        line = next(line for line in self._process.stdout if line.startswith(_ANSWER))
        answer: dict[str, Any] = json.loads(line.removeprefix(_ANSWER))
        if "error" in answer:
            raise EngineError(answer["error"])
        rows: Rows = pickle.loads(self._to.read_bytes())  # noqa: S301  # our own process wrote it
        return rows
