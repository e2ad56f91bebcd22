"""Forgetting in tables that Iceberg readers follow: the files of runs and of changelogs share folders."""

from __future__ import annotations

from pathlib import Path

from app.core.table.published import Format
from app.services.publishing.publications import keep_versions
from app.services.shared.executor import MergeSite
from app.services.upkeep.forgettings import ask_to_forget
from tests.services.builders import compact, create_table, later
from tests.services.publishing.delta_logs import publish, publish_merges
from tests.services.upkeep.forgetting import (
    ADA,
    BOB,
    CALM,
    CYD,
    check_gone,
    forget,
    forgotten,
    gone,
    merged,
    people,
    person,
)

ICEBERG = {Format.ICEBERG.publish: "true"}


def test_lists_of_hidden_rows_of_kept_changes_do_not_keep_a_forgetting_open(site: MergeSite, tmp_path: Path) -> None:
    """The run of a partition has another folder than the changes of its merge."""
    options = {**CALM, **ICEBERG, "changelog-producer": "lookup"}
    columns = (("shop", "STRING"), ("mail", "STRING"), ("n", "INT"))
    table = create_table(site.database, options, "parted", columns, key=("shop", "mail"), partitions=("shop",))
    merged(site, table, {"shop": "a", "mail": ADA, "n": 1}, {"shop": "a", "mail": BOB, "n": 1})
    publish_merges(site.database, site.warehouse)
    for n in (2, 3):
        merged(site, table, {"shop": "a", "mail": BOB, "n": n})
    publish_merges(site.database, site.warehouse)
    assert [*tmp_path.rglob("*.hidden")] != []
    with site.database.transaction() as repository:
        now = repository.tables.existing(table.id)
        one = ask_to_forget(repository, now, [{"shop": "a", "mail": ADA}], "officer")
    assert forget(site) == 1
    compact(site, table)
    publish_merges(site.database, site.warehouse)
    keep_versions(site.database, site.warehouse, table.id, Format.ICEBERG, later(site.database, days=30))
    assert gone(site, one).held == []
    check_gone(site, one, tmp_path)


def test_manifests_of_a_run_go_while_the_changelog_of_its_compaction_is_kept(site: MergeSite, tmp_path: Path) -> None:
    """Bounds of a column in a manifest hold keys. The changelog lacks the key, so it is not written again."""
    table = people(site, {**ICEBERG, "changelog-producer": "full-compaction"})
    for record in (person(ADA, 1), person(CYD, 1)):
        merged(site, table, record)
        compact(site, table)
        publish(site.database, site.warehouse)
    one = forgotten(site, table)
    compact(site, table)
    publish(site.database, site.warehouse)
    keep_versions(site.database, site.warehouse, table.id, Format.ICEBERG, later(site.database, days=30))
    assert gone(site, one).held == []
    check_gone(site, one, tmp_path)
