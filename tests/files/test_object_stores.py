"""What an ``s3://`` URI says, what an error of a store means, and how objects are read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.errors import Unavailable
from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind, NamedFile
from app.files.checksums import BLOCK_BYTES, checksums_of
from app.files.folders import entries
from app.files.layout import Warehouse
from app.files.named_files import check_file, opened_parquet, read_whole
from app.files.object_stores import PARAMETERS, check_root, read_uri, reason_of_store
from app.files.writable import MARK, claim, now_of, reason_of
from app.settings import Settings
from tests.object_store import CREDENTIALS, Fault, FaultyLine, flip, new_bucket, uri_of

pytestmark = pytest.mark.slow(reason="starts an object store, and waits for what does not answer")
ROWS = 400_000
VALUES: dict[str, tuple[str, Any]] = {
    "region": ("eu-west-1", "eu-west-1"),
    "endpoint_override": ("minio:9000", "minio:9000"),
    "scheme": ("http", "http"),
    "force_virtual_addressing": ("true", True),
    "tls_ca_file_path": ("/etc/ca.pem", "/etc/ca.pem"),
    "role_arn": ("arn:aws:iam::1:role/keyfold", "arn:aws:iam::1:role/keyfold"),
    "connect_timeout": ("1.5", 1.5),
    "request_timeout": ("10", 10.0),
    "max_attempts": ("4", 4),
}


def test_every_parameter_is_read() -> None:
    assert VALUES.keys() == PARAMETERS.keys()
    for name, (text, value) in VALUES.items():
        assert read_uri(f"s3://bucket/house?{name}={text}").parameters == {name: value}


def test_the_page_of_object_stores_says_every_parameter() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "object-stores.md").read_text()
    rows = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) >= PARAMETERS.keys()


def test_clients_are_reported_s3_and_spark_s3a_and_nobody_the_parameters() -> None:
    warehouse = Warehouse("s3://bucket/house/of/cards/?region=eu-west-1&endpoint_override=minio:9000&scheme=http")
    assert not warehouse.local
    assert warehouse.path("t1", "f") == "bucket/house/of/cards/t1/f"
    assert warehouse.uri("t1", "f") == "s3://bucket/house/of/cards/t1/f"
    assert warehouse.spark_uri("t1", "f") == "s3a://bucket/house/of/cards/t1/f"
    assert Warehouse("s3://bucket?region=eu-west-1").path("t1") == "bucket/t1"


@pytest.mark.parametrize(
    ("uri", "reported"),
    [
        ("s3a://bucket/house", "write s3://"),
        ("s3://AKIA:hidden@bucket/house", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/house?access_key=hidden", "parameter that is not known; those that are: connect_timeout"),
        ("s3://bucket/house?request_timeout=hidden", "request_timeout has a value"),
        ("s3://bucket/house?max_attempts=0", "max_attempts has a value"),
        ("s3://bucket/house?scheme=ftp", "scheme has a value"),
        ("s3://bucket/../hidden", "it is not s3://bucket/prefix"),
        ("s3://bucket/a hidden", "it is not s3://bucket/prefix"),
        ("s3://bucket/a%20hidden", "it is not s3://bucket/prefix"),
        ("s3://bucket//hidden", "it is not s3://bucket/prefix"),
        ("s3://bucket/house#hidden", "it is not s3://bucket/prefix"),
        ("s3://", "it is not s3://bucket/prefix"),
    ],
)
def test_a_uri_that_cannot_be_used_is_refused_at_the_start_and_never_repeated(uri: str, reported: str) -> None:
    with pytest.raises(ValueError, match=reported) as found:
        check_root(uri)
    assert "hidden" not in str(found.value)
    with pytest.raises(ValueError, match=reported):
        Settings(warehouse=uri)


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7", "the object store does not answer"),
        ("AWS Error NO_SUCH_BUCKET during PutObject operation: b", "its bucket is not there"),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject", "the object store has too much to do"),
        (
            "AWS Error UNKNOWN (HTTP status 418) during HeadObject",
            "the object store answered UNKNOWN (HTTP status 418)",
        ),
        ("AWS Error MALFORMED during PutObject operation: host-1", "the object store answered MALFORMED"),
    ],
)
def test_what_a_store_says_is_reported_in_words(said: str, reported: str) -> None:
    error = OSError(f"When uploading object with key 'k' in bucket 'b': {said}")
    assert reason_of_store(error) == reason_of(error) == reported


def test_other_errors_are_no_stores() -> None:
    assert reason_of_store(OSError(28, "No space left on device")) is None


@pytest.fixture
def warehouse(line: FaultyLine, store: str) -> Warehouse:
    made = Warehouse(uri_of(new_bucket(store), line.endpoint))
    claim(made)
    return made


@pytest.fixture
def file(warehouse: Warehouse) -> NamedFile:
    """Four columns of 3 MB each, in one row group."""
    path = warehouse.path("t1/runs/r1/part-0.parquet")
    rows = pa.table({name: np.arange(start, start + ROWS) for start, name in enumerate("abcd")})
    with warehouse.filesystem.open_output_stream(path) as stream:
        pq.write_table(rows, stream, row_group_size=ROWS, use_dictionary=False, compression="none")
    found = checksums_of(warehouse, path)
    return NamedFile(
        FileKind.RUN,
        "t1",
        "t1/runs/r1/part-0.parquet",
        found.size_bytes,
        found.digest,
        found.block_digests,
        run_id="r1",
    )


def test_what_lies_together_is_fetched_together_and_once(
    warehouse: Warehouse, file: NamedFile, line: FaultyLine
) -> None:
    line.requests.clear()
    with opened_parquet(warehouse, file) as parquet:
        read = parquet.read()
    assert read["d"].to_pylist() == list(range(3, ROWS + 3))
    gets = [request for request in line.requests if request.startswith("GET")]
    assert len(gets) <= 2 * 5  # the footer, and each column; twice where the store's client asks in two
    assert len(gets) < file.size_bytes / BLOCK_BYTES


def test_a_flipped_bit_is_noticed_at_the_next_reading_whatever_was_read_before(
    warehouse: Warehouse, file: NamedFile
) -> None:
    def read() -> int:
        with opened_parquet(warehouse, file) as parquet:
            return parquet.read().num_rows

    for place in (5, BLOCK_BYTES, 7_000_000, -20):
        assert read() == ROWS
        flip(warehouse, file.path, place)
        for look in (read, lambda: check_file(warehouse, file), lambda: read_whole(warehouse, file)):
            with pytest.raises(DamagedFile) as found:
                look()
            assert found.value.reason is DamageReason.WRONG_CONTENT
        flip(warehouse, file.path, place)


def test_an_object_of_another_size_and_one_that_is_gone_are_reported(warehouse: Warehouse, file: NamedFile) -> None:
    with pytest.raises(DamagedFile) as found, opened_parquet(warehouse, replace(file, size_bytes=5)):
        pass
    assert found.value.reason is DamageReason.WRONG_SIZE
    with pytest.raises(DamagedFile) as found, opened_parquet(warehouse, replace(file, path="t1/runs/r1/gone.parquet")):
        pass
    assert found.value.reason is DamageReason.MISSING


def test_an_answer_that_ends_in_its_middle_is_requested_again(
    warehouse: Warehouse, file: NamedFile, line: FaultyLine
) -> None:
    line.fail(Fault.CUT, "GET", times=1)
    assert check_file(warehouse, file).digest == file.digest
    line.fail(Fault.CUT, "GET")
    with pytest.raises(Unavailable, match="the object store does not answer"):
        check_file(warehouse, file)


def test_the_time_is_that_of_who_dates_the_objects(warehouse: Warehouse, line: FaultyLine) -> None:
    line.requests.clear()
    now = now_of(warehouse)
    assert [request.split()[0] for request in line.requests] == ["PUT", "HEAD"]
    claim(warehouse)
    [mark] = [entry for entry in entries(warehouse, warehouse.path()) if entry.name == MARK]
    assert mark.changed_at is not None
    assert now <= mark.changed_at


def test_a_store_that_does_not_know_us_is_reported_without_our_credentials(
    warehouse: Warehouse, file: NamedFile, line: FaultyLine, caplog: pytest.LogCaptureFixture
) -> None:
    line.fail(Fault.REFUSAL)
    with pytest.raises(Unavailable) as found:
        check_file(warehouse, file)
    for secret in (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in f"{found.value}{caplog.text}"
