"""Asks the Python workers of a Spark server for the versions of Python and of the packages that tasks import."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark.sql.connect.session import SparkSession

PACKAGES: Final = ("pyarrow", "numpy", "xxhash", "pyroaring", "datasketches", "cachetools", "lark")


def missing_on(spark: SparkSession) -> tuple[str, ...]:
    """Return the missing requirements of the server's Python workers for tasks, one sentence each."""
    relation = spark.createDataFrame([("probe",)], "parcel string")
    [row] = relation.mapInArrow(_probe(PACKAGES), "result string").collect()
    versions: dict[str, Any] = json.loads(row[0])
    python, theirs = "{}.{}".format(*sys.version_info[:2]), versions.pop("python")
    wrong = () if python == theirs else (f"its Python workers run Python {theirs}, and this service Python {python}",)
    absent = [name for name, version in versions.items() if version is None]
    lacks = f"its Python workers lack {', '.join(absent)}: pip install {' '.join(absent)}"
    return (*wrong, lacks) if absent else wrong


def _probe(packages: tuple[str, ...]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that runs on a worker; it is pickled by value, and imports nothing of this project."""

    def probe(rows: Iterator[Any]) -> Iterator[Any]:
        import json  # noqa: PLC0415  # of the worker
        import sys  # noqa: PLC0415
        from importlib import metadata  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415

        versions: dict[str, str | None] = {"python": "{}.{}".format(*sys.version_info[:2])}
        for name in packages:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = None
        for _ in rows:
            yield pyarrow.record_batch([pyarrow.array([json.dumps(versions)])], names=["result"])

    return probe
