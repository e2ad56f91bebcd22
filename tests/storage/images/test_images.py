"""Images: what is found with them, without them, and what is never read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.answers import to_json
from app.core.table.keys import token_of
from app.core.table.records import Record, RowKind
from app.files.layout import Warehouse, data_file
from app.storage.images import Answer, Images
from app.storage.images.builder import Builder
from app.storage.images.requests import WANTED
from tests.services.builders import SUM, schema
from tests.storage.images.imaged import PLAN, answered, build, built, files_of, made, remove_parquet, run_of, state
from tests.written import read_run, write_run

PROCESS = """
import sys
from pathlib import Path
from tests.storage.images.imaged import PLAN
from app.storage.images import Answer, Images
from app.files.layout import Warehouse
from tests.written import read_run
images = Images(Path(sys.argv[1]), Warehouse(sys.argv[2]))
images.want("t1", read_run(images.warehouse, "t1", "r1", 0), PLAN.schema, PLAN)
assert images.asking.settled(100)
images.close()
"""


def again(images: Images) -> Images:
    """The same folder in another process, as it were, which leaves building to others."""
    other = Images(images.folder, images.warehouse)
    other.asking.builds = False
    return other


def body(number: int) -> tuple[bytes, bool]:
    return (b'{"id":%d,"n":"%d"}' % (number, number), True)


@pytest.mark.parametrize("files", [1, 4])
def test_every_row_is_found_without_images_and_with_them(images: Images, warehouse: Warehouse, files: int) -> None:
    run = made(warehouse, 1000, files=files, rows_per_group=70)
    keys = [*range(1000), 1000, -1]
    wanted = [*map(str, range(1000)), None, None]
    assert [answered(images, run, key) for key in keys[:3]] == [None] * 3
    assert [state(images, run, key) for key in (0, 999, 1000)] == ["0", "999", None]
    assert len(built(images, run)) == 2 * files
    remove_parquet(warehouse, run)
    other = again(images)
    assert [state(other, run, key) for key in keys] == wanted
    assert [answered(other, run, key) for key in keys] == [*map(body, range(1000)), (None, False), (None, False)]


def test_many_keys_are_answered_as_each_of_them(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 600, files=3, token=lambda key: key[0] // 3)
    built(images, run)
    keys = [random.Random(5).randrange(-50, 700) for _ in range(500)]
    texts = [b"[%d]" % key for key in keys]
    many = images.answers("t1", run, PLAN.schema, PLAN, np.array([key // 3 for key in keys]), texts)
    assert [(one, True) if isinstance(one, bytes) else one and (one.body, one.written) for one in many] == [
        answered(images, run, key, token=key // 3) for key in keys
    ]


@pytest.mark.slow(reason="looks up every key of hundreds")
@pytest.mark.parametrize("with_image", [False, True])
def test_keys_with_equal_tokens_are_distinguished(images: Images, warehouse: Warehouse, with_image: bool) -> None:
    run = made(warehouse, 400, token=lambda key: key[0] // 20, rows_per_group=30)
    if with_image:
        assert built(images, run)
        remove_parquet(warehouse, run)
        assert [answered(images, run, key, token=key // 20) for key in range(400)] == [*map(body, range(400))]
        assert answered(images, run, 5, token=1) == answered(images, run, 400, token=1) == (None, False)
    assert [state(images, run, key, token=key // 20) for key in range(400)] == [str(key) for key in range(400)]
    assert state(images, run, 5, token=1) is None
    assert state(images, run, 400, token=1) is None


def test_a_key_that_another_one_begins_with_is_another_key(images: Images, warehouse: Warehouse) -> None:
    plan = compile_plan(schema(("id", "STRING"), ("k", "STRING"), ("n", "INT"), key=("id", "k")))
    keys = [("a", "b"), ("a", ""), ("", "ab"), ("ab", ""), ('a","b', ""), ("a", 'b",')]
    records = [Record(RowKind.INSERT, {"id": a, "k": b, "n": n}) for n, (a, b) in enumerate(keys)]
    run = run_of(warehouse, records, plan, token=lambda _: 7)
    built(images, run, plan)
    for n, (a, b) in enumerate(keys):
        [one] = images.answers("t1", run, plan.schema, plan, np.array([7]), [_key(a, b)])
        reported = one.body if isinstance(one, Answer) else one
        assert reported.endswith(b'"n":%d}' % n)


def _key(*values: str) -> bytes:
    return to_json(list(values))


@pytest.mark.parametrize("with_image", [False, True])
def test_the_smallest_and_the_largest_token_are_found(images: Images, warehouse: Warehouse, with_image: bool) -> None:
    tokens = [-(2**63), -1, 0, 2**63 - 1]
    run = made(warehouse, 4, token=lambda key: tokens[key[0]], rows_per_group=1)
    if with_image:
        assert built(images, run)
        remove_parquet(warehouse, run)
        assert [answered(images, run, key, token) for key, token in enumerate(tokens)] == [*map(body, range(4))]
        many = images.answers("t1", run, PLAN.schema, PLAN, np.array(tokens), [b"[%d]" % key for key in range(4)])
        assert many == [body(key)[0] for key in range(4)]
    assert [state(images, run, key, token) for key, token in enumerate(tokens)] == ["0", "1", "2", "3"]
    assert state(images, run, 9, token=5) is None  # between the row groups


def test_a_deleted_row_is_distinguished_from_one_never_written(images: Images, warehouse: Warehouse) -> None:
    kinds = [RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    run = run_of(warehouse, [Record(kind, {"id": n, "n": str(n)}) for n, kind in enumerate(kinds)])
    built(images, run)
    assert [answered(images, run, key) for key in range(5)] == [
        body(0),
        (None, True),
        (None, True),
        body(3),
        (None, False),
    ]


def test_a_total_outside_its_column_is_left_to_the_state_row(images: Images, warehouse: Warehouse) -> None:
    plan = compile_plan(schema(("id", "BIGINT"), ("n", "TINYINT"), options=SUM))
    states = [{"id": 1, "n": 5, "_kf_carry_1": None}, {"id": 2, "n": None, "_kf_carry_1": 300}]
    folder = Path(warehouse.path("t1", "runs", "r1"))
    write_run(folder, plan, [{**dict.fromkeys(name for name, _ in plan.state_columns), **one} for one in states])
    run = read_run(warehouse, "t1", "r1", 0)
    built(images, run, plan)
    assert answered(images, run, 2, plan=plan) is None
    assert images.find("t1", run, token_of(plan.schema, (2,)), ("id",), (2,)) is not None


@pytest.mark.slow(reason="starts processes")
def test_a_lookup_has_the_image_made_behind_it(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    assert not images.folder.exists()
    assert answered(images, run, 1) is None
    assert images.asking.settled(60)
    assert len(files_of(images)) == 1
    remove_parquet(warehouse, run)
    assert answered(images, run, 2) == body(2)


@pytest.mark.slow(reason="starts processes")
def test_a_builder_that_is_killed_is_replaced(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 300, files=30)
    images.want("t1", run, PLAN.schema, PLAN)
    deadline = time.monotonic() + 60
    while len(files_of(images)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process = images.asking._process
    os.kill(process.pid, signal.SIGKILL)
    assert images.asking.settled(120)
    remove_parquet(warehouse, run)
    assert [answered(images, run, key) for key in range(300)] == [*map(body, range(300))]


@pytest.mark.slow(reason="starts processes")
def test_processes_share_the_images_of_a_folder(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 2000, files=8, rows_per_group=50)
    command = [sys.executable, "-c", PROCESS, str(images.folder), warehouse.path()]
    root = Path(__file__).parent.parent.parent.parent
    processes = [subprocess.Popen(command, cwd=root) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    remove_parquet(warehouse, run)
    assert len(files_of(images)) == 8
    assert [answered(images, run, key) for key in range(2000)] == [*map(body, range(2000))]


def test_an_image_is_made_once_however_often_it_is_wanted(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3, files=2)
    inodes = [path.stat().st_ino for path in built(images, run)]
    assert [path.stat().st_ino for path in built(again(images), run)] == inodes
    assert list((images.folder / WANTED).iterdir()) == []


def test_what_a_killed_builder_left_is_cleared_away(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    left = images.folder / "builder.writing" / "0123.4711"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half an image")
    old = images.folder / "t1" / "r0" / "f.parquet.arrow"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"an image of version 0.1")
    assert len(built(images, run)) == 2
    assert not left.exists()
    assert not old.exists()


@pytest.mark.parametrize("keep", [0, 6, 60, 2000, -1])
def test_an_image_that_was_cut_off_is_made_again(images: Images, warehouse: Warehouse, keep: int) -> None:
    run = made(warehouse, 500)
    paths = built(images, run)
    whole = [path.read_bytes() for path in paths]
    for path, content in zip(paths, whole, strict=True):
        path.write_bytes(content[:keep])
    other = again(images)
    assert [answered(other, run, key) for key in range(3)] == [None] * 3
    assert [state(other, run, key) for key in range(3)] == ["0", "1", "2"]
    build(other)
    assert [path.read_bytes() for path in paths] == whole
    other.close()


@pytest.mark.slow(reason="reads a file a hundred times, each with a flipped bit")
def test_a_flipped_bit_is_never_a_wrong_row(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 600, rows_per_group=100)
    paths = built(images, run)
    draw = random.Random(3)
    for path in paths:
        whole = path.read_bytes()
        for _ in range(25):
            place = draw.randrange(len(whole))
            flipped = bytearray(whole)
            flipped[place] ^= 1 << draw.randrange(8)
            path.unlink(missing_ok=True)
            path.write_bytes(flipped)
            other = again(images)
            other.asking._closed.set()  # asks for nothing
            for key in range(0, 600, 17):
                assert answered(other, run, key) in (body(key), None), place
                assert state(other, run, key) == str(key), place
        path.write_bytes(whole)


def test_rows_that_are_not_in_order_make_no_image(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 50)
    path = Path(warehouse.path(*data_file("t1", "r1", run.files[0].name)))
    rows = pq.read_table(path)
    pq.write_table(rows.take(list(range(49, -1, -1))), path)
    assert built(images, read_run(warehouse, "t1", "r1", 0)) == []


def test_a_run_that_was_swept_away_leaves_no_image(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    remove_parquet(warehouse, run)
    images.want("t1", run, PLAN.schema, PLAN)
    build(images)
    assert files_of(images) == []
    images.want("t1", run, PLAN.schema, PLAN)
    assert list((images.folder / WANTED).iterdir()) == []  # it is not asked for again at once


def test_lookups_go_on_where_no_image_can_be_asked_for(warehouse: Warehouse, tmp_path: Path) -> None:
    run = made(warehouse, 3)
    in_the_way = tmp_path / "images"
    in_the_way.write_text("a file, not a folder")
    images = Images(in_the_way, warehouse)
    assert [answered(images, run, 1), state(images, run, 1)] == [None, "1"]
    images.close()


def test_without_room_no_image_is_requested(warehouse: Warehouse, tmp_path: Path) -> None:
    run = made(warehouse, 3)
    images = Images(tmp_path / "images", warehouse, 0)
    assert [answered(images, run, 1), state(images, run, 1)] == [None, "1"]
    assert not images.folder.exists()
    images.close()


def test_the_least_recently_used_images_leave_for_others(images: Images, warehouse: Warehouse) -> None:
    runs = [made(warehouse, 300, run_id=f"r{number}") for number in range(4)]
    for run in runs[:3]:
        images.want("t1", run, PLAN.schema, PLAN)
    build(images)
    paths = files_of(images)
    size = paths[0].stat().st_size
    for age, path in zip((500, 900, 700), paths, strict=True):
        os.utime(path, (time.time() - age, time.time() - age))
    other = again(images)
    assert answered(other, runs[1], 5) == body(5)  # the oldest is used now
    other.note_use()
    images.want("t1", runs[3], PLAN.schema, PLAN)
    build(images, limit=3 * size + 10)
    assert [path.parent.name for path in files_of(images)] == ["r0", "r1", "r3"]
    assert answered(again(images), runs[2], 5) is None
    assert state(images, runs[2], 5) == "5"


def test_images_in_use_leave_for_nobody(images: Images, warehouse: Warehouse) -> None:
    runs = [made(warehouse, 300, run_id=f"r{number}") for number in range(2)]
    images.want("t1", runs[0], PLAN.schema, PLAN)
    build(images)
    size = files_of(images)[0].stat().st_size
    images.want("t1", runs[1], PLAN.schema, PLAN)
    build(images, limit=size + 10)
    assert [path.parent.name for path in files_of(images)] == ["r0"]
    assert state(images, runs[1], 5) == "5"


def test_an_image_that_left_the_disk_is_let_go(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 3)
    paths = built(images, run)
    assert answered(images, run, 1) == body(1)
    for path in paths:
        path.unlink()
    assert answered(images, run, 1) == body(1)  # what is mapped answers on
    images.note_use()
    assert answered(images, run, 1) is None


def test_an_image_that_nobody_has_used_for_a_while_is_closed_and_opened_again(
    images: Images, warehouse: Warehouse
) -> None:
    run = made(warehouse, 3)
    paths = {str(path) for path in built(images, run)}
    for opened_after in ([True], [True, False]):
        assert answered(images, run, 1) == body(1)
        for opened in opened_after:
            images.note_use()
            assert bool(paths & opened_files()) is opened


def opened_files() -> set[str]:
    """What this process has open."""
    return {os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}


def test_images_are_kept_by_run_also_where_runs_of_partitions_share_a_folder(
    images: Images, warehouse: Warehouse
) -> None:
    runs = {name: replace(made(warehouse, 3), id=name) for name in ("u.aa", "u.bb", "r1")}
    for name in runs:
        (images.folder / "t1" / name).mkdir(parents=True)
        (images.folder / "t1" / name / "f.states.image").write_bytes(b"an image")
    images.keep_only({("t1", "u.aa"), ("other", "u.bb"), ("t1", "u")})
    assert [path.name for path in (images.folder / "t1").iterdir()] == ["u.aa"]


def test_requests_that_are_none_are_passed_over(images: Images, warehouse: Warehouse) -> None:
    wanted = images.folder / WANTED
    wanted.mkdir(parents=True)
    for name, text in {"a": "", "b": "[]", "c": "{}", "d": '{"table_id": 5}'}.items():
        (wanted / f"{name}.json").write_text(text)
    run = made(warehouse, 3)
    assert len(built(images, run)) == 2
    assert not Builder(images.folder, warehouse, 10**9).work()


def test_progress_counts_the_images_of_a_snapshot(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, 30, files=3)
    before = images.progress("t1", [run], PLAN)
    assert (before.files, before.made, before.size_bytes) == (3, 0, 0)
    built(images, run)
    after = images.progress("t1", [run], PLAN)
    assert (after.files, after.made) == (3, 3)
    assert after.size_bytes == sum(path.stat().st_size for path in files_of(images) if "states" not in path.name)


@pytest.mark.parametrize("kept", [0, 1, 4096])
def test_an_image_that_was_cut_off_while_it_is_open_is_a_miss(images: Images, warehouse: Warehouse, kept: int) -> None:
    """A page behind the end of a mapped file would kill the process."""
    run = made(warehouse, 1000)
    built(images, run)
    other = again(images)
    assert answered(other, run, 7) == body(7)
    assert state(other, run, 7) == "7"
    for path in files_of(images):
        os.truncate(path, kept)
    assert answered(other, run, 7) is None
    tokens = np.array([token_of(PLAN.schema, (7,))])
    assert other.answers("t1", run, PLAN.schema, PLAN, tokens, [b"[7]"]) == [None]
    assert state(other, run, 7) == "7"
    assert not files_of(images)
