"""What a scrape looks up of a service: what has to be looked at, what grows old, what expires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
import trustme

from app.catalog.shared.models import batches, merges
from app.core.access import Role
from app.core.table.history import BatchState, TaskTrigger
from app.core.table.published import Format
from app.core.table.upkeep.damage import DamagedFile, DamageReason
from app.files.named_files import file_of_batch
from app.services.access.tokens import create_token
from app.services.operating.scrapes import scrape_readings
from app.services.shared.damage import note
from app.services.shared.executor import MergeSite
from app.services.upkeep.backups import back_up
from app.storage.backup_folder import BackupFolder
from app.storage.images import Images
from app.telemetry.entries import Measured
from tests.services.builders import create_table, merge, merge_staged, post, set_options


def numbers(
    site: MergeSite, images: Images, chain: Path | None = None
) -> dict[tuple[Measured, tuple[str, ...]], float]:
    return {
        (one.metric, one.values): one.number
        for one in scrape_readings(site.database, site.warehouse, images, 10, chain)
    }


def test_a_scrape_says_what_is_set_aside_damaged_and_waits_for_a_worker(site: MergeSite, images: Images) -> None:
    table = create_table(site.database)
    before = numbers(site, images)
    asked = (Measured.SET_ASIDE_BATCHES, Measured.DAMAGED_FILES, Measured.UNCLAIMED_SECONDS)
    assert [before[metric, ()] for metric in asked] == [0, 0, 0]
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    with site.database.transaction() as repository:
        repository.batches.transaction.execute(
            sa.update(batches).where(batches.c.id == batch.id).values(state=BatchState.POISONED)
        )
        repository.tasks.request(table.id, TaskTrigger.REQUEST)
        repository.tasks.transaction.execute(
            sa.update(merges).values(requested_at=repository.now() - timedelta(seconds=300))
        )
    note(site.database, [DamagedFile(file_of_batch(batch), DamageReason.MISSING, "")])
    after = numbers(site, images)
    assert [after[metric, ()] for metric in asked[:2]] == [1, 1]
    assert after[Measured.UNCLAIMED_SECONDS, ()] >= 300


def test_a_scrape_says_how_long_a_batch_waits_to_be_published(site: MergeSite, images: Images) -> None:
    lag = {form: (Measured.PUBLISHED_BEHIND, (form.value,)) for form in Format}
    table = create_table(site.database, {"iceberg.publish": "true"})
    merge(site, table, {"id": 1, "n": 1})  # the first merge is a version
    assert [numbers(site, images)[one] for one in lag.values()] == [0, 0]
    post(site.database, site.warehouse, {"id": 1, "n": 2})
    with site.database.transaction() as repository:
        earlier = repository.now() - timedelta(seconds=300)
        repository.batches.transaction.execute(sa.update(batches).values(accepted_at=earlier))
    for _ in range(2):  # staged, then merged
        found = numbers(site, images)
        assert found[lag[Format.DELTA]] == 0
        assert found[lag[Format.ICEBERG]] >= 300
        merge_staged(site.database, site.warehouse, table.id)
    set_options(site.database, table, {"iceberg.publish": "false"})
    assert numbers(site, images)[lag[Format.ICEBERG]] == 0


def test_a_scrape_says_how_old_a_backup_is_and_what_expires(site: MergeSite, images: Images, tmp_path: Path) -> None:
    create_table(site.database)
    assert (Measured.BACKUP_AGE, ()) not in numbers(site, images)
    back_up(site.database, site.warehouse, BackupFolder(tmp_path / "backups"), "0", lambda _: None)
    create_token(site.database, "till", Role.READ, expires="3d")
    chain = tmp_path / "chain.pem"
    ends = datetime.now(UTC) + timedelta(days=5)
    trustme.CA().issue_cert("localhost", not_after=ends).cert_chain_pems[0].write_to_path(chain)
    found = numbers(site, images, chain)
    assert 0 <= found[Measured.BACKUP_AGE, ()] < 600
    assert 2.9 < found[Measured.EXPIRES_SECONDS, ("token",)] / 86_400 <= 3
    assert 4.9 < found[Measured.EXPIRES_SECONDS, ("certificate",)] / 86_400 <= 5
