"""An archive of Spark's loaded and checked classes, from which the embedded server starts with less work: Java's class
data sharing, or, where Java has it, its ahead-of-time cache, which also knows which methods are worth compiling.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.core.errors import Unavailable
from spark_jobs.executor import SparkJobs
from spark_jobs.java import (
    AHEAD_OF_TIME,
    CLASS_DATA,
    COMPILE_FLAG,
    MODULE_FLAGS,
    ROOM_FLAGS,
    archive_stem,
    class_archives,
    find_java,
    java_major_version,
    spark_jars,
)
from spark_jobs.server import GIBIBYTE

START_SECONDS = 300
RECORD_SECONDS = 600
DUMP_SECONDS = 1800
_FIRST_WITH_PROFILES = 25  # https://openjdk.org/jeps/515

Rehearsal = Callable[[SparkJobs], object]
"""What a server does, once or several times, so that its archive knows it."""


@dataclass(frozen=True)
class _Making:
    """How a Java makes an archive: what a server is told that notes down what it needs, what makes an archive of its
    notes, how that is called, and how often a server does what it is to be good at (once, where classes are all).
    ``{notes}`` and ``{made}`` stand for the files.
    """

    recording: Sequence[str]
    dumping: Sequence[str]
    suffix: str
    rehearsals: int


_CLASSES: Final = _Making(
    ["-XX:DumpLoadedClassList={notes}"],
    ["-Xshare:dump", "-XX:SharedClassListFile={notes}", "-XX:SharedArchiveFile={made}"],
    CLASS_DATA,
    1,
)
# The cache is used only where what decides about modules and code is as it was: the server's own flags.
_PROFILES: Final = _Making(
    ["-XX:AOTMode=record", "-XX:AOTConfiguration={notes}"],
    [
        "-XX:AOTMode=create",
        "-XX:AOTConfiguration={notes}",
        "-XX:AOTCache={made}",
        *MODULE_FLAGS,
        COMPILE_FLAG,
        *ROOM_FLAGS,
    ],
    AHEAD_OF_TIME,
    10,
)


def _making(java: Path) -> _Making:
    return _PROFILES if (java_major_version(java) or 0) >= _FIRST_WITH_PROFILES else _CLASSES


def make_archive(rehearse: Rehearsal) -> Path:
    """Make this user's archive, which every embedded server with the same Java and PySpark then uses; its path.

    It is made from what a server needs that starts and does what ``rehearse`` has it do. That takes some minutes of
    both cores and 2 GiB of memory, so nothing does it unasked. The file, about 250 MB, appears whole or not at all.

    Raises ``Unavailable`` when there is no Java or it fails.
    """
    java = find_java()
    folder = archive_stem(java).parent
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in class_archives(java):
        earlier.unlink()  # a server that starts from it would not note what it holds
    with TemporaryDirectory(prefix="noting-", dir=folder) as scratch:
        notes = Path(scratch) / "notes"
        _record(java, Path(scratch) / "server", notes, rehearse)
        return dump_archive(java, notes)


def _record(java: Path, folder: Path, notes: Path, rehearse: Rehearsal) -> None:
    options = [option.format(notes=notes) for option in _making(java).recording]
    jobs = SparkJobs.on_server(
        folder,
        java=java,
        java_options=options,
        heap_bytes=2 * GIBIBYTE,
        stop_seconds=RECORD_SECONDS,  # it writes its notes when it ends
        start_timeout_seconds=START_SECONDS,
    )
    try:
        jobs.warm_up()
        for _ in range(_making(java).rehearsals):
            rehearse(jobs)
    finally:
        jobs.close()


def dump_archive(java: Path, notes: Path) -> Path:
    """Make the archive of what the file ``notes`` names; its path. Raises ``Unavailable``."""
    stem, making = archive_stem(java), _making(java)
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Beside the archive: a rename must not cross file systems.
    with TemporaryDirectory(prefix="dumping-", dir=stem.parent) as scratch:
        made = Path(scratch) / f"spark{making.suffix}"
        _dump(java, [option.format(notes=notes, made=made) for option in making.dumping], made)
        with open(made, "rb") as file:
            os.fsync(file.fileno())
        archive = stem.with_name(f"{stem.name}-{made.stat().st_size}{making.suffix}")
        os.replace(made, archive)
    return archive


def _dump(java: Path, options: Sequence[str], made: Path) -> None:
    try:
        dumped = subprocess.run(  # noqa: S603  # this machine's Java, as its administrator named it
            [str(java), *options, "-XX:+UseParallelGC", "-Xmx1g", "-cp", f"{spark_jars()}/*"],
            capture_output=True,
            text=True,
            timeout=DUMP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"The archive of Spark's classes cannot be made: {error}.") from error
    if dumped.returncode or not made.exists():
        said = " | ".join((dumped.stderr + dumped.stdout).splitlines()[-3:])
        raise Unavailable(f"The archive of Spark's classes cannot be made: {said}")
