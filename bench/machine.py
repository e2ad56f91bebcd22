"""The facts of the machine that a measurement was taken on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from spark_jobs.java import find_java, java_major_version

GIBIBYTE = 1 << 30


def machine_facts() -> Iterator[tuple[str, str]]:
    """(fact, value) of processors, memory, load and the versions that matter."""
    yield "processors", f"{len(os.sched_getaffinity(0))} × {_processor()}"
    yield "memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIBIBYTE:.0f} GiB"
    yield "load before", " ".join(f"{load:.1f}" for load in os.getloadavg())
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "Python", platform.python_version()
    yield "PySpark", version("pyspark")
    yield "Java", str(java_major_version(find_java()))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
