"""Random histories: after keys were forgotten a table is what it would be if their records had never come."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from app.core.table.upkeep.forgetting import ForgettingState
from app.services.explaining.history import file_history
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import compact, merge
from tests.services.one_catalog import catalog_kind
from tests.services.upkeep.forgetting import ENGINES, asked, forget, gone, known, people, posted, row

__all__ = ["catalog_kind"]

MAILS = [f"{name}@example.org" for name in "abcdef"]
TURNS = 24


def drawn(rng: random.Random) -> dict[str, Any]:
    kind = {"_kind": "-D"} if rng.random() < 0.1 else {}
    at, visits = rng.choice([None, *range(9)]), rng.randrange(5)
    return {"mail": rng.choice(MAILS), "at": at, "street": rng.choice([None, "x", "y", "z"]), "visits": visits, **kind}


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "deduplicate": ENGINES["deduplicate"],
    "partial-update": {**ENGINES["partial-update"], "partial-update.remove-record-on-sequence-group": "at"},
    "aggregation": {**ENGINES["aggregation"], "aggregation.remove-record-on-delete": "true"},
    "first-row": {**ENGINES["first-row"], "ignore-delete": "true"},
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("engine", OPTIONS)
def test_rows_are_those_of_a_table_that_never_had_the_records(
    engine: str, seed: int, site: MergeSite, images: Images
) -> None:
    rng = random.Random(f"{engine} {seed}")
    tables = [people(site, OPTIONS[engine], name) for name in ("whole", "without")]
    forgotten_at = rng.randrange(TURNS // 3, TURNS)
    mails = rng.sample(MAILS, rng.randrange(1, 3))
    one = None
    for turn in range(TURNS):
        records = [drawn(rng) for _ in range(rng.randrange(1, 6))]
        posted(site, *records, name="whole")
        left = [each for each in records if turn >= forgotten_at or each["mail"] not in mails]
        posted(site, *left, name="without")
        what = rng.random()
        if turn + 1 == forgotten_at:
            one = asked(site, tables[0], *mails)
            if rng.random() < 0.5:
                assert forget(site) == 1
        elif turn == forgotten_at:
            forget(site)
        for table in tables:
            if turn + 1 == forgotten_at:
                continue  # of one of them no merge would begin
            if what < 0.4:
                merge(site, table)
            elif what < 0.55:
                compact(site, table)
            elif what < 0.65:
                file_history(site.database, site.warehouse, table)
    for latest in (True, False):
        if not latest:
            for table in tables:
                merge(site, table)
        whole, without = ([row(site, images, table, mail, latest=latest) for mail in MAILS] for table in tables)
        assert whole == without
    assert one is not None
    assert known(site, one).state is ForgettingState.FORGOTTEN
    assert gone(site, one).state is ForgettingState.GONE
