"""Apache Iceberg on Spark, merge-on-read: MERGE writes new rows and says which old ones are gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from bench.peers.spark import SparkTable
from bench.peers.spark_environment import ICEBERG_VERSION, SPARK_VERSION
from bench.peers.system import run

CATALOG = "spark.sql.catalog.bench"
SETTINGS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    CATALOG: "org.apache.iceberg.spark.SparkCatalog",
    f"{CATALOG}.type": "hadoop",
}
MERGE_ON_READ = {"format-version": "3", "write.merge.mode": "merge-on-read"}


class IcebergSpark(SparkTable):
    """An Iceberg table in a folder, which is its catalog, too. In format 3 the rows that are gone are deletion vectors.

    What is left to do after the batches is to rewrite all data files without them.
    """

    version = f"Iceberg {ICEBERG_VERSION}, Spark {SPARK_VERSION}"
    properties: Mapping[str, str] = MERGE_ON_READ

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {**SETTINGS, f"{CATALOG}.warehouse": str(folder / "warehouse")})

    def table(self, name: str) -> str:
        return f"bench.peers.{name}"

    def fill(self, name: str, rows: DataFrame) -> None:
        writer = rows.writeTo(self.table(name)).using("iceberg")
        for key, value in self.properties.items():
            writer = writer.tableProperty(key, value)
        writer.create()

    def settle(self) -> None:
        options = "map('rewrite-all', 'true')"
        self.session.sql(f"CALL bench.system.rewrite_data_files(table => 'peers.t', options => {options})")


if __name__ == "__main__":
    run(IcebergSpark)
