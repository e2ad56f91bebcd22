"""What other engines and explanations say of the tables of the campaign, once no client posts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.table.published import Format
from lab.faults.ledger import Comparison
from lab.faults.operations import Operator
from lab.faults.tables import Drawn
from tests import delta_readers, iceberg_readers
from tests.delta_readers import Rows

PATIENCE_SECONDS = 300.0
EXPLAINED = 5  # rows of each table
Row = dict[str, Any]


def check_published(operator: Operator, path: str, drawn: Drawn, rows: Sequence[Row], comparison: Comparison) -> None:
    """What the table publishes, once it is up to date, has the rows of the scan. A full compaction is asked for where
    versions do not follow merges.
    """
    if not rows:
        return
    for form, read in _READ.items():
        state = _up_to_date(operator, path, form, compacted=not drawn.changes)
        if isinstance(state, str):
            comparison.wrong.append(f"{form} is behind: {state}")
            continue
        seen = sorted(read(state), key=lambda row: (row["id"], str(row)))
        if seen != list(rows):
            comparison.wrong.append(f"{len(seen)} rows in {form}, {len(rows)} in the scan, and they differ")


def _up_to_date(operator: Operator, path: str, form: Format, *, compacted: bool) -> dict[str, Any] | str:
    """What the service says of the newest version, or said last where it stays behind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = operator.ask("GET", f"{path}/{form}")
        if answer is not None and answer.status_code == 200:
            state: dict[str, Any] = answer.json()
            if state["version"] is not None and state["behindBatches"] == 0 and state["waiting"] is None:
                return state
        if time.monotonic() > deadline:
            return "no answer" if answer is None else answer.text[:500]
        if compacted:
            operator.ask("POST", f"{path}/compact", {"full": True})
        time.sleep(0.5)


_READ: Mapping[Format, Callable[[dict[str, Any]], Rows]] = {
    Format.DELTA: lambda state: delta_readers.with_polars(state["path"].removeprefix("file://")),
    Format.ICEBERG: lambda state: iceberg_readers.with_polars(state["readBy"]["metadata"].removeprefix("file://")),
}


def check_explained(operator: Operator, path: str, drawn: Drawn, rows: Sequence[Row], comparison: Comparison) -> None:
    """Some rows are explained, and as they are."""
    for row in operator.random.sample(list(rows), min(EXPLAINED, len(rows))):
        query = "&".join(f"key={row[part]}" for part in drawn.case.primary_key)
        answer = operator.ask("GET", f"{path}/rows:explain?{query}")
        if answer is None or answer.status_code != 200:
            continue  # records that were damaged are reported as such
        explained = answer.json()
        if explained["row"] != row or not explained["exact"]:
            comparison.wrong.append(
                f"the explanation of {row} has {explained['row']}, exact: {explained['exact']} ({explained['inexact']})"
            )
