"""What the Python client and PySpark's data source add to what they stand on: PyArrow, Parquet, ``keyfold load``."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.connect.session import SparkSession

from bench.figures import Figure, Ratio, interleaved, markdown, seconds
from bench.served.processes import keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.sizes import Sizes
from keyfold_client import Client, Table
from keyfold_client.spark import KeyfoldSource
from spark_jobs.server import EmbeddedServer

ROWS: Final = 1_000_000
_KINDS: Final = ("STRING", "BIGINT", "DOUBLE")
_WRITTEN: Final = count(1)
_ARROW: Final = {"Accept": "application/vnd.apache.arrow.stream"}


def measure_clients(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Yield the figures of the client, then those of Spark."""
    with TemporaryDirectory(prefix="keyfold-bench-") as name:
        folder = Path(name)
        with started(keyfold(folder / "data"), folder / "log") as server, client_of(server.url) as http:
            wait_ok(http, "/readyz")
            with Client(server.url, patience_seconds=600) as client:
                rows = _rows(sizes.rows(ROWS))
                client.create_database("bench")
                table = _table(client)
                table.upsert(rows)
                table.merge()
                yield list(markdown(_scans(server.url, table, sizes)))
                file = folder / "rows.parquet"
                pq.write_table(rows, file, row_group_size=250_000)
                spark = EmbeddedServer(folder / "spark")
                spark.start()
                spark.wait_ready(120)
                try:
                    yield list(markdown(_spark(spark.remote, client, server.url, table, file, sizes)))
                finally:
                    spark.stop()


def _rows(many: int) -> pa.Table:
    """``many`` rows of twelve columns."""
    numbers = np.arange(many)
    columns: dict[str, Any] = {"id": numbers}
    for place in range(11):
        kind = _KINDS[place % 3]
        words = pa.array([f"value {number}" for number in range(1000)]).take(pa.array(numbers % 1000))
        columns[f"c{place}"] = {"STRING": words, "BIGINT": numbers * place, "DOUBLE": numbers / 7}[kind]
    return pa.table(columns)


def _table(client: Client) -> Table:
    columns = ", ".join(f"c{place} {_KINDS[place % 3]}" for place in range(11))
    name = f"t{next(_WRITTEN)}"
    ddl = f"CREATE TABLE {name} (id BIGINT PRIMARY KEY NOT ENFORCED, {columns}) WITH ('merge.max-staleness' = '1 d')"
    [made] = client.create_tables("bench", ddl)
    return made


def _scans(url: str, table: Table, sizes: Sizes) -> Figure:
    path = f"{url}/v1/catalog/databases/bench/tables/{table.name}/rows:scan"
    request = urllib.request.Request(path, headers=_ARROW)  # noqa: S310  # our own service

    def alone() -> pa.Table:
        with urllib.request.urlopen(request) as answer:  # noqa: S310  # our own service
            return pa.ipc.open_stream(answer).read_all()

    steps = {
        "PyArrow alone": partial(seconds, alone),
        "to_arrow": partial(seconds, table.scan().to_arrow),
        "to_pandas": partial(seconds, table.scan().to_pandas),
        "to_polars": partial(seconds, table.scan().to_polars),
    }
    timings = interleaved(steps, sizes.rounds, warm_ups=1)
    about = f"A scan of {sizes.rows(ROWS):,} merged rows of 12 columns over HTTP, and what is made of it."
    return Figure("The Python client", about, timings, [Ratio("to_pandas", "PyArrow alone", 1.5)])


def _spark(remote: str, client: Client, url: str, table: Table, file: Path, sizes: Sizes) -> Figure:
    session = SparkSession.builder.remote(remote).create()
    session.dataSource.register(KeyfoldSource)
    counts = ["count(id)", *(f"count(c{place})" for place in range(11))]

    def read(partitions: int) -> None:
        frame = session.read.format("keyfold").options(url=url, partitions=str(partitions)).load(f"bench.{table.name}")
        frame.selectExpr(*counts).collect()

    def read_parquet() -> None:
        session.read.parquet(str(file)).selectExpr(*counts).collect()

    def write(into: Table) -> None:
        rows = session.read.parquet(str(file)).repartition(2)
        rows.write.format("keyfold").option("url", url).mode("append").save(f"bench.{into.name}")

    def load(into: Table) -> None:
        command = [sys.executable, "-m", "app.cli", "load", f"bench.{into.name}", str(file), "--url", url]
        subprocess.run(command, check=True, capture_output=True)

    steps: dict[str, Callable[[], float]] = {
        "Spark reads Parquet": partial(seconds, read_parquet),
        "Spark reads keyfold, 1 task": partial(seconds, partial(read, 1)),
        "Spark reads keyfold, 2 tasks": partial(seconds, partial(read, 2)),
        "Spark writes keyfold": lambda: seconds(partial(write, _table(client))),
        "keyfold load": lambda: seconds(partial(load, _table(client))),
    }
    timings = interleaved(steps, sizes.rounds, warm_ups=1)
    ratios = [
        Ratio("Spark reads keyfold, 2 tasks", "Spark reads Parquet", 1 / 0.7),
        Ratio("Spark writes keyfold", "keyfold load", 2.0),
        Ratio("Spark reads keyfold, 2 tasks", "Spark reads keyfold, 1 task"),
    ]
    session.stop()
    about = "The same rows. A read counts every column; a write is durable, not merged. All share the machine's cores."
    return Figure("PySpark's data source", about, timings, ratios)
