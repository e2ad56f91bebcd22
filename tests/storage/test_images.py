"""Images: what is found with them, without them, and what is never read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.core.plan.fold import lift
from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Run
from app.core.table.keys import Key, token_of
from app.core.table.records import Record, RowKind
from app.storage.images import Images
from app.storage.layout import Warehouse, data_file, run_folder
from app.storage.runs import read_run
from tests.services.builders import schema
from tests.services.executor import write_run

PLAN = compile_plan(schema(("id", "BIGINT"), ("n", "STRING")))
PROCESS = """
import sys
from app.storage.images import Images
from app.storage.layout import Warehouse
from app.storage.runs import read_run
images = Images(__import__("pathlib").Path(sys.argv[1]), Warehouse(sys.argv[2]))
for _ in range(20):
    images.want("t1", read_run(images.warehouse, "t1", "r1", 0))
images._builders.shutdown(wait=True)
"""


@pytest.fixture
def images(tmp_path: Path, warehouse: Warehouse) -> Iterator[Images]:
    opened = Images(tmp_path / "images", warehouse)
    yield opened
    opened.close()


def made(warehouse: Warehouse, count: int, *, token: Callable[[Key], int] | None = None, **layout: Any) -> Run:
    """A run with the rows ``(id, str(id))`` for ids below ``count``."""
    records = [Record(RowKind.INSERT, {"id": number, "n": str(number)}) for number in range(count)]
    folder = Path(warehouse.path(*run_folder("t1", "r1")))
    write_run(folder, PLAN, [lift(PLAN, record) for record in records], token=token, **layout)
    return read_run(warehouse, "t1", "r1", 0)


def found(images: Images, run: Run, key: int, token: int | None = None) -> Any:
    row = images.find("t1", run, token_of(PLAN.schema, (key,)) if token is None else token, ("id",), (key,))
    return None if row is None else row["n"]


def finish(images: Images) -> None:
    """Returns when the background has nothing to do any more; it takes nothing up again."""
    images._builders.shutdown(wait=True)


def built(images: Images, run: Run) -> list[Path]:
    """The image files of the run once the background has made them."""
    images.want("t1", run)
    finish(images)
    return sorted(images.folder.rglob("*.arrow"))


def remove_parquet(warehouse: Warehouse, run: Run) -> None:
    """From here on only images can answer."""
    for file in run.files:
        Path(warehouse.path(*data_file("t1", run.id, file.name))).unlink()


@pytest.mark.parametrize("files", [1, 4])
def test_every_row_is_found_without_images_and_with_them(
    images: Images, warehouse: Warehouse, tmp_path: Path, files: int
) -> None:
    run = made(warehouse, 200, files=files, rows_per_group=7)
    wanted = [*map(str, range(200)), None, None]
    keys = [*range(200), 200, -1]
    assert [found(images, run, key) for key in keys] == wanted
    assert len(built(images, run)) == files
    remove_parquet(warehouse, run)
    again = Images(tmp_path / "images", warehouse)
    assert [found(again, run, key) for key in keys] == wanted
    again.close()


def test_without_an_image_the_answer_is_the_same_row(images: Images, warehouse: Warehouse, tmp_path: Path) -> None:
    run = made(warehouse, 30, rows_per_group=4)
    token = token_of(PLAN.schema, (17,))
    from_parquet = images.find("t1", run, token, ("id",), (17,))
    built(images, run)
    remove_parquet(warehouse, run)
    again = Images(tmp_path / "images", warehouse)
    assert again.find("t1", run, token, ("id",), (17,)) == from_parquet
    assert from_parquet is not None
    again.close()


@pytest.mark.parametrize("with_image", [False, True])
def test_keys_with_equal_tokens_are_told_apart(images: Images, warehouse: Warehouse, with_image: bool) -> None:
    run = made(warehouse, 40, token=lambda key: key[0] // 20, rows_per_group=3)
    if with_image:
        assert built(images, run)
        remove_parquet(warehouse, run)
    assert [found(images, run, key, token=key // 20) for key in range(40)] == [str(key) for key in range(40)]
    assert found(images, run, 5, token=1) is None
    assert found(images, run, 40, token=1) is None


@pytest.mark.parametrize("with_image", [False, True])
def test_the_smallest_and_the_largest_token_are_found(images: Images, warehouse: Warehouse, with_image: bool) -> None:
    tokens = [-(2**63), -1, 0, 2**63 - 1]
    run = made(warehouse, 4, token=lambda key: tokens[key[0]], rows_per_group=1)
    if with_image:
        assert built(images, run)
        remove_parquet(warehouse, run)
    assert [found(images, run, key, token) for key, token in enumerate(tokens)] == ["0", "1", "2", "3"]
    assert found(images, run, 9, token=5) is None  # between the row groups


def test_a_lookup_has_the_image_made_behind_it(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    assert not images.folder.exists()
    assert found(images, run, 1) == "1"
    finish(images)
    assert [path.name for path in images.folder.rglob("*") if path.is_file()] == ["part-00000.parquet.arrow"]
    remove_parquet(warehouse, run)
    assert found(images, run, 2) == "2"


def test_an_image_is_made_once_however_often_it_is_wanted(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3, files=2)
    first = built(images, run)
    inodes = [path.stat().st_ino for path in first]
    again = Images(images.folder, warehouse)
    assert [path.stat().st_ino for path in built(again, run)] == inodes


@pytest.mark.slow(reason="starts processes")
def test_processes_share_the_images_of_a_folder(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 2000, files=8, rows_per_group=50)
    command = [sys.executable, "-c", PROCESS, str(images.folder), warehouse.path()]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    remove_parquet(warehouse, run)
    assert [found(images, run, key) for key in range(2000)] == [str(key) for key in range(2000)]
    assert all(path.suffix == ".arrow" for path in images.folder.rglob("*") if path.is_file())


def test_an_image_that_is_still_being_written_is_not_read(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    folder = images.folder / "t1" / "r1"
    folder.mkdir(parents=True)
    (folder / "part-00000.parquet.arrow.4711.writing").write_bytes(b"ARROW1")
    assert [found(images, run, key) for key in range(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("keep", [0, 6, 200, -1])
def test_an_image_that_a_power_cut_left_broken_is_made_again(images: Images, warehouse: Warehouse, keep: int) -> None:
    run = made(warehouse, 500)
    [path] = built(images, run)
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    again = Images(images.folder, warehouse)
    assert [found(again, run, key) for key in range(500)] == [str(key) for key in range(500)]
    finish(again)
    assert path.read_bytes() == whole
    assert pa.ipc.open_file(path).read_all().num_rows == 500


def test_a_run_that_was_swept_away_leaves_no_image(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    remove_parquet(warehouse, run)
    assert built(images, run) == []
    assert not [path for path in images.folder.rglob("*") if path.is_file()]


def test_images_are_kept_by_run_also_where_runs_of_partitions_share_a_folder(
    images: Images, warehouse: Warehouse
) -> None:
    runs = {name: replace(made(warehouse, 3), id=name) for name in ("u.aa", "u.bb", "r1")}
    for name, run in runs.items():
        (images.folder / "t1" / name).mkdir(parents=True)
        (images.folder / "t1" / name / f"{run.files[0].name}.arrow").write_bytes(b"an image")
    images.keep_only({("t1", "u.aa"), ("other", "u.bb"), ("t1", "u")})
    assert [path.name for path in (images.folder / "t1").iterdir()] == ["u.aa"]
