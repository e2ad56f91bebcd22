"""What counting late records, and telling of them, takes at most."""

from __future__ import annotations

from dataclasses import replace
from weakref import ref

from app.catalog.batches.lateness import CountedMerge
from app.catalog.database import CatalogDatabase
from app.services.explaining.lateness import MOST_SENDERS, OTHERS, first_batches
from app.services.shared.executor import MergeSite
from tests.services.builders import merge_staged
from tests.services.explaining.test_lateness import count, create, report, send


class Summed(int):
    """A number of records that counts how often one is added to a sum."""

    sums = 0

    def __add__(self, other: int) -> Summed:
        Summed.sums += 1
        return Summed(int(self) + int(other))

    __radd__ = __add__


def test_the_first_batches_are_counted_and_none_behind_one_that_is_left_out(site: MergeSite) -> None:
    table = create(site.database, {"sequence.field": "s"})
    send(site.database, site, "", {"id": 1, "s": 1})
    merge = merge_staged(site.database, site.warehouse, table.id)
    with site.database.reading() as repository:
        [batch] = repository.batches.of_merge(merge.id)
    records = [3, 0, 4, 9, 1, 1]
    batches = [replace(batch, number=number, records=Summed(one)) for number, one in enumerate(records)]
    assert [one.number for one in first_batches(batches, 15)] == [0, 2]
    assert [one.number for one in first_batches(batches, 16)] == [0, 2, 3]
    assert [one.number for one in first_batches(batches, 99)] == [0, 2, 3, 4, 5]
    assert first_batches(batches, 2) == []
    Summed.sums = 0
    first_batches([replace(batch, records=Summed(1))] * 500, 499)
    assert Summed.sums <= 500


def test_of_many_senders_those_are_told_apart_that_sent_the_most(database: CatalogDatabase, site: MergeSite) -> None:
    table = create(database, {"sequence.field": "s"})
    for number in range(MOST_SENDERS + 5):
        records = [{"id": number, "s": 9 - one} for one in range(3 if number % 5 == 0 else 2)]
        send(database, site, f"sender-{number:02}", *records)
    assert count(database, site, table)
    send(database, site, "sender-00", {"id": 0, "s": 0})
    assert count(database, site, table)
    [lane] = report(database, table).lanes
    told = {one.sender: (one.counts.records, one.counts.late) for one in lane.senders}
    assert len(told) == MOST_SENDERS
    assert [told[f"sender-{number:02}"] for number in (0, 5, 20, 1)] == [(4, 3), (3, 2), (3, 2), (2, 1)]
    assert told[OTHERS] == (12, 6)
    assert sum(records for records, _ in told.values()) == report(database, table).records


def test_merges_are_read_while_their_counts_are_added(database: CatalogDatabase, site: MergeSite) -> None:
    table = create(database, {"sequence.field": "s"})
    for number in (3, 2, 1):
        send(database, site, "", {"id": 1, "s": number})
        assert count(database, site, table)
    there: list[ref[CountedMerge]] = []
    with database.reading() as repository:
        for merge in repository.late_merges.since(table.id, None, 2):
            assert [one() for one in there] == [None] * len(there)  # nobody holds those of before
            there.append(ref(merge))
    assert len(there) == 2
    assert report(database, table).merges == 3
