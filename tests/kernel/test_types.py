"""Every type survives staging, a merge, a compaction and the read back, to the last digit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from app.core.plan.merging.merge_plan import compile_plan
from app.core.types.kinds import Kind
from tests.builders import schema_of
from tests.kernel.expected import visible
from tests.oracle import Change, TableCase
from tests.site import Site

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 32767],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [1.5, -0.0],
    "DOUBLE": [1e308, 5e-324],
    "DECIMAL(38, 18)": [Decimal("12345678901234567890.123456789012345678"), Decimal("-0.000000000000000001")],
    "CHAR(3)": ["abc", "z𝄞"],
    "VARCHAR(5)": ["", "ä"],
    "STRING": ["\x00", "𝄞" * 100],
    "BINARY(2)": [b"\x00\xff", b"\x01"],
    "VARBINARY(3)": [b"", b"\xff"],
    "BYTES": [b"\x00" * 70, b"x"],
    "DATE": [date(1, 1, 1), date(9999, 12, 31)],
    "TIME(3)": [0, 86_399_999],
    "TIMESTAMP(6)": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [datetime(1582, 10, 4, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, UTC)],
    "ARRAY<ARRAY<INT>>": [[], [[1, None], None, []]],
    "MULTISET<STRING>": [[], [("a", 2), ("b", 1)]],
    "MAP<INT, ROW<a DECIMAL(5, 2), t TIME(0)>>": [[(1, None)], [(1, {"a": Decimal("1.50"), "t": 1000}), (2, None)]],
    "ROW<r ROW<x BIGINT>, m MAP<STRING, DATE>>": [
        {"r": None, "m": None},
        {"r": {"x": 2**60}, "m": [("d", date(2024, 2, 29))]},
    ],
}


def test_every_type_comes_back_as_it_was_posted(tmp_path: Path) -> None:
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    table = TableCase(columns, ("k",))
    plan = compile_plan(schema_of(table))
    assert {column.type.kind for column in plan.schema.columns} == set(Kind)
    rows = [{"k": n, **{f"c{i}": values[n] for i, values in enumerate(VALUES.values())}} for n in range(2)]
    rows.append({"k": 2, **{f"c{i}": None for i in range(len(VALUES))}})
    site = Site(tmp_path, plan)
    for row in rows:
        site.merge([[Change("+I", row)]])
    expected = {(row["k"],): row for row in rows}
    for compacted in (False, True):
        if compacted:
            site.compact(0, 3)
        found = visible(site.rows())
        assert found == expected
        assert repr([found[key,]["c5"] for key in (0, 1)]) == "[1.5, -0.0]", "equality takes -0.0 for 0.0"
