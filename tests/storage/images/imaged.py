"""Runs and their images without a process of builders: what is asked for is made when a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from app.core.plan.merging.fold import lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.answers import key_json
from app.core.table.history import Run
from app.core.table.keys import Key, token_of
from app.core.table.records import Record, RowKind
from app.files.layout import Warehouse, data_file, run_folder
from app.storage.images import Images
from app.storage.images.builder import Builder
from app.storage.images.folder import DEFAULT_BYTES
from app.storage.images.lock import builders_lock
from app.storage.images.requests import SUFFIX
from tests.services.builders import schema
from tests.written import read_run, write_run

PLAN = compile_plan(schema(("id", "BIGINT"), ("n", "STRING")))


def run_of(
    warehouse: Warehouse, records: Iterable[Record], plan: MergePlan = PLAN, run_id: str = "r1", **layout: Any
) -> Run:
    """A run with the state rows of records of different keys."""
    write_run(
        Path(warehouse.path(*run_folder("t1", run_id))), plan, [lift(plan, record) for record in records], **layout
    )
    return read_run(warehouse, "t1", run_id, 0)


def made(
    warehouse: Warehouse, count: int, *, token: Callable[[Key], int] | None = None, run_id: str = "r1", **layout: Any
) -> Run:
    """A run with the rows ``(id, str(id))`` for ids below ``count``."""
    records = [Record(RowKind.INSERT, {"id": number, "n": str(number)}) for number in range(count)]
    return run_of(warehouse, records, run_id=run_id, token=token, **layout)


def answered(images: Images, run: Run, key: int, token: int | None = None, plan: MergePlan = PLAN) -> Any:
    """What images answer for the key: None where none does, else (body, whether it was written)."""
    wanted = token_of(plan.schema, (key,)) if token is None else token
    answer = images.answer("t1", run, plan.schema, plan, wanted, key_json(plan.schema, (key,)))
    return None if answer is None else (answer.body, answer.written)


def state(images: Images, run: Run, key: int, token: int | None = None) -> Any:
    """The column ``n`` of the key's state row."""
    row = images.find("t1", run, token_of(PLAN.schema, (key,)) if token is None else token, ("id",), (key,))
    return None if row is None else row["n"]


def build(images: Images, limit: int = DEFAULT_BYTES, recent_seconds: float = 300.0) -> None:
    """Make all that was asked for, here and now."""
    while True:
        with builders_lock(images.folder) as alone:
            if alone:
                builder = Builder(images.folder, images.warehouse, limit, recent_seconds)
                while builder.work():
                    pass
                break
        time.sleep(0.05)
    assert images.asking.settled(30)


def files_of(images: Images) -> list[Path]:
    """The image files that there are."""
    return sorted(images.folder.rglob(f"*{SUFFIX}"))


def built(images: Images, run: Run, plan: MergePlan = PLAN) -> list[Path]:
    """The images of a run, of answers and of state rows, once they are made."""
    images.want("t1", run, plan.schema, plan)
    images.want_states("t1", run)
    build(images)
    return files_of(images)


def remove_parquet(warehouse: Warehouse, run: Run) -> None:
    """From here on only images can answer."""
    for file in run.files:
        Path(warehouse.path(*data_file("t1", run.id, file.name))).unlink()
