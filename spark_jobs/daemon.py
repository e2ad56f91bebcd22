"""The process of the embedded server that forks Spark's Python workers: each begins with the kernel imported."""

from __future__ import annotations

import gc

import pandas  # noqa: F401  # what every worker would import
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import spark_jobs.parcels  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage behind each task: what all share is no garbage
    manager()
