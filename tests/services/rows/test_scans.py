"""A scan is the sum of all lookups: in all engines, whatever is merged, compacted, altered and staged meanwhile."""

from __future__ import annotations

import io
import json
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

from app.catalog.database import CatalogDatabase
from app.core.errors import Invalid, NotFound
from app.core.plan.records.row_filters import parse_filters
from app.core.table.history import BatchState, Blame, Table
from app.files.arrow import FOUND_COLUMN
from app.files.layout import Warehouse
from app.services.batches.batches import withdraw_batch
from app.services.rows.lookups import Consistency, get_rows
from app.services.rows.many_lookups import read_keys, rows_as_arrow
from app.services.rows.scan_pages import RowCount, ScanRoom, check_filters, count_rows, loaded, pinned_view, read_page
from app.services.rows.scans import BEGINNING, parts, read_scan, written
from app.services.rows.views import View, view_of
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.storage.images import Images
from app.storage.scans.shown import shown_schema
from app.storage.scans.writers import ARROW, CSV, NDJSON, WRITERS
from tests.catalog.builders import CATALOGS
from tests.services.builders import QUIET, compact, create_table, merge, merge_staged, post, schema
from tests.services.one_catalog import catalog_kind
from tests.services.rows.test_imaged_lookups import ENGINES, drawn

__all__ = ["catalog_kind"]

KEYS = range(12)
Rows = list[dict[str, Any]]


def seen(database: CatalogDatabase, warehouse: Warehouse, table: Table, *, latest: bool = True) -> View:
    with database.reading() as repository:
        view = view_of(repository, repository.tables.find(table.id) or table)
    return load(warehouse, view if latest else view.merged)


def load(warehouse: Warehouse, view: View) -> View:
    with ScanRoom().place() as place:
        return loaded(warehouse, view, place)


def scanned(warehouse: Warehouse, view: View, columns: Sequence[str] | None = None, *filters: str) -> Rows:
    scan = read_scan(view, columns, filters)
    body = b"".join(written(warehouse, scan, NDJSON))
    return [json.loads(line) for line in body.splitlines()]


def looked_up(database: CatalogDatabase, images: Images, table: Table, *, latest: bool = True) -> Rows:
    with database.reading() as repository:
        now = repository.tables.find(table.id) or table
        consistency = Consistency.LATEST if latest else Consistency.MERGED
        found = get_rows(repository, images, now, [(key,) for key in KEYS], consistency)
    return [one.row for one in found if one.row is not None]


def asked_in_arrow(images: Images, view: View) -> tuple[Rows, list[int]]:
    """The rows of all keys in Arrow, each key asked for twice, and the keys that have none."""
    keys = [{"id": key} for key in (*KEYS, *reversed(KEYS))]
    reported = pa.ipc.open_stream(rows_as_arrow(images, read_keys(view, keys))).read_all().to_pylist()
    once, again = reported[: len(KEYS)], reported[len(KEYS) :]
    assert [row["id"] for row in reported] == [key["id"] for key in keys]
    assert [_cells(row) for row in once] == [_cells(row) for row in reversed(again)]
    found = [{name: value for name, value in row.items() if name != FOUND_COLUMN} for row in once if row[FOUND_COLUMN]]
    return found, [row["id"] for row in once if not row[FOUND_COLUMN]]


def scanned_in_arrow(warehouse: Warehouse, view: View) -> Rows:
    body = b"".join(written(warehouse, read_scan(view, None, ()), ARROW))
    return list(pa.ipc.open_stream(body).read_all().to_pylist())


def _cells(row: Mapping[str, Any]) -> str:
    return repr(sorted(row.items()))  # NaN is itself, too


def by_key(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["id"])


def paged(database: CatalogDatabase, warehouse: Warehouse, table: Table, view: View, size: int, *filters: str) -> Rows:
    rows: Rows = []
    start = BEGINNING
    while True:
        scan = read_scan(view, None, filters)
        page = read_page(warehouse, scan, filters, size, start)
        body = page.body(NDJSON)
        rows += [json.loads(line) for line in body.splitlines()]
        if page.next_token is None:
            return rows
        assert len(body.splitlines()) == size
        check_filters(page.next_token, scan, filters)
        with database.reading() as repository:
            now = repository.tables.find(table.id) or table
            view, start = pinned_view(repository, now, page.next_token)
        view = load(warehouse, view)


@pytest.mark.slow(reason="plays a history of every engine")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_scan_is_the_sum_of_all_lookups(site: MergeSite, images: Images, engine: str) -> None:
    images.asking.builds = False
    table = create_table(site.database, {**ENGINES[engine], **QUIET})
    draw = random.Random(21)
    some = 0
    for turn in range(6):
        post(site.database, site.warehouse, *drawn(draw, engine))
        if turn != 2:
            merge_staged(site.database, site.warehouse, table.id)
        if turn == 3:
            compact(site, table)
        if turn == 4:
            alter_table(
                site.database, ("shop", "wide"), [{"action": "addColumn", "fieldNames": ["o"], "dataType": "STRING"}]
            )
        post(site.database, site.warehouse, *drawn(draw, engine))
        for latest in (False, True):
            view = seen(site.database, site.warehouse, table, latest=latest)
            found = scanned(site.warehouse, view)
            assert by_key(found) == by_key(looked_up(site.database, images, table, latest=latest))
            rows, without = asked_in_arrow(images, view)
            expected = by_key(scanned_in_arrow(site.warehouse, view))
            assert [_cells(row) for row in rows] == [_cells(row) for row in expected]
            assert {*without} == {*KEYS} - {row["id"] for row in found}
            for size in (1, 3, 100):
                assert paged(site.database, site.warehouse, table, view, size) == found
            some += len(found)
    assert some


def test_a_renamed_and_widened_column_is_scanned_as_it_is_now(site: MergeSite, images: Images) -> None:
    images.asking.builds = False
    table = create_table(site.database, QUIET, columns=(("id", "INT"), ("n", "INT"), ("r", "ROW<x INT>")))
    merge(site, table, *({"id": key, "n": key, "r": {"x": key}} for key in KEYS[:8]))
    alter_table(
        site.database,
        ("shop", "wide"),
        [
            {"action": "renameColumn", "fieldNames": ["n"], "newName": "m"},
            {"action": "updateColumnType", "fieldNames": ["m"], "newDataType": "BIGINT"},
            {"action": "addColumn", "fieldNames": ["r", "y"], "dataType": "INT"},
        ],
    )
    for _ in range(2):
        view = seen(site.database, site.warehouse, table)
        assert by_key(scanned(site.warehouse, view)) == by_key(looked_up(site.database, images, table))
        assert scanned(site.warehouse, view, ["m"], "m.eq.3") == [{"m": 3}]
        merge(site, table, {"id": 2, "m": 5_000_000_000, "r": {"x": 1, "y": 2}}, {"id": 11, "m": 1})


def partitioned(database: CatalogDatabase) -> Table:
    columns = (("id", "BIGINT"), ("day", "STRING"), ("n", "BIGINT"))
    return create_table(database, QUIET, columns=columns, key=("id", "day"), partitions=("day",))


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_partitions_are_scanned_one_after_the_other(database: CatalogDatabase, site: MergeSite) -> None:
    table = partitioned(database)
    expected: dict[tuple[int, str], int] = {}
    for turn in range(3):
        records = [{"id": key, "day": day, "n": turn} for day in "abc"[: turn + 1] for key in range(turn, 6)]
        expected |= {(record["id"], record["day"]): record["n"] for record in records}
        post(database, site.warehouse, *records)
        if turn < 2:
            merge_staged(database, site.warehouse, table.id)
    view = seen(database, site.warehouse, table)
    found = scanned(site.warehouse, view)
    assert {(row["id"], row["day"]): row["n"] for row in found} == expected
    assert len(found) == len(expected)
    assert [row["day"] for row in found] == sorted(row["day"] for row in found)
    for size in (1, 2, 7):
        assert paged(database, site.warehouse, table, view, size) == found


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_pages_go_on_as_they_began(database: CatalogDatabase, site: MergeSite) -> None:
    """What is posted, merged and altered between two pages is not seen."""
    table = create_table(database, QUIET)
    merge(site, table, *({"id": key, "n": 1} for key in KEYS))
    post(database, site.warehouse, *({"id": key, "n": 2} for key in range(6)))
    view = seen(database, site.warehouse, table)
    whole = scanned(site.warehouse, view)
    page = read_page(site.warehouse, read_scan(view, None, ()), (), 5)
    merge_staged(database, site.warehouse, table.id)
    alter_table(database, ("shop", "wide"), [{"action": "renameColumn", "fieldNames": ["n"], "newName": "m"}])
    post(database, site.warehouse, {"id": 3, "m": 9})
    with database.reading() as repository:
        now = repository.tables.find(table.id) or table
        assert page.next_token is not None
        pinned, start = pinned_view(repository, now, page.next_token)
    pinned = load(site.warehouse, pinned)
    scan = read_scan(pinned, None, ())
    rest = [row for _, part in parts(site.warehouse, scan, start) for row in part.batch.to_pylist()]
    assert rest == whole[5:]


TYPES = {
    "t": ("STRING", ["", "a,b", 'say "x"', "line\r\nfeed", "é", None, "new%", "a_b", "back\\slash"]),
    "b": ("BOOLEAN", [True, False, None]),
    "i": ("INT", [-1, 0, 7, None]),
    "f": ("DOUBLE", [0.5, -0.0, 1e300, None]),
    "c": ("DECIMAL(10, 2)", ["1.50", "-3.00", None]),
    "d": ("DATE", ["2026-01-31", "0001-01-01", None]),
    "s": ("TIMESTAMP(3)", ["2026-01-31T10:00:00", None]),
    "z": ("TIMESTAMP_LTZ(3)", ["2026-01-31T10:00:00Z", None]),
    "h": ("TIME(0)", ["10:00:00", None]),
    "y": ("BYTES", ["AAEC", "", None]),
    "a": ("ARRAY<INT>", [[1, 2], [], None]),
    "m": ("MAP<STRING, INT>", [{'k"': 1}, {}, None]),
    "r.x": ("ROW<p INT, q STRING>", [{"p": 1, "q": "z"}, None]),
}


@pytest.fixture
def typed(database: CatalogDatabase, site: MergeSite) -> Table:
    columns = (("id", "BIGINT"), *((name, kind) for name, (kind, _) in TYPES.items()))
    table = create_table(database, QUIET, columns=columns)
    draw = random.Random(3)
    for first in (0, 30):
        rows = [
            {"id": key} | {name: draw.choice(values) for name, (_, values) in TYPES.items()}
            for key in range(first, first + 40)
        ]
        merge(site, table, *rows)
    return table


def test_all_formats_hold_the_same_rows(database: CatalogDatabase, site: MergeSite, typed: Table) -> None:
    view = seen(database, site.warehouse, typed)
    scan = read_scan(view, None, ())
    rows = scanned(site.warehouse, view)
    assert len(rows) == 70
    batches = [part.batch for _, part in parts(site.warehouse, scan)]
    arrow = pa.ipc.open_stream(b"".join(WRITERS[ARROW].write(scan.columns, batches, scan.integers))).read_all()
    assert arrow.schema.field("h").type == pa.time32("ms")
    arrow = arrow.cast(shown_schema(scan.columns))
    encoders = {column.name: column.type.encoder for column in scan.columns}
    assert [{name: encoders[name](value) for name, value in row.items()} for row in arrow.to_pylist()] == rows
    text = b"".join(WRITERS[CSV].write(scan.columns, batches, scan.integers))
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(encoders, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    cells = csv.read_csv(
        io.BytesIO(text), convert_options=options, parse_options=csv.ParseOptions(newlines_in_values=True)
    )
    assert [{name: _cell(value) for name, value in row.items()} for row in rows] == cells.to_pylist()


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


@pytest.mark.slow(reason="asks every filter of every column")
def test_filters_agree_with_filtering_all_rows(database: CatalogDatabase, site: MergeSite, typed: Table) -> None:
    view = seen(database, site.warehouse, typed)
    rows = scanned(site.warehouse, view)
    by_name = view.table.schema.by_name
    asked = 0
    for name, (_, values) in TYPES.items():
        data_type = by_name[name].type
        for is_null in (True, False):
            found = scanned(site.warehouse, view, None, f"{name}.is.{'null' if is_null else 'not_null'}")
            assert found == [row for row in rows if (row[name] is None) is is_null]
        if data_type.nested:
            continue
        for value in {value for value in values if value is not None}:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            wanted = data_type.text_decoder(text)
            for word, meets in OPERATORS.items():
                if word not in ("eq", "ne") and not data_type.comparable:
                    continue
                expected = [
                    row for row in rows if row[name] is not None and meets(data_type.decoder(row[name]), wanted)
                ]
                assert scanned(site.warehouse, view, None, f"{name}.{word}.{text}") == expected, (name, word, text)
                asked += len(expected)
    assert asked
    some = [row for row in rows if row["i"] in (0, 7) and row["t"] is not None and row["t"] >= "b"]
    assert scanned(site.warehouse, view, None, "i.in.(0,7)", "t.gte.b") == some
    assert scanned(site.warehouse, view, None, 't.in.("a,b",é)') == [row for row in rows if row["t"] in ("a,b", "é")]
    for pattern, texts in {"a%": ("a,b", "a_b"), "a\\_b": ("a_b",), "%\n%": ("line\r\nfeed",), "_": ("é",)}.items():
        assert scanned(site.warehouse, view, None, f"t.like.{pattern}") == [row for row in rows if row["t"] in texts]
    assert paged(database, site.warehouse, typed, view, 3, "t.gte.b") == scanned(site.warehouse, view, None, "t.gte.b")


HOSTILE = [
    "",
    ".",
    "n",
    "n.",
    "n.eq",
    "n.eq.",
    "n.eq.x",
    "n.like.1",
    "m.eq.1",
    "n.in.1",
    "n.in.()",
    "n.in.(1",
    "n.is.x",
    "n.xx.1",
    "n.eq.1\x00",
    "n.eq.99999999999999999999",
    'n.in.("1)',
    "n.eq." + "9" * 5000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_filter_that_cannot_be_read_is_refused_with_a_fix(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_filters(schema(), [text])
    assert caught.value.violations[0].pointer == "/filter/0"
    assert caught.value.violations[0].fix


@pytest.mark.parametrize("text", ["", "x", "W10", "eyJhIjoxfQ", "WzEsMl0", "é", "[" * 400, "W1tbW1tb" * 60])
def test_a_page_token_that_no_page_gave_is_refused(database: CatalogDatabase, text: str) -> None:
    table = create_table(database, QUIET)
    with pytest.raises(Invalid), database.reading() as repository:
        pinned_view(repository, table, text)


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_page_of_an_expired_snapshot_says_so(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, QUIET)
    for n in range(2):
        merge(site, table, *({"id": key, "n": n} for key in KEYS))
        if n == 0:
            page = read_page(site.warehouse, read_scan(seen(database, site.warehouse, table), None, ()), (), 5)
    with database.transaction() as repository:
        repository.snapshots.expire(table.id, [2])
    assert page.next_token is not None
    with pytest.raises(NotFound), database.reading() as repository:
        pinned_view(repository, table, page.next_token)


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_pages_go_on_with_the_staged_batches_of_the_first_beside_one_that_is_set_aside(
    database: CatalogDatabase, site: MergeSite
) -> None:
    table = create_table(database, QUIET)
    staged, away, last = (post(database, site.warehouse, {"id": n, "n": n}) for n in range(3))
    with database.transaction() as repository:
        while not repository.set_aside.narrow(table.id, [away], Blame(BatchState.POISONED, "too large", away.id)):
            pass
    view = seen(database, site.warehouse, table)
    page = read_page(site.warehouse, read_scan(view, None, ()), (), 1)
    assert page.next_token is not None
    with database.reading() as repository:
        assert pinned_view(repository, table, page.next_token)[0].staged == (staged, last) == view.staged
    withdraw_batch(database, site.warehouse, ("shop", table.name), last.id)
    with pytest.raises(NotFound, match="begin it again"), database.reading() as repository:
        pinned_view(repository, table, page.next_token)


def test_a_count_is_exact_or_says_that_it_is_not(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, QUIET)
    merge(site, table, *({"id": key, "n": key % 2} for key in range(1000)))
    post(database, site.warehouse, {"_kind": "-D", "id": 3}, {"id": 4, "n": 1}, {"id": 2000, "n": 1})
    for latest, whole, odd in ((False, 1000, 500), (True, 1000, 501)):
        view = seen(database, site.warehouse, table, latest=latest)
        for filters, expected in (((), whole), (("n.eq.1",), odd)):
            scan = read_scan(view, ["id"], filters)
            assert count_rows(site.warehouse, scan, exact=True, sample_rows=10).rows == expected
            assert count_rows(site.warehouse, scan, exact=False) == RowCount(expected, True, 1)
            estimate = count_rows(site.warehouse, scan, exact=False, sample_rows=400)
            assert estimate.exact is (not latest and not filters)
            assert 0.7 * expected < estimate.rows < 1.3 * expected
