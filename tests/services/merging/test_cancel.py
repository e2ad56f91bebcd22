"""Cancelled merges: pending, running, over, and those whose worker died."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from app.core.table.history import CatalogTask, Table, TaskState
from app.services.batches.batches import withdraw_batch
from app.services.merging.merges import request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.catalog.builders import claim_next
from tests.services.builders import committed, create_table, merge, post, run_next_merge, totals
from tests.services.executor import InterruptedExecutor, PatientExecutor, PythonExecutor


def cancel(site: MergeSite, table: Table, merge: CatalogTask) -> None:
    with site.database.transaction() as repository:
        repository.tasks.request_cancel(table.id, merge.id)


def after(site: MergeSite, table: Table, merge: CatalogTask) -> CatalogTask:
    with site.database.reading() as repository:
        return repository.tasks.get(table.id, merge.id)


def test_a_pending_merge_that_is_cancelled_is_never_run(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    wanted = request_merge(site.database, table.id)
    cancel(site, table, wanted)
    assert not run_next_merge(site, "worker")
    assert after(site, table, wanted).state is TaskState.CANCELLED
    assert executor.merges == 0


def test_a_running_merge_is_stopped_and_its_batches_stay_staged(site: MergeSite, images: Images) -> None:
    table = create_table(site.database)
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    patient = PatientExecutor()
    wanted = request_merge(site.database, table.id)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_next_merge, replace(site, executor=patient, lease_seconds=5), "worker")
        assert patient.started.wait(60)
        cancel(site, table, wanted)
        assert running.result()
    stopped = after(site, table, wanted)
    assert stopped.state is TaskState.CANCELLED
    assert "still staged" in (stopped.error or "")
    assert not committed(site.database, table)
    withdraw_batch(site.database, site.warehouse, (table.database, table.name), batch.id)
    merge(site, table, {"id": 1, "n": 5})
    assert totals(site.database, images, table, [1]) == [5]


def test_a_cancellation_that_comes_after_the_work_is_done_may_lose(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    wanted = request_merge(site.database, table.id)
    late = InterruptedExecutor(lambda: cancel(site, table, wanted))
    assert run_next_merge(replace(site, executor=late), "worker")
    assert after(site, table, wanted).state is TaskState.SUCCEEDED
    cancel(site, table, wanted)
    assert after(site, table, wanted).state is TaskState.SUCCEEDED


def test_a_merge_whose_lease_went_to_another_worker_stops_its_job(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    patient = PatientExecutor()
    wanted = request_merge(site.database, table.id)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_next_merge, replace(site, executor=patient, lease_seconds=5), "late")
        assert patient.started.wait(60)
        with site.database.transaction() as repository:
            repository.claimed_tasks.renew(wanted.id, "late", -1)
            assert claim_next(repository, "rival", 600) is not None
        assert running.result()
    assert after(site, table, wanted).state is TaskState.RUNNING
