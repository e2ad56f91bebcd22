"""Debezium's engine as a process: its jars from Maven Central, its properties, and what it lacks on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from lab.debezium.source import Impossible, Source
from lab.faults.system import Kept

LIST, SINGLE = "list", "single"
_HERE: Final = Path(__file__).parent


def classpath(folder: Path, connector: str) -> str:
    """Debezium's jars with a connector, and the compiled feeder, as Java's class path. Raises ``Impossible``."""
    for tool, package in (("mvn", "maven"), ("javac", "a JDK of version 17 or later")):
        if shutil.which(tool) is None:
            raise Impossible(f"there is no {tool} here: install {package}")
    listing = folder / "classpath"
    fetched = subprocess.run(
        [
            "mvn",
            "-q",
            "-f",
            _HERE / "pom.xml",
            "dependency:build-classpath",
            f"-Dmdep.outputFile={listing}",
            f"-Dconnector={connector}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise Impossible(f"Maven has no Debezium: {fetched.stdout[-500:]}")
    jars = listing.read_text()
    subprocess.run(["javac", "-cp", jars, "-d", folder / "classes", _HERE / "Feeder.java"], check=True)
    return f"{folder / 'classes'}{os.pathsep}{jars}"


def feeder(folder: Path, jars: str, source: Source, url: str, mode: str, exits: ExitStack) -> Kept:
    """The process that posts the events of ``source`` to ``url``; it goes on where it was when it is killed."""
    properties = {
        "feeder.url": url,
        "feeder.mode": mode,
        "name": "feeder",
        "topic.prefix": "src",
        **source.properties,
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "errors.max.retries": "20",
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": "false",
        "converter.schemas.enable": "true",
        "converter.replace.null.with.default": "false",
    }
    settings = folder / "feeder.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars]
    kept = Kept("feeder", [*command, "Feeder", str(settings)], folder, dict(os.environ))
    exits.callback(kept.end)
    return kept
