"""What the processes of a system that does not come back are doing, in few lines: what became of the last merges, the
last that each process has said, where Python's threads are, and what Java's wait for. The processes end with it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx

from lab.faults.checks import PROBE
from lab.faults.clients import DATABASE
from lab.faults.system import Kept, System

_SECONDS = 3.0  # that a process has to write its threads down
_LONGEST = 200  # characters of a line
_FRAMES = 3
_OURS = re.compile(r'File "[^"]*/(?:app|spark_jobs|grpc|pyspark)/')
_RESTS = re.compile(r"/(?:repeated|scrubs|late_counting)\.py|in _repeat$", re.MULTILINE)  # a thread without work
_JAVA_THREADS = ("main", "SparkConnectExecuteThread", "Executor task", "dag-scheduler")


def testimony(system: System) -> str:
    """For a failure's message."""
    merges = list(_merges(system))
    for kept in system.kept.values():
        # Python's handler of faults writes all threads when the process is aborted, Java's when it is asked to quit.
        for pid in [kept.pid] if kept.name == "spark" else reversed(kept.family()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if kept.name == "spark" else signal.SIGABRT)
    time.sleep(_SECONDS)
    heard = (line for kept in system.kept.values() for line in _of(kept))
    return "\n".join(line[:_LONGEST] for line in (*merges, *heard))


def _merges(system: System) -> Iterator[str]:
    try:
        with system.client(0, timeout=10) as client:
            merges = client.get(f"{DATABASE}/tables/{PROBE}/merges?maxResults=3").json()["merges"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        yield f"merges: {error!r}"
    else:
        yield from (f"merge {merge['state']}: {merge}" for merge in merges)


def _of(kept: Kept) -> Iterator[str]:
    lines = [line for log in kept.logs() for line in _lines(log)]
    said = [line for line in lines if re.match(r"\d{2,4}[-/]\d\d[-/]\d\d|Keyfold", line)]
    yield f"{kept.name}, started {kept.starts} times, said last: {said[-1] if said else 'nothing'}"
    blocks = re.split(r"\n\n|\n(?=Thread 0x)", "\n".join(lines))
    for block in blocks:
        yield from _of_java(block) if kept.name == "spark" else _of_python(block)


def _of_python(block: str) -> Iterator[str]:
    """The innermost frames of a thread that is in code of ours, or of what we call."""
    frames = [line.strip() for line in block.splitlines() if line.startswith("  File ")]
    ours = [line for line in frames if _OURS.search(line)]
    if len(ours) > 1 and not _RESTS.search(block):
        yield "  thread: " + " < ".join(_short(line) for line in [frames[0], *ours[:_FRAMES]])


def _short(frame: str) -> str:
    match = re.search(r'([^/"]+)", line (\d+) in (\w+)', frame)
    return f"{match[1]}:{match[2]} {match[3]}" if match else frame


def _of_java(block: str) -> Iterator[str]:
    lines = block.strip().splitlines()
    if "deadlock" in block.lower():
        yield "  " + " | ".join(line.strip() for line in lines[:6])
    elif lines and lines[0].startswith(tuple(f'"{name}' for name in _JAVA_THREADS)):
        yield "  " + " | ".join(line.strip() for line in (lines[0].split('"')[1], *lines[1 : 2 + _FRAMES]))


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()
