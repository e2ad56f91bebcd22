"""JVMs of an earlier start that are no longer watched."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

SUPERVISOR: Final = "keyfold-spark"  # the name of the shell that watches a JVM


def end_what_is_left(log: Path) -> None:
    """Kill a JVM of an earlier start that writes to ``log`` and has lost its supervisor. Supervisors, whose arguments
    name the log, too, stay: they watch the servers of other processes that share the folder.
    """
    option = f"-Dkeyfold.log={log}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            arguments = _arguments(process)
            if option in arguments and SUPERVISOR.encode() not in arguments:
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if SUPERVISOR.encode() not in _arguments(Path("/proc") / parent):
                    os.kill(int(process.name), signal.SIGKILL)


def _arguments(process: Path) -> list[bytes]:
    return (process / "cmdline").read_bytes().split(b"\0")
