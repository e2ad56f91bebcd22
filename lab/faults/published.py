"""What other engines and explanations say of the tables of the campaign, once nobody posts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lab.faults.ledger import Comparison
from lab.faults.operations import Operator
from lab.faults.tables import Drawn
from tests.delta_readers import with_polars

PATIENCE_SECONDS = 300.0
EXPLAINED = 5  # rows of each table
Row = dict[str, Any]


def check_log(operator: Operator, path: str, rows: Sequence[Row], found: Comparison) -> None:
    """The table's Delta log, once a full compaction has brought it up to date, has the rows of the scan."""
    if not rows:
        return
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        told = operator.ask("GET", f"{path}/delta")
        if told is not None and told.status_code == 200:
            log = told.json()
            if log["version"] is not None and log["behindBatches"] == 0 and log["waiting"] is None:
                break
        if time.monotonic() > deadline:
            found.wrong.append(f"the Delta log is behind: {told and told.text[:500]}")
            return
        operator.ask("POST", f"{path}/compact", {"full": True})
        time.sleep(0.5)
    read = sorted(with_polars(log["path"].removeprefix("file://")), key=lambda row: (row["id"], str(row)))
    if read != list(rows):
        found.wrong.append(f"{len(read)} rows in the Delta log, {len(rows)} in the scan, and they differ")


def check_explained(operator: Operator, path: str, drawn: Drawn, rows: Sequence[Row], found: Comparison) -> None:
    """Some rows are explained, and as they are."""
    for row in operator.random.sample(list(rows), min(EXPLAINED, len(rows))):
        query = "&".join(f"key={row[part]}" for part in drawn.case.primary_key)
        answer = operator.ask("GET", f"{path}/rows:explain?{query}")
        if answer is None or answer.status_code != 200:
            continue  # records that were damaged are told as such
        told = answer.json()
        if told["row"] != row or not told["exact"]:
            found.wrong.append(
                f"the explanation of {row} has {told['row']}, exact: {told['exact']} ({told['inexact']})"
            )
