"""Paths and URIs of a table's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.files.layout import Warehouse, data_file, run_folder, staging_file, table_folder


def test_a_table_keeps_its_files_below_its_id(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    assert warehouse.path(*table_folder("t1")) == f"{tmp_path}/t1"
    assert warehouse.path(*staging_file("t1", "b.parquet")) == f"{tmp_path}/t1/staging/b.parquet"
    assert warehouse.path(*run_folder("t1", "r1")) == f"{tmp_path}/t1/runs/r1"
    assert warehouse.path(*data_file("t1", "r1", "f.parquet")) == f"{tmp_path}/t1/runs/r1/f.parquet"


def test_a_relative_folder_is_made_absolute_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Warehouse("house").uri("t1") == f"file://{tmp_path}/house/t1"


@pytest.mark.parametrize("name", ["with space", "per%20cent", "hash#mark", "question?mark", "ünï", "a+b"])
def test_a_uri_says_the_path_as_it_is_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    """Spark takes a path for its characters and decodes nothing (``tests/spark_jobs/test_partitions.py``)."""
    warehouse = Warehouse(str(tmp_path / name))
    assert warehouse.uri("t1", "f.parquet") == f"file://{tmp_path}/{name}/t1/f.parquet"
    assert warehouse.path("t1", "f.parquet") == f"{tmp_path}/{name}/t1/f.parquet"


def test_a_file_uri_is_the_local_folder_and_another_file_system_keeps_its_uris(tmp_path: Path) -> None:
    local, other = Warehouse(f"{tmp_path.as_uri()}/with%20space/"), Warehouse("mock:///bucket/house/")
    assert [local.local, other.local] == [True, False]
    assert [one.path("t1", "f") for one in (local, other)] == [f"{tmp_path}/with space/t1/f", "bucket/house/t1/f"]
    assert local.uri("t1") == f"file://{tmp_path}/with space/t1"
    assert other.uri("t1", "f") == "mock:///bucket/house/t1/f"
