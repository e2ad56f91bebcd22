"""Make ``keyfold_client/sync`` of ``keyfold_client/aio``: the same without async and await (``make client``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from unasync import Rule, unasync_files

HERE: Final = Path(__file__).parent / "keyfold_client"
MADE: Final = ("transport.py", "table.py", "client.py")
_NAMES: Final = {
    "AsyncClient": "Client",
    "AsyncTable": "Table",
    "AsyncTransport": "Transport",
    "AsyncScan": "Scan",
    "AsyncRetrying": "Retrying",
    "aio": "sync",
    "aclose": "close",
    "aread": "read",
    "aiter_sse": "iter_sse",
    "anyio": "time",  # for sleep
}


def make(into: Path) -> None:
    """Write the modules to the folder ``into``."""
    unasync_files([str(HERE / "aio" / name) for name in MADE], [Rule(str(HERE / "aio"), str(into), _NAMES)])
    ruff, config = [sys.executable, "-m", "ruff"], ["--config", str(HERE.parents[2] / "pyproject.toml"), "--quiet"]
    made = [str(into / name) for name in MADE]
    subprocess.run([*ruff, "check", "--select", "I", "--fix", *config, *made], check=True)
    subprocess.run([*ruff, "format", *config, *made], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "sync")
