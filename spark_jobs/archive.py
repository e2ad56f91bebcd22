"""An archive of Spark's loaded and checked classes, from which the embedded server starts with less work (Java's class
data sharing).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from app.core.errors import Unavailable
from spark_jobs.java import archive_stem, class_archives, find_java, spark_jars
from spark_jobs.server import GIBIBYTE, EmbeddedServer
from spark_jobs.session import SparkConnection

START_SECONDS = 300
DUMP_SECONDS = 1800


def make_archive() -> Path:
    """Make this user's archive, which every embedded server with the same Java and PySpark then uses; its path.

    It is made from the classes that a server loads until it is warm. That takes a minute or two of one core and 1 GiB
    of memory, so nothing does it unasked. The file, about 220 MB, appears whole or not at all.

    Raises ``Unavailable`` when there is no Java or it fails.
    """
    java = find_java()
    folder = archive_stem(java).parent
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in class_archives(java):
        earlier.unlink()  # a server that starts from it would not list what it holds
    with TemporaryDirectory(prefix="listing-", dir=folder) as scratch:
        classes = Path(scratch) / "classes.lst"
        _list_classes(java, Path(scratch) / "server", classes)
        return dump_classes(java, classes)


def _list_classes(java: Path, folder: Path, classes: Path) -> None:
    options = [f"-XX:DumpLoadedClassList={classes}"]
    server = EmbeddedServer(folder, java=java, java_options=options, heap_bytes=GIBIBYTE)
    connection = SparkConnection(server, start_timeout_seconds=START_SECONDS)
    try:
        connection.warm_up()
        connection.close()
    finally:
        server.stop()


def dump_classes(java: Path, classes: Path) -> Path:
    """Make the archive of the classes that are listed in the file ``classes``; its path. Raises ``Unavailable``."""
    stem = archive_stem(java)
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Beside the archive: a rename must not cross file systems.
    with TemporaryDirectory(prefix="dumping-", dir=stem.parent) as scratch:
        made = Path(scratch) / "spark.jsa"
        _dump(java, classes, made)
        with open(made, "rb") as file:
            os.fsync(file.fileno())
        archive = stem.with_name(f"{stem.name}-{made.stat().st_size}.jsa")
        os.replace(made, archive)
    return archive


def _dump(java: Path, classes: Path, made: Path) -> None:
    options = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}", "-XX:+UseParallelGC", "-Xmx1g"]
    try:
        dumped = subprocess.run(  # noqa: S603  # this machine's Java, as its administrator named it
            [str(java), "-Xshare:dump", *options, "-cp", f"{spark_jars()}/*"],
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
