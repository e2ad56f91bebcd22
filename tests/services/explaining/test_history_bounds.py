"""What filing history takes of memory, and that no table keeps the others from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.history import HistoryFile, Table
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse, history_file
from app.files.row_groups import GATHERED_BYTES
from app.services.explaining.history import file_histories, file_history
from app.services.shared.executor import MergeSite
from app.services.snapshots.snapshots import roll_back
from app.storage.history.history import Cut, write_history
from app.storage.staging.staging import write_pieces
from tests.services.builders import QUIET, compact, create_table, merge, merge_staged, post, schema
from tests.storage.staged import batch_in

NOTES = (("id", "BIGINT"), ("note", "STRING"))
LARGE = "x" * 10_000  # packed it is nearly nothing


def create(site: MergeSite, name: str = "wide") -> Table:
    return create_table(site.database, QUIET, name, NOTES)


def files(site: MergeSite, table: Table) -> Sequence[HistoryFile]:
    with site.database.reading() as repository:
        return repository.history.files(table.id)


def groups_of(warehouse: Warehouse, table_id: str, file: HistoryFile) -> list[tuple[int, int]]:
    """The records of each row group, and what they take before they are packed."""
    footer = pq.read_metadata(warehouse.path(*history_file(table_id, file.name)))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


def test_files_are_joined_as_far_as_their_records_have_room_in_memory(site: MergeSite) -> None:
    table = create(site)
    cut = Cut(most_bytes=250_000)  # of which each file packs to a hundredth
    for number in range(6):
        merge(site, table, *({"id": number, "note": LARGE} for _ in range(10)))
        file_history(site.database, site.warehouse, table, cut)
    assert [file.records for file in files(site, table)] == [20, 20, 20]
    assert sum(file.size_bytes for file in files(site, table)) < 60_000
    file_history(site.database, site.warehouse, table)
    assert [file.records for file in files(site, table)] == [60]


def test_a_row_group_has_no_more_bytes_than_are_decoded_for_one_key(site: MergeSite) -> None:
    table = create(site)
    sizes = [1, 1, 1, 30_000, 1, 10_000, 10_000, 1]
    merge(site, table, *({"id": 1, "note": "x" * size} for size in sizes))
    file_history(site.database, site.warehouse, table, Cut(group_bytes=12_000))
    [file] = files(site, table)
    groups = groups_of(site.warehouse, table.id, file)
    assert sum(records for records, _ in groups) == len(sizes)
    assert all(size < 13_000 or records == 1 for records, size in groups)
    assert len(groups) < len(sizes)


def test_a_batch_that_is_packed_to_nearly_nothing_is_filed_a_row_group_at_a_time(warehouse: Warehouse) -> None:
    of: TableSchema = schema(*NOTES)
    decoder = RecordDecoder(compile_plan(of))
    large = "x" * (GATHERED_BYTES // 10)
    pieces = (decoder.decode([{"id": number, "note": large} for _ in range(10)]) for number in range(4))
    staged = write_pieces(warehouse, "t1", "b1", of, pieces)
    assert staged.size < 4 * GATHERED_BYTES // 10
    batch = batch_in(warehouse, staged.file)
    written = write_history(warehouse, "t1", [batch], of, Cut(most_bytes=100_000))
    assert [file.records for file in written] == [10] * 4
    assert [file.records for file in write_history(warehouse, "t1", [batch], of, Cut(most_bytes=2**28))] == [40]


@dataclass(frozen=True)
class PartlyBroken(Warehouse):
    """Has no place for the history of one table, and says so with an error that nobody thought of."""

    broken: str = ""

    def path(self, *segments: str) -> str:
        if segments[:2] == (self.broken, "history"):
            raise ValueError("offset overflow while concatenating arrays")
        return super().path(*segments)


def test_a_table_whose_history_cannot_be_filed_keeps_no_other_from_it(
    site: MergeSite, caplog: pytest.LogCaptureFixture
) -> None:
    tables = [create(site, name) for name in ("wide", "other")]
    for name, table in zip(("wide", "other"), tables, strict=True):
        post(site.database, site.warehouse, {"id": 1, "note": "x"}, name=name)
        merge_staged(site.database, site.warehouse, table.id)
    broken, other = tables
    file_histories(site.database, PartlyBroken(site.warehouse.root, broken=broken.id))
    assert f"history of table {broken.full_name} failed, and is retried" in caplog.text
    assert [len(files(site, table)) for table in (broken, other)] == [0, 1]


def test_a_table_of_few_merged_batches_waits_for_others(site: MergeSite) -> None:
    table = create(site)
    for number in range(2):
        merge(site, table, {"id": number})
        file_histories(site.database, site.warehouse, least_batches=2)
        assert len(files(site, table)) == number


def test_a_table_without_records_to_be_filed_is_not_looked_at_again(site: MergeSite) -> None:
    table = create(site)

    def behind() -> list[str]:
        file_histories(site.database, site.warehouse)
        with site.database.reading() as repository:
            return repository.history.behind(0)

    for number in range(2):
        merge(site, table, {"id": number})
        assert behind() == []
    compact(site, table)
    assert behind() == []
    with site.database.transaction() as repository:
        roll_back(repository, table, number=1)
    assert behind() == []
    merge(site, table, {"id": 3})
    compact(site, table)
    assert behind() == []
    assert sum(file.records for file in files(site, table)) == 3
