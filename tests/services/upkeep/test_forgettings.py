"""Keys are forgotten: in rows, runs, snapshots, staged batches, history and changelogs, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.table.history import SnapshotKind
from app.core.table.upkeep.forgetting import ForgettingState, RemnantKind
from app.files.named_files import damaged_files
from app.services.explaining.history import file_history
from app.services.rows.lookups import Images
from app.services.shared.damage import named_files
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.services.upkeep.forgettings import ask_to_forget
from tests.catalog.builders import claim_next
from tests.services.builders import back_to, compact, snapshot_of
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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_is_in_no_answer_and_then_in_no_file_and_all_others_stay(
    engine: str, site: MergeSite, images: Images, tmp_path: Path
) -> None:
    table = people(site, ENGINES[engine])
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1), person(CYD, 1))
    merged(site, table, person(ADA, 2, STREET), person(BOB, 2))
    compact(site, table)
    file_history(site.database, site.warehouse, table)
    merged(site, table, person(BOB, 3), person(ADA, 3, STREET))
    posted(site, person(ADA, 4, STREET), person(BOB, 4))
    before = [row(site, images, table, mail, latest=latest) for mail in (BOB, CYD) for latest in (False, True)]
    one = asked(site, table)
    assert (one.state, row(site, images, table, ADA) is None) == (ForgettingState.PENDING, False)
    assert forget(site) == 1
    one = known(site, one)
    assert (one.state, one.keys, one.requested_by) == (ForgettingState.FORGOTTEN, 1, "officer")
    assert one.rows >= 2
    assert one.records == 2  # a merged one and a staged one, in no history file yet
    assert [row(site, images, table, ADA, latest=latest) for latest in (False, True)] == [None, None]
    after = [row(site, images, table, mail, latest=latest) for mail in (BOB, CYD) for latest in (False, True)]
    assert after == before
    with site.database.reading() as repository:
        assert damaged_files(site.warehouse, named_files(repository, table.id)) == []  # all have new digests
    assert traces(tmp_path / "warehouse", ADA, STREET) != []
    one = gone(site, one, images)
    assert (one.state, one.prints, one.salt, one.remnants) == (ForgettingState.GONE, [], "", [])
    assert traces(tmp_path, ADA, STREET) == []
    assert traces(tmp_path, BOB) != []
    merged(site, table, person(BOB, 5), person(CYD, 5))  # what is left is merged and compacted as ever
    compact(site, table)
    assert row(site, images, table, ADA) is None
    again = gone(site, forgotten(site, table), images)
    assert (again.state, again.rows, again.snapshot_id) == (ForgettingState.GONE, 0, None)


def test_older_snapshots_and_tags_stay_without_the_key(site: MergeSite, images: Images, tmp_path: Path) -> None:
    table = people(site, ENGINES["deduplicate"])
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    merged(site, table, person(BOB, 2))
    with site.database.transaction() as repository:
        repository.tags.create(table.id, "first", 1, None)
    assert row_at(site, images, table, ADA, "1") is not None  # it is known to this process as it was
    one = forgotten(site, table)
    assert one.snapshot_id == 3
    current = snapshot_of(site.database, table)
    assert (current.id, current.kind) == (3, SnapshotKind.FORGETTING)
    assert [row_at(site, images, table, ADA, version) for version in ("1", "2", "first")] == [None] * 3
    assert row_at(site, images, table, BOB, "first") == {**person(BOB, 1)}
    back_to(site, table, 1)
    assert (row(site, images, table, ADA), row(site, images, table, BOB)) == (None, person(BOB, 1))
    check_gone(site, one, tmp_path, images)


def test_later_records_begin_a_new_row(site: MergeSite, images: Images) -> None:
    table = people(site, ENGINES["partial-update"])
    merged(site, table, person(ADA, 5, STREET, visits=10))
    posted(site, person(ADA, 6, STREET, visits=100))
    one = asked(site, table)
    posted(site, person(ADA, 3, "new", visits=1))  # older by its sequence than what is forgotten
    assert forget(site) == 1
    assert row(site, images, table, ADA) == person(ADA, 3, "new", visits=1)
    merged(site, table, person(ADA, 2, "newer", visits=1))
    assert row(site, images, table, ADA, latest=False) == person(ADA, 3, "new", visits=2)
    assert gone(site, one).state is ForgettingState.GONE
    assert row(site, images, table, ADA) == person(ADA, 3, "new", visits=2)


def test_nothing_is_forgotten_while_a_merge_runs_and_no_merge_begins_before(site: MergeSite) -> None:
    table = people(site, ENGINES["deduplicate"])
    posted(site, person(ADA, 1, STREET))
    with site.database.transaction() as repository:
        repository.tasks.request(table.id, "request")  # type: ignore[arg-type]
        claimed = claim_next(repository, "somebody", 600)
    one = asked(site, table)
    assert forget(site) == 0
    [remnant] = known(site, one).remnants
    assert (remnant.kind, remnant.example) == (RemnantKind.TASK, claimed.task.id)
    with site.database.transaction() as repository:
        repository.claimed_tasks.fail(claimed.task.id, "somebody", f"of {ADA}", cancelled=True)
        repository.tasks.request(table.id, "request")  # type: ignore[arg-type]
        assert claim_next(repository, "another", 600) is None
    assert forget(site) == 1
    with site.database.transaction() as repository:
        assert ADA not in str(repository.tasks.get(table.id, claimed.task.id).error)
        assert claim_next(repository, "another", 600) is not None


def test_a_key_column_may_have_been_renamed(site: MergeSite, images: Images, tmp_path: Path) -> None:
    table = people(site, {**ENGINES["deduplicate"], "changelog-producer": "lookup"})
    merged(site, table, person(ADA, 1, STREET), person(BOB, 1))
    renamed = [{"action": "renameColumn", "fieldNames": ["mail"], "newName": "address"}]
    alter_table(site.database, ("shop", "people"), renamed)
    keys = [{"address": ADA}]
    with site.database.transaction() as repository:
        one = ask_to_forget(repository, repository.tables.existing(table.id), keys, "")
    assert forget(site) == 1
    assert (row(site, images, table, ADA), (row(site, images, table, BOB) or {})["address"]) == (None, BOB)
    check_gone(site, one, tmp_path, images)
