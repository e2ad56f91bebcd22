"""Spark that reads tables as a user's would: it answers each line of JSON that it is sent with a file of Arrow.

A line is ``{"format": "delta", "path": …}`` or ``{"format": "iceberg", "table": …}``, with ``asOf`` for an earlier
version and ``to`` for the file; the answer is a line with the count of rows, or with the error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.3.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
SETTINGS = {
    "spark.jars.packages": ",".join(PACKAGES),
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.keyfold": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.keyfold.type": "rest",
    "spark.sql.catalog.keyfold.cache-enabled": "false",
}


def started(iceberg: str) -> SparkSession:
    builder = SparkSession.builder
    for key, value in (SETTINGS | {"spark.sql.catalog.keyfold.uri": iceberg}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def read(session: SparkSession, asked: dict[str, Any]) -> DataFrame:
    if asked["format"] == "delta":
        reader = session.read.format("delta")
        return (reader.option("versionAsOf", asked["asOf"]) if "asOf" in asked else reader).load(asked["path"])
    version = f" VERSION AS OF {asked['asOf']}" if "asOf" in asked else ""
    return session.sql(f"SELECT * FROM keyfold.{asked['table']}{version}")  # noqa: S608  # a test's own


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def main() -> None:
    session = started(sys.argv[1])
    say({"ready": session.version})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            rows = read(session, asked).toArrow()
            with pa.OSFile(asked["to"], "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            answer: dict[str, Any] = {"rows": len(rows)}
        except Exception as error:  # it is the test's to judge
            answer = {"error": str(error)[:2000]}
        say(answer)


main()
