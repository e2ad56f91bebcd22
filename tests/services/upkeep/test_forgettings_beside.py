"""Forgetting beside all else: changelogs, published versions, views, filing, partitions, and who is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from app.core.errors import Conflict, Unavailable
from app.core.plan.records.faulty_events import FaultyEvent
from app.core.table.history import Table
from app.core.table.published import Format
from app.core.table.upkeep.forgetting import ForgettingState, RemnantKind
from app.kernel.tasks import Job, Progress, Result
from app.services.explaining.history import file_history
from app.services.publishing.publications import keep_versions
from app.services.rows.kept_views import Views
from app.services.rows.lookups import Consistency, Images, row_of
from app.services.shared.executor import MergeSite
from app.services.snapshots.changelogs import Position, read_page
from app.services.tables.drops import drop_table
from app.services.tables.partitions import drop_partitions
from app.services.upkeep.forgettings import ask_to_forget
from app.services.upkeep.forgotten_keys import Forgetter
from app.services.upkeep.sweeps import mark_run, sweep
from app.storage.history.history import write_history
from tests import delta_readers, iceberg_readers
from tests.services.builders import back_to, compact, create_table, snapshot_of
from tests.services.executor import PythonExecutor
from tests.services.publishing.delta_logs import folder_of, metadata, publish, publish_merges
from tests.services.upkeep.forgetting import (
    ADA,
    BOB,
    CYD,
    ENGINES,
    STREET,
    asked,
    check_gone,
    forget,
    forgotten,
    gone,
    known,
    merged,
    people,
    person,
    posted,
    row,
    row_at,
    traces,
)
from tests.storage.images.imaged import build

DEDUPLICATE = ENGINES["deduplicate"]


def test_an_event_that_is_set_aside_may_hold_the_key_until_it_is_withdrawn(
    site: MergeSite, images: Images, tmp_path: Path
) -> None:
    """Nobody can tell whose it is: it has faults."""
    table = people(site, {})
    merged(site, table, person(ADA, 1), person(BOB, 1))
    event = FaultyEvent(0, "debezium-json", "", json.dumps({"op": "c", "after": {"mail": ADA, "n": "x"}}), [])
    with site.database.transaction() as repository:
        repository.set_aside_events.add(table.id, "batch", "", [event])
        [kept] = repository.set_aside_events.page(table.id, limit=1)
    one = gone(site, forgotten(site, table), images)
    assert [(left.kind, left.count, left.example) for left in one.remnants] == [
        (RemnantKind.SET_ASIDE_EVENT, 1, kept.id)
    ]
    assert one.state is ForgettingState.FORGOTTEN
    with site.database.transaction() as repository:
        repository.set_aside_events.delete(table.id, [kept.id])
    assert gone(site, one, images).state is ForgettingState.GONE
    left = traces(tmp_path, ADA)
    assert [path for path in left if not path.endswith("-wal")] == []  # SQLite's log, until it is written over


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_changelogs_lose_the_key_alone_and_are_read_from_the_first_change_again(
    producer: str, site: MergeSite, tmp_path: Path
) -> None:
    table = people(site, {**DEDUPLICATE, "changelog-producer": producer})
    mails = [ADA, BOB, CYD, "dan@example.org", "eve@example.org"]
    merged(site, table, *(person(mail, 1, STREET if mail == ADA else None) for mail in mails))
    compact(site, table)

    def changes(start: Position | None = None, limit: int = 100) -> Any:
        return read_page(site.database, site.warehouse, ("shop", "people"), start, None, limit, one_schema=False)

    before = [(kind, values) for change in changes().changes for kind, values in change.rows]
    assert {values["mail"] for _, values in before} == set(mails)
    middle = changes(limit=2).rest
    one = forgotten(site, table)
    after = [(kind, values) for each in changes().changes for kind, values in each.rows]
    assert after == [(kind, values) for kind, values in before if values["mail"] != ADA]
    again = [(kind, values) for each in changes(Position.parse(middle.text)).changes for kind, values in each.rows]
    assert again == after  # nothing is passed over
    later = changes(limit=2)
    rest = [(kind, values) for each in changes(Position.parse(later.rest.text)).changes for kind, values in each.rows]
    assert rest == after[2:]
    check_gone(site, one, tmp_path)


PUBLISHED_READERS: Mapping[Format, Callable[[MergeSite, Table], delta_readers.Rows]] = {
    Format.DELTA: lambda site, table: delta_readers.with_deltalake(folder_of(site.warehouse, table)),
    Format.ICEBERG: lambda site, table: iceberg_readers.with_pyiceberg(metadata(site, table)),
}


@pytest.mark.parametrize("form", Format)
def test_a_published_version_goes_after_its_time_and_the_snapshot_it_kept_loses_the_key(
    form: Format, site: MergeSite, images: Images, tmp_path: Path
) -> None:
    def mails() -> list[str]:
        return [found["mail"] for found in PUBLISHED_READERS[form](site, table)]

    table = people(site, {**DEDUPLICATE, form.publish: "true"})
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    assert publish(site.database, site.warehouse) == 1
    with site.database.transaction() as repository:
        repository.tags.create(table.id, "first", 1, None)
    one = forgotten(site, table)
    assert publish(site.database, site.warehouse) == 1
    assert mails() == [BOB]
    assert one.held == [1]
    with pytest.raises(Conflict, match="other engines"):
        back_to(site, table, 1)
    waiting = gone(site, one, images)
    [remnant] = waiting.remnants
    assert (waiting.state, remnant.kind, remnant.count) == (ForgettingState.FORGOTTEN, f"{form}-version", 1)
    assert remnant.until is not None
    keep_versions(site.database, site.warehouse, table.id, form, remnant.until + timedelta(seconds=1))
    assert gone(site, one, images).held == []
    assert gone(site, one, images).state is ForgettingState.GONE
    assert row_at(site, images, table, ADA, "first") is None
    assert row_at(site, images, table, BOB, "first") == person(BOB, 1)
    assert mails() == [BOB]
    assert traces(tmp_path, ADA, STREET) == []


@pytest.mark.parametrize("form", Format)
def test_the_changelogs_of_a_published_version_lose_the_key_once_it_is_gone(
    form: Format, site: MergeSite, images: Images, tmp_path: Path
) -> None:
    def mails() -> list[str]:
        return sorted(found["mail"] for found in PUBLISHED_READERS[form](site, table))

    table = people(site, {**DEDUPLICATE, form.publish: "true", "changelog-producer": "lookup"})
    merged(site, table, person(BOB, 1))
    publish_merges(site.database, site.warehouse)
    merged(site, table, person(ADA, 1, STREET))
    merged(site, table, person(CYD, 1))
    publish_merges(site.database, site.warehouse)
    assert mails() == sorted([ADA, BOB, CYD])
    one = forgotten(site, table)
    assert mails() == sorted([ADA, BOB, CYD])  # the files of a version stay as they are
    compact(site, table)
    publish_merges(site.database, site.warehouse)
    assert mails() == [BOB, CYD]
    [remnant] = gone(site, one, images).remnants
    assert remnant.until is not None
    keep_versions(site.database, site.warehouse, table.id, form, remnant.until + timedelta(seconds=1))
    assert gone(site, one, images).held == []
    assert gone(site, one, images).state is ForgettingState.GONE
    assert mails() == [BOB, CYD]
    assert traces(tmp_path, ADA, STREET) == []


def test_other_keys_are_forgotten_while_only_a_published_version_keeps_a_run(site: MergeSite) -> None:
    newest = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 ms"}
    table = people(site, {**DEDUPLICATE, **newest, Format.DELTA.publish: "true"})
    merged(site, table, person(ADA, 1), person(BOB, 1))
    assert publish(site.database, site.warehouse) == 1
    merged(site, table, person(CYD, 1))
    compact(site, table)
    sweep(site.database, site.warehouse)
    assert forgotten(site, table, ADA).held != []
    assert forgotten(site, table, BOB).state is ForgettingState.FORGOTTEN


def test_a_process_that_has_staged_records_in_memory_forgets_them(site: MergeSite, images: Images) -> None:
    table = people(site, DEDUPLICATE)
    views = Views(site.database, site.warehouse)
    posted(site, person(ADA, 1, STREET), person(BOB, 1))
    posted(site, person(BOB, 2))

    def rows() -> list[Any]:
        view = views.current(("shop", "people"), Consistency.LATEST)
        keys = [(mail,) for mail in (ADA, BOB)]
        return [[record.values["at"] for record in view.staged_records(site.warehouse, key)] for key in keys]

    assert rows() == [[1], [1, 2]]
    forgotten(site, table)
    assert rows() == [[], [1, 2]]
    assert row_of(views.current(("shop", "people"), Consistency.LATEST), images, [BOB]).row == person(BOB, 2)


def test_images_go_with_the_runs_that_they_are_of(site: MergeSite, images: Images, tmp_path: Path) -> None:
    table = people(site, DEDUPLICATE)
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    row(site, images, table, ADA)
    build(images)
    assert [path for path in traces(tmp_path, STREET) if path.startswith("images/")] != []
    one = forgotten(site, table)
    with site.database.reading() as repository:
        images.keep_only(repository.snapshots.live_run_ids())
    check_gone(site, one, tmp_path, images)


def test_history_that_is_filed_meanwhile_does_not_bring_the_key_back(site: MergeSite, tmp_path: Path) -> None:
    table = people(site, DEDUPLICATE)
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    with site.database.reading() as repository:
        before, waiting = repository.history.extent(table.id), repository.history.unfiled(table.id)
        schema = repository.tables.schema_at(table.id, 0)
    # What a filer has done when it falls asleep.
    files = write_history(site.warehouse, table.id, waiting, schema)
    one = forgotten(site, table)
    with site.database.transaction() as repository:
        assert not repository.history.file(table.id, before, 1, files, waiting)
    file_history(site.database, site.warehouse, table)
    check_gone(site, one, tmp_path)


def test_partitions_and_keys_of_several_columns(site: MergeSite, images: Images, tmp_path: Path) -> None:
    columns = (("shop", "STRING"), ("nr", "INT"), ("street", "STRING"))
    table = create_table(site.database, {}, "parted", columns, key=("shop", "nr"), partitions=("shop",))
    rows = [{"shop": shop, "nr": nr, "street": f"{STREET} {shop} {nr}"} for shop in ("a", "b") for nr in (1, 2)]
    merged(site, table, *rows, {"shop": "c", "nr": 1, "street": f"{STREET} c 1"})
    with site.database.transaction() as repository:
        now = repository.tables.existing(table.id)
        one = ask_to_forget(repository, now, [{"shop": "a", "nr": 1}, {"shop": "c", "nr": 1}], "")
    assert forget(site) == 1
    current = snapshot_of(site.database, table)
    assert [run.partition for run in current.runs] == ['{"shop":"a"}', '{"shop":"b"}']  # of the third nothing is left
    assert current.rows == 3
    assert drop_partitions(site.database, ("shop", "parted"), [{"shop": "b"}]) == ['{"shop":"b"}']
    compact(site, table)
    assert gone(site, one, images).state is ForgettingState.GONE
    assert traces(tmp_path, f"{STREET} a 1", f"{STREET} c 1") == []
    assert traces(tmp_path, f"{STREET} a 2") != []


def test_two_requests_for_a_key_and_two_workers_at_once_come_to_the_same(site: MergeSite, images: Images) -> None:
    table = people(site, ENGINES["aggregation"])
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    first = asked(site, table)
    posted(site, person(ADA, 2, STREET))
    second = asked(site, table, ADA, BOB)
    posted(site, person(ADA, 3, "new"))
    workers = [Thread(target=forget, args=(site,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [known(site, one).state for one in (first, second)] == [ForgettingState.FORGOTTEN] * 2
    assert (row(site, images, table, ADA), row(site, images, table, BOB)) == (person(ADA, 3, "new"), None)
    merged(site, table, person(CYD, 1))
    assert row(site, images, table, ADA, latest=False) == person(ADA, 3, "new")
    assert [gone(site, one).state for one in (first, second)] == [ForgettingState.GONE] * 2


def test_a_table_that_is_dropped_takes_its_forgettings_along(site: MergeSite, tmp_path: Path) -> None:
    table = people(site, DEDUPLICATE)
    merged(site, table, person(ADA, 1, STREET))
    asked(site, table)

    def drop(*_: str) -> None:
        if (Path(site.warehouse.path()) / table.id).exists():
            drop_table(site.database, site.warehouse, ("shop", "people"))

    assert Forgetter(site, drop).forget() == 0
    assert forget(site) == 0


def test_a_damaged_file_is_named_and_others_are_not_kept_waiting(site: MergeSite, images: Images) -> None:
    table = people(site, DEDUPLICATE)
    other = people(site, DEDUPLICATE, "other")
    for one in (table, other):
        merged(site, one, person(ADA, 1, STREET), person(BOB, 1))
    [data] = (Path(site.warehouse.path()) / table.id / "runs").rglob("*.parquet")
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    waits, done = asked(site, table), asked(site, other)
    clock = [0.0]
    worker = Forgetter(site, partial(mark_run, site.warehouse), lambda: clock[0])
    assert worker.forget() == 1
    [remnant] = known(site, waits).remnants
    assert (remnant.kind, remnant.example) == (RemnantKind.DAMAGED_FILE, str(data.relative_to(site.warehouse.path())))
    assert known(site, done).state is ForgettingState.FORGOTTEN
    data.write_bytes(whole)
    assert worker.forget() == 0  # not at once
    clock[0] = 60.0
    assert worker.forget() == 1
    assert row(site, images, table, ADA) is None


def test_tasks_share_the_files(site: MergeSite, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.upkeep.rewriting.TASK_BYTES", 1)
    executor = PythonExecutor()
    site = replace(site, executor=executor)
    table = people(site, DEDUPLICATE)
    for at in (1, 2):
        merged(site, table, person(ADA, at, STREET), person(BOB, at))
    posted(site, person(ADA, 3, STREET), person(BOB, 3))
    done = forgotten(site, table)
    assert executor.last is not None
    assert [len(task.rewrites) for task in executor.last.tasks] == [1] * 5  # two runs, three staging files
    assert (done.rows, done.records) == (2, 3)
    assert row(site, images, table, ADA) is None
    assert (row(site, images, table, BOB) or {})["at"] == 3


class Away(PythonExecutor):
    """Spark that answers from the second job on."""

    jobs = 0

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self.jobs += 1
        if self.jobs == 1:
            raise Unavailable("Spark does not answer")
        return super().run(tag, job, report)


def test_keys_are_forgotten_once_spark_answers(site: MergeSite, caplog: pytest.LogCaptureFixture) -> None:
    table = people(site, DEDUPLICATE)
    merged(site, table, person(ADA, 1, STREET))
    one, clock = asked(site, table), [0.0]
    worker = Forgetter(replace(site, executor=Away()), partial(mark_run, site.warehouse), lambda: clock[0])
    assert worker.forget() == 0
    assert "Spark does not answer" in caplog.text
    assert known(site, one).state is ForgettingState.PENDING
    clock[0] = 60.0
    assert worker.forget() == 1
    assert known(site, one).rows == 1


KILLED = """
import os, signal, sys
from app.catalog.database import CatalogDatabase
from app.services.upkeep.forgettings import ask_to_forget
from app.services.upkeep.forgotten_keys import Forgetter
from app.files.layout import Warehouse
from app.kernel.run import LocalExecutor
from app.services.shared.executor import MergeSite
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Forgetter(MergeSite(CatalogDatabase(sys.argv[1]), Warehouse(sys.argv[2]), LocalExecutor(), 60.0), die).forget()
"""


def test_a_worker_that_is_killed_midway_leaves_all_as_it_was_and_another_goes_on(
    site: MergeSite, images: Images, tmp_path: Path, catalog_url: str
) -> None:
    table = people(site, DEDUPLICATE)
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    posted(site, person(ADA, 2, STREET))
    one = asked(site, table)
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", KILLED, catalog_url, site.warehouse.root], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert known(site, one).state is ForgettingState.PENDING
        assert row(site, images, table, ADA) == person(ADA, 2, STREET)
    assert forget(site) == 1
    check_gone(site, one, tmp_path, images)
    assert row(site, images, table, BOB) == person(BOB, 1)
