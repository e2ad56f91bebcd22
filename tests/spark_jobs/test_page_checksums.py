"""Pages carry checksums: Spark writes them, and fails a job that reads a page which is not what was written."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from app.core.plan.merge_plan import compile_plan
from app.storage.layout import data_file, staging_file
from spark_jobs.session import SparkConnection
from tests.builders import schema_of
from tests.oracle import Change, TableCase
from tests.spark_jobs.site import Site

TABLE = TableCase((("k", "INT"), ("text", "STRING")), ("k",), {})


def changes() -> list[Change]:
    """Of texts that Snappy leaves as they are: a flipped bit is another text, not a page that cannot be unpacked."""
    return [Change("+I", {"k": key, "text": sha256(b"%d" % key).hexdigest()}) for key in range(900)]


def flip_in_a_page(path: Path, column: str) -> None:
    """One bit behind the middle of the pages of a column."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == column)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size * 2 // 3] ^= 1
    path.write_bytes(content)


@pytest.fixture
def trusting(spark_remote: str) -> Iterator[SparkConnection]:
    """A session that verifies nothing: what it reads without an error fails elsewhere for its checksum alone."""
    connection = SparkConnection(spark_remote, configs={"parquet.page.verify-checksum.enabled": "false"})
    yield connection
    connection.close()


@pytest.fixture
def site(spark: SparkConnection, tmp_path: Path) -> Site:
    return Site(spark, tmp_path, compile_plan(schema_of(TABLE)))


def test_spark_writes_checksums_of_pages_and_fails_on_a_page_that_has_another(site: Site) -> None:
    site.merge([changes()])
    [file] = site.runs[0].files
    path = Path(site.warehouse.path(*data_file(site.table_id, site.runs[0].id, file.name)))
    pq.ParquetFile(path, page_checksum_verification=True).read()
    flip_in_a_page(path, "text")
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(path, page_checksum_verification=True).read()
    with pytest.raises(PySparkException, match=r"checksum"):
        site.compact(0, 1)


def test_spark_fails_on_a_page_of_a_staging_file_that_has_another_checksum(
    site: Site, trusting: SparkConnection
) -> None:
    staged = site.stage(changes())
    path = Path(site.warehouse.path(*staging_file(site.table_id, staged[0].rsplit("/", 1)[-1])))
    flip_in_a_page(path, "text")
    with pytest.raises(PySparkException, match=path.name):
        site.merge_staged([staged])
    site.spark = trusting
    site.merge_staged([staged])
