"""Every place of a file that a task writes has a Parquet field id: unique, and the same after alters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.alter.changes import alter_schema
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.files.arrow import field_id
from app.files.layout import changelog_file, data_file
from app.files.run_files import run_schema
from tests.api.routes.tables.test_nested_alters import CHANGES, ENGINES, FIELDS
from tests.builders import schema_of
from tests.histories import ENGINES as ENGINE_NAMES
from tests.histories import examples, random_history, random_table, widened_table
from tests.kernel.test_types import VALUES
from tests.oracle import Change, TableCase
from tests.site import Site


def places(schema: pa.Schema) -> Iterator[tuple[str, int | None]]:
    """The path of each place of a schema, with its id."""
    for field in schema:
        yield from _inside(field.name, field)


def _inside(path: str, field: pa.Field) -> Iterator[tuple[str, int | None]]:
    yield path, field_id(field)
    of = field.type
    if pa.types.is_list(of):
        inner = [("element", of.value_field)]
    elif pa.types.is_map(of):
        inner = [("key", of.key_field), ("value", of.item_field)]
    else:
        inner = [(one.name, one) for one in of] if pa.types.is_struct(of) else []
    for name, one in inner:
        yield from _inside(f"{path}.{name}", one)


def ids_of(site: Site) -> Mapping[str, int | None]:
    """The ids of all places of the last run's files, which have none twice."""
    [file] = site.runs[-1].files
    found = dict(places(pq.read_schema(site.warehouse.path(*data_file(site.table_id, site.runs[-1].id, file.name)))))
    assert None not in found.values()
    assert len(set(found.values())) == len(found)
    assert all(0 <= (one or 0) < 2**31 for one in found.values())
    return found


def test_every_place_of_every_type_has_an_id(tmp_path: Path) -> None:
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    plan = compile_plan(schema_of(TableCase(columns, ("k",))))
    site = Site(tmp_path, plan)
    row = {"k": 1, **{f"c{i}": values[1] for i, values in enumerate(VALUES.values())}}
    site.merge([[Change("+I", row)]], keeps_input=True)
    found = ids_of(site)
    assert {found[column.name] for column in plan.schema.columns} == {column.id for column in plan.schema.columns}
    nested = plan.schema.by_name[f"c{[*VALUES].index('ARRAY<ARRAY<INT>>')}"]
    above = 2**29 - 1 + nested.id * 1024  # as Paimon numbers them
    assert found[f"{nested.name}.element"] == above + 1
    assert found[f"{nested.name}.element.element"] == above + 2
    counted = plan.schema.by_name[f"c{[*VALUES].index('MULTISET<STRING>')}"]
    assert found[f"{counted.name}.key"] == 2**29 - 1 - counted.id * 1024 - 1
    assert found[f"{counted.name}.value"] == 2**29 - 1 + counted.id * 1024 + 1
    [changes] = site.kept_changes
    ids = dict(places(pq.read_schema(site.warehouse.path(*changelog_file(site.table_id, changes.name)))))
    assert None not in ids.values()
    assert {path: found[path] for path in ids if path in found} == {path: ids[path] for path in ids if path in found}


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**32))
def test_hidden_columns_come_last_and_ids_outlive_wider_types(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, _ = random_table(random, engine, times=2)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    site.merge([random_history(random, table, False, 5)])
    before = ids_of(site)
    names = [path for path in before if "." not in path]
    visible = [*table.primary_key, *(name for name, _ in table.columns if name not in table.primary_key)]
    assert names == [*visible, *(column.name for column in site.plan.hidden), TOKEN_COLUMN]
    wide, _ = widened_table(random, table)
    site.plan = compile_plan(schema_of(wide))
    site.compact(0, 1)
    after = ids_of(site)
    assert {path: before[path] for path in before if path in after} == {p: after[p] for p in after if p in before}


@pytest.mark.parametrize("engine", ["values", "logs", "replayed"])
def test_ids_follow_nested_fields_through_alters(engine: str, tmp_path: Path) -> None:
    """A field that was renamed keeps its id, also inside elements; one that took its name has another."""
    old = TableSchema.from_json({"fields": FIELDS, "primaryKeys": ["id"], "options": dict(ENGINES[engine])})
    changes = [{"action": action, "fieldNames": path, **members} for action, path, members in CHANGES]
    new = alter_schema(old, changes, highest_id=old.highest_field_id, has_rows=True, deepest_type=9)
    site = Site(tmp_path, compile_plan(old))
    record = {"id": 1, "seq": 1, "r": {"a": 1, "b": "x"}, "items": [{"sku": 1, "n": 2, "note": "x"}], "m": None}
    site.merge([[Change("+I", record)]])
    before = ids_of(site)
    site.plan = compile_plan(new)
    site.compact(0, 1)
    after = ids_of(site)
    visible = [path for path in before if not path.startswith("_kf_")]
    assert before["r.a"] == after["r.z"], "renamed"
    for path in visible:
        same = [one for one in after if after[one] == before[path]]
        assert [one.count(".") for one in same] in ([], [path.count(".")])
    assert {path: before[path] for path in ("items", "items.element", "m", "m.key", "m.value")} == {
        path: after[path] for path in ("items", "items.element", "m", "m.key", "m.value")
    }


def test_runs_without_nested_ids_are_read(tmp_path: Path) -> None:
    """As releases wrote them that gave ids to visible columns alone, and had the token first."""
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    site = Site(tmp_path, compile_plan(schema_of(TableCase(columns, ("k",), {"sequence.field": "k"}))))
    rows = [{"k": n, **{f"c{i}": values[n] for i, values in enumerate(VALUES.values())}} for n in range(2)]
    site.merge([[Change("+I", row) for row in rows]])
    [file] = site.runs[0].files
    path = Path(site.warehouse.path(*data_file(site.table_id, site.runs[0].id, file.name)))
    schema = _earlier_schema(site.plan)
    earlier = pa.table(pq.read_table(path).select(schema.names).columns, schema=schema)
    pq.write_table(earlier, tmp_path / "old.parquet", store_schema=False)
    ids = dict(places(pq.read_schema(tmp_path / "old.parquet")))
    assert ids[TOKEN_COLUMN] is None
    path.write_bytes((tmp_path / "old.parquet").read_bytes())
    size = path.stat().st_size
    site.runs[0] = replace(site.runs[0], files=(replace(file, size_bytes=size, digest=None, block_digests=None),))
    before = repr(sorted(site.rows().items()))
    site.merge([[Change("+I", {**rows[0], "k": 3})]])
    site.compact(0, 2)
    found = {key: row for key, row in site.rows().items() if key != (3,)}
    assert repr(sorted(found.items())) == before
    ids_of(site)


def _earlier_schema(plan: MergePlan) -> pa.Schema:
    ids = {column.name: {"PARQUET:field_id": str(column.id)} for column in plan.schema.columns}
    *others, token = run_schema(plan)
    return pa.schema([pa.field(one.name, _bare(one.type), metadata=ids.get(one.name)) for one in (token, *others)])


def _bare(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(data_type):
        return pa.list_(_bare(data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(_bare(data_type.key_type), _bare(data_type.item_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(one.name, _bare(one.type)) for one in data_type])
    return data_type
