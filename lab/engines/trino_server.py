"""A Trino of one process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx

from lab.faults.system import free_port
from tests.cluster import Node

VERSION: Final = "476"
_ARTIFACT: Final = f"io.trino:trino-server:{VERSION}:tar.gz"
_PLUGINS: Final = ("iceberg", "delta-lake")  # of 55, most of which would only take time to start
_JAVA: Final = 24  # the oldest that it runs on
_START_SECONDS: Final = 180
_JVM: Final = """\
-server
-Xmx2G
--add-modules=jdk.incubator.vector
-Djdk.attach.allowAttachSelf=true
-Dfile.encoding=UTF-8
--enable-native-access=ALL-UNNAMED
--sun-misc-unsafe-memory-access=allow
"""


class Impossible(Exception):
    """Why this machine cannot run Trino."""


class Trino:
    """A server in ``folder`` until ``exits`` closes, with the catalogs: the lines of a file each, by name."""

    def __init__(self, folder: Path, catalogs: Mapping[str, str], exits: ExitStack) -> None:
        java, home, port = _java(), _unpacked(folder), free_port()
        self.port = port
        for name, text in {
            "node.properties": f"node.environment=test\nnode.id=one\nnode.data-dir={folder / 'data'}\n",
            "jvm.config": _JVM,
            "config.properties": f"coordinator=true\nnode-scheduler.include-coordinator=true\n"
            f"http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\n",
            **{f"catalog/{name}.properties": text for name, text in catalogs.items()},
        }.items():
            path = home / "etc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environment = {**os.environ, "JAVA_HOME": str(java), "PATH": f"{java / 'bin'}:{os.environ['PATH']}"}
        server = Node("trino", folder, [str(home / "bin" / "launcher"), "run"], environment)
        exits.callback(server.stop)
        _wait(port)


def _java() -> Path:
    """Return the home of a Java that Trino runs on. Raise ``Impossible``."""
    home = Path(os.environ.get("TRINO_JAVA_HOME") or os.environ.get("JAVA_HOME") or sys.prefix)
    java = home / "bin" / "java"
    if java.exists():
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
        version = re.search(r'version "(\d+)', said)
        if version is not None and int(version[1]) >= _JAVA:
            return home
    raise Impossible(f"Trino {VERSION} needs Java {_JAVA} or later: set TRINO_JAVA_HOME to one")


def _unpacked(folder: Path) -> Path:
    """Return the home of a fresh Trino, which Maven fetches once. Raise ``Impossible``."""
    fetched = folder / "fetched"
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={fetched}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Impossible("there is no mvn here: install maven") from None
    if said.returncode:
        raise Impossible(f"Maven has no Trino: {said.stdout[-500:]}")
    with tarfile.open(fetched / f"trino-server-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    home = folder / f"trino-server-{VERSION}"
    for plugin in (home / "plugin").iterdir():
        if plugin.name not in _PLUGINS:
            shutil.rmtree(plugin)
    return home


def _wait(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            if not httpx.get(f"http://127.0.0.1:{port}/v1/info", trust_env=False).json()["starting"]:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise Impossible(f"Trino did not start in {_START_SECONDS} seconds")
