"""Sends Keyfold's code to a remote Spark server, as an artifact of the session."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql.connect.session import SparkSession

import app
import spark_jobs

_PACKAGES: Final = ("core", "files", "kernel", "telemetry")  # of ``app``: what tasks import


def send_code(spark: SparkSession) -> None:
    """Send the code that tasks run to the server of a session, whose Python workers import it."""
    with tempfile.TemporaryDirectory(prefix="keyfold-") as folder:
        archive = Path(folder) / "keyfold_tasks.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as to:
            for path, name in _sources():
                to.write(path, name)
        spark.addArtifacts(str(archive), pyfile=True)


def _sources() -> Iterator[tuple[Path, str]]:
    of_app, of_jobs = (Path(package.__path__[0]) for package in (app, spark_jobs))
    yield of_app / "__init__.py", "app/__init__.py"
    for package in _PACKAGES:
        for path in sorted((of_app / package).rglob("*.py")):
            yield path, f"app/{path.relative_to(of_app)}"
    for name in ("__init__.py", "parcels.py"):
        yield of_jobs / name, f"spark_jobs/{name}"
