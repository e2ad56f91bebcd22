"""Spark that reads tables as a user's would: it answers each line of JSON that it is sent with a file of Arrow.

A line is ``{"format": "delta", "path": …}``, ``{"format": "iceberg", "table": …}`` or ``{"format": "keyfold", "table":
…}``, with ``asOf`` for an earlier version and ``to`` for the file. ``into`` has the rows written to a table of the
service, too. The answer is a line with the count of rows, or with the error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.peers.spark import started
from keyfold_client.spark import KeyfoldSource

SETTINGS = {
    "spark.master": "local[1]",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.keyfold": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.keyfold.type": "rest",
    "spark.sql.catalog.keyfold.cache-enabled": "false",
}


def read(session: SparkSession, asked: dict[str, Any]) -> DataFrame:
    if asked["format"] == "delta":
        reader = session.read.format("delta")
        return (reader.option("versionAsOf", asked["asOf"]) if "asOf" in asked else reader).load(asked["path"])
    if asked["format"] == "keyfold":
        return session.read.format("keyfold").option("url", sys.argv[1]).load(asked["table"])
    version = f" VERSION AS OF {asked['asOf']}" if "asOf" in asked else ""
    return session.sql(f"SELECT * FROM keyfold.{asked['table']}{version}")  # noqa: S608  # a test's own


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def main() -> None:
    session = started(SETTINGS | {"spark.sql.catalog.keyfold.uri": f"{sys.argv[1]}/iceberg"})
    session.dataSource.register(KeyfoldSource)
    say({"ready": session.version})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = read(session, asked)
            if "into" in asked:
                found.write.format("keyfold").option("url", sys.argv[1]).mode("append").save(asked["into"])
            rows = found.toArrow()
            with pa.OSFile(asked["to"], "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            answer: dict[str, Any] = {"rows": len(rows)}
        except Exception as error:  # it is the test's to judge
            answer = {"error": str(error)[:2000]}
        say(answer)


main()
