"""JVMs of an earlier start that are no longer watched."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def end_what_is_left(log: Path) -> None:
    """Kill a JVM of an earlier start that writes to ``log`` and has lost its supervisor."""
    option = f"-Dkeyfold.log={log}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            if option in (process / "cmdline").read_bytes().split(b"\0"):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if b"keyfold-spark" not in Path(f"/proc/{parent}/cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
