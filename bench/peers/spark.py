"""Spark with Delta's and Iceberg's packages: the session, and a table that ``MERGE INTO`` updates.

Run by the Python of ``.venv-spark-readers`` alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.peers.meaning import VALUES, inserted, updated
from bench.peers.spark_environment import PACKAGES
from bench.peers.system import System
from bench.wide_table import KEY, base_records, batch_records

ALWAYS = {
    "spark.jars.packages": ",".join(PACKAGES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.driver.maxResultSize": "0",  # a read gives all rows to this process
    "spark.sql.shuffle.partitions": "4",
}
_WARM_UP_ROWS = 1000


def started(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with Delta's and Iceberg's packages. The first one on a machine fetches them."""
    builder = SparkSession.Builder()
    for key, value in {**ALWAYS, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class SparkTable(System):
    """A table that each batch updates by one ``MERGE INTO``, which reads the batch from a Parquet file.

    Two tasks at once (``local[2]``), as many as the machine has cores; 4 GiB of heap, four shuffle partitions, all else
    as Spark has it, adaptive execution too. A small table is merged into first, as Keyfold's Spark is warmed up first.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.session = started({**SETTINGS, "spark.sql.warehouse.dir": str(folder / "unused"), **settings})
        self._create("warm_up", next(base_records(_WARM_UP_ROWS)))
        self._merge("warm_up", batch_records(1, _WARM_UP_ROWS, _WARM_UP_ROWS))

    @abstractmethod
    def fill(self, name: str, rows: DataFrame) -> None:
        """Make a table of rows."""

    @abstractmethod
    def table(self, name: str) -> str:
        """Return the name of a table in SQL."""

    def load(self, base: pa.Table) -> None:
        self._create("t", base)

    def update(self, batch: pa.Table) -> None:
        self._merge("t", batch)

    def read(self) -> pa.Table:
        return self.session.table(self.table("t")).toArrow()

    def close(self) -> None:
        self.session.stop()

    def _create(self, name: str, rows: pa.Table) -> None:
        file = self._given(rows)
        self.fill(name, self.session.read.parquet(str(file)))
        file.unlink()

    def _merge(self, name: str, batch: pa.Table) -> None:
        file = self._given(batch)
        self.session.read.parquet(str(file)).createOrReplaceTempView("s")
        later = ", ".join(f"t.{column} = {updated(column)}" for column in VALUES)
        columns, first = ", ".join((KEY, *VALUES)), ", ".join((f"s.{KEY}", *map(inserted, VALUES)))
        self.session.sql(
            f"MERGE INTO {self.table(name)} t USING s ON t.{KEY} = s.{KEY} "
            f"WHEN MATCHED THEN UPDATE SET {later} WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({first})"
        )
        file.unlink()

    def _given(self, rows: pa.Table) -> Path:
        file = self.folder / "given.parquet"
        pq.write_table(rows, file, compression="none")
        return file
