"""Why a task has no result: a value, never an exception, that names what is to blame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Batch, Run
from app.core.table.upkeep.damage import DamageReason, FileKind
from app.files.layout import data_file, staging_file
from app.kernel.run import LocalExecutor, run_tasks
from app.kernel.tasks import Failure, FailureKind, Job, Result, Task, Work, from_text, schema_text, to_text
from tests.builders import schema_of
from tests.oracle import Change, TableCase
from tests.site import Site

SUMMED = {"merge-engine": "aggregation", "fields.d.aggregate-function": "sum"}
BY_SEQUENCE = SUMMED | {"sequence.field": "g"}
REPLAYED = BY_SEQUENCE | {"aggregation.remove-record-on-delete": "true"}
LARGE = Decimal(9 * 10**35)


def site_of(folder: Path, columns: Sequence[tuple[str, str]], options: Mapping[str, str]) -> Site:
    table = TableCase((("k", "INT"), ("g", "INT"), *columns), ("k",), dict(options))
    return Site(folder, compile_plan(schema_of(table)))


def one_task(site: Site, work: Work, **of_task: Any) -> Task:
    number = site.schema_id
    schemas = {str(n): schema_text(plan.schema) for n, plan in enumerate(site.schemas)}
    return Task(work, site.table_id, schemas, number, "f" * 32, site.now, **of_task)


def failure_of(site: Site, work: Work, **of_task: Any) -> Failure:
    job = Job(site.warehouse.address, "a test", (one_task(site, work, **of_task),))
    [result] = LocalExecutor().run("", job, lambda *_: None)
    assert result.files == result.changes == ()
    assert result.failure is not None
    return result.failure


def added(key: int, total: Decimal, g: int = 1) -> Change:
    return Change("+I", {"k": key, "g": g, "d": total})


@pytest.mark.parametrize("options", [SUMMED, BY_SEQUENCE, REPLAYED])
def test_a_total_beyond_38_digits_names_its_batch_key_and_column(options: dict[str, str], tmp_path: Path) -> None:
    site = site_of(tmp_path, [("d", "DECIMAL(38, 2)")], options)
    batches = [site.stage([added(7, LARGE), added(8, LARGE)]), site.stage([added(8, -LARGE), added(7, LARGE)])]
    found = failure_of(site, Work.MERGE, batches=tuple(batches))
    assert (found.kind, found.column, found.key, found.batch_number) == (FailureKind.UNFOLDABLE, "d", {"k": 7}, 2)
    assert "DECIMAL(38, 2)" in found.message
    for batch in batches:
        site.merge_staged([batch])
    found = failure_of(site, Work.COMPACT, runs=tuple(site.runs), oldest=True)
    assert (found.kind, found.column, found.key) == (FailureKind.UNFOLDABLE, "d", {"k": 7})
    found = failure_of(site, Work.OVERFLOW, runs=tuple(site.runs), newer=1)
    assert (found.kind, found.column, found.key) == (FailureKind.UNFOLDABLE, "d", {"k": 7})


@pytest.mark.parametrize("options", [SUMMED, BY_SEQUENCE, REPLAYED])
def test_a_total_that_leaves_38_digits_on_the_way_and_comes_back_is_folded(
    options: dict[str, str], tmp_path: Path
) -> None:
    site = site_of(tmp_path, [("d", "DECIMAL(38, 2)")], options)
    parts = [added(7, part, g) for g, part in enumerate((LARGE, LARGE, -LARGE, -LARGE, Decimal(1)))]
    site.merge([parts])
    assert site.rows() == {(7,): {"k": 7, "g": 4, "d": Decimal("1.00")}}
    site = site_of(tmp_path / "runs", [("d", "DECIMAL(38, 2)")], options)
    for part in parts:
        site.merge([[part]])
    site.compact(0, len(parts))
    assert site.rows() == {(7,): {"k": 7, "g": 4, "d": Decimal("1.00")}}


@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("function", ["rbm32", "rbm64", "hll_sketch", "theta_sketch"])
def test_a_value_that_a_new_function_cannot_read_names_its_batch_key_and_column(
    function: str, records: int, tmp_path: Path
) -> None:
    options = {"merge-engine": "aggregation", "fields.b.aggregate-function": "last_value"}
    site = site_of(tmp_path, [("b", "BYTES")], options)
    staged = [site.stage([Change("+I", {"k": n, "g": 1, "b": None}) for n in range(3)])]
    staged.append(site.stage([Change("+I", {"k": 1, "g": 1, "b": b"no bitmap"})] * records))
    columns = (("k", "INT"), ("g", "INT"), ("b", "BYTES"))
    site.plan = compile_plan(schema_of(TableCase(columns, ("k",), options | {"fields.b.aggregate-function": function})))
    found = failure_of(site, Work.MERGE, batches=tuple(staged))
    assert (found.kind, found.column, found.key, found.batch_number) == (FailureKind.UNFOLDABLE, "b", {"k": 1}, 2)


def text_site(folder: Path) -> Site:
    """Return a site of texts that no codec makes smaller, so that a flipped bit is another text."""
    site = site_of(folder, [("t", "STRING")], {})
    for turn in range(2):
        texts = [sha256(b"%d %d" % (key, turn)).hexdigest() for key in range(900)]
        site.merge([[Change("+I", {"k": key, "g": 1, "t": text}) for key, text in enumerate(texts)]])
    return site


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def path_of(site: Site, run: Run) -> Path:
    return Path(site.warehouse.path(*data_file(site.table_id, run.id, run.files[0].name)))


def place_in_a_page(path: Path, column: str) -> int:
    """A byte behind the middle of the pages of a column."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == column)
    return int(chunk.data_page_offset + chunk.total_compressed_size * 2 // 3)


@pytest.mark.parametrize("of_file", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("work", [Work.COMPACT, Work.CHANGES, Work.OVERFLOW])
def test_a_flipped_bit_of_a_run_is_damage_that_names_the_file(tmp_path: Path, work: Work, of_file: float) -> None:
    site = text_site(tmp_path)
    path = path_of(site, site.runs[1])
    flip(path, int(path.stat().st_size * of_file))
    found = failure_of(site, work, runs=tuple(site.runs), newer=1, changelog="c" * 32)
    assert found.kind is FailureKind.DAMAGED
    assert found.reason is DamageReason.WRONG_CONTENT
    assert (found.file.kind, found.file.run_id) == (FileKind.RUN, site.runs[1].id)
    assert found.file.path.endswith(path.name)


def test_pages_have_checksums_that_are_compared_where_there_is_no_digest(tmp_path: Path) -> None:
    site = text_site(tmp_path)
    path = path_of(site, site.runs[1])
    flip(path, place_in_a_page(path, "t"))
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(path, page_checksum_verification=True).read()
    [file] = site.runs[1].files
    unknown = replace(site.runs[1], files=(replace(file, digest=None, block_digests=None),))
    found = failure_of(site, Work.COMPACT, runs=(site.runs[0], unknown), oldest=True)
    assert (found.kind, found.file and found.file.run_id) == (FailureKind.DAMAGED, unknown.id)


@pytest.mark.parametrize("known", [True, False])
def test_a_flipped_bit_of_a_staging_file_is_damage_that_names_the_batch(tmp_path: Path, known: bool) -> None:
    site = text_site(tmp_path)
    path = Path(site.warehouse.path(*staging_file(site.table_id, site.batches[1].file)))
    flip(path, place_in_a_page(path, "t"))
    batches = [batch if known else replace(batch, digest=None) for batch in site.batches]
    found = failure_of(site, Work.MERGE, batches=tuple(batches))
    assert found.kind is FailureKind.DAMAGED
    assert (found.file.kind, found.file.batch_number) == (FileKind.STAGING, 2)


def test_a_file_that_is_gone_is_damage(tmp_path: Path) -> None:
    site = text_site(tmp_path)
    path_of(site, site.runs[0]).unlink()
    found = failure_of(site, Work.COMPACT, runs=tuple(site.runs), oldest=True)
    assert (found.kind, found.reason) == (FailureKind.DAMAGED, DamageReason.MISSING)


def test_a_task_that_cannot_be_understood_fails_no_other(tmp_path: Path) -> None:
    site = text_site(tmp_path)
    batches: tuple[Batch, ...] = tuple(site.batches)
    sound = one_task(site, Work.MERGE, batches=batches)
    body = sound.schemas["0"].replace('"type":"STRING"', '"type":"NO TYPE"')
    broken = replace(sound, schemas={"0": body})
    results = run_tasks(site.warehouse, [broken, sound, replace(sound, batches=())])
    assert [result.failure and result.failure.kind for result in results] == [FailureKind.FAILED, None, None]
    assert results[2] == Result()
    for result in results:
        assert from_text(Result, to_text(result)) == result


def test_an_unwritable_run_fails_its_task(tmp_path: Path) -> None:
    site = text_site(tmp_path)
    (tmp_path / site.table_id / "runs" / ("f" * 32)).write_bytes(b"no folder")
    assert failure_of(site, Work.MERGE, batches=tuple(site.batches)).kind is FailureKind.FAILED
