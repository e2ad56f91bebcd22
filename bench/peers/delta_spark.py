"""Delta Lake on Spark: MERGE, which rewrites every file that holds a matched key."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from bench.peers.spark import SparkTable
from bench.peers.spark_environment import DELTA_VERSION, SPARK_VERSION
from bench.peers.system import run

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 tasks for each reading of the log otherwise
}


class DeltaSpark(SparkTable):
    """A Delta table in a folder, with the properties that new tables have. A MERGE leaves nothing to do after it."""

    version = f"Delta {DELTA_VERSION}, Spark {SPARK_VERSION}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SETTINGS)

    def table(self, name: str) -> str:
        return f"delta.`{self.folder / name}`"

    def fill(self, name: str, rows: DataFrame) -> None:
        rows.write.format("delta").save(str(self.folder / name))


if __name__ == "__main__":
    run(DeltaSpark)
