"""The process of the embedded server that forks Spark's Python workers: each starts with the kernel imported."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

from app.files.memory import keep_memory_flat

# What every worker would import.
_IMPORTED: Final = ("pandas", "pyspark.sql.pandas.serializers", "pyspark.worker", "spark_jobs.parcels")

if __name__ == "__main__":
    keep_memory_flat(arenas=1)
    for module in _IMPORTED:
        import_module(module)
    gc.freeze()  # a worker collects garbage after each task: shared modules are excluded
    manager()
