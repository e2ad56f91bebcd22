"""Apache Iceberg on Spark, copy-on-write: MERGE rewrites every file that holds a matched key."""

from __future__ import annotations

from collections.abc import Mapping

from bench.peers.iceberg_spark import IcebergSpark
from bench.peers.system import run

COPY_ON_WRITE = {"write.merge.mode": "copy-on-write"}


class IcebergSparkCow(IcebergSpark):
    """The same table with another property. A MERGE leaves nothing to do after it."""

    properties: Mapping[str, str] = COPY_ON_WRITE

    def settle(self) -> None:
        """Do nothing: no row is marked as gone."""


if __name__ == "__main__":
    run(IcebergSparkCow)
