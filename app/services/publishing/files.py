"""The data files of a snapshot, for engines that read them without the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.catalog.repository import Repository
from app.core.plan.columns.column_functions import stored_otherwise
from app.core.plan.merging.evolution import same_state
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.row import LIVE_COLUMN
from app.core.table.history import DataFile, Run, Table
from app.core.table.records import TOKEN_COLUMN
from app.files.layout import Warehouse, data_file
from app.services.rows.views import schemas_of
from app.services.shared.pages import PageRequest, page_of
from app.services.snapshots.snapshots import find_snapshot


@dataclass(frozen=True)
class TableFile:
    """One file: its place and its run; ``live_rows`` counts the rows that no delete hides, None if not counted."""

    uri: str
    run: Run
    file: DataFile

    @property
    def live_rows(self) -> int | None:
        """The number of rows that would be visible if there were no other run."""
        run = self.run
        if run.live_rows is None or run.live_rows == run.rows:
            return None if run.live_rows is None else self.file.rows
        return run.live_rows if len(run.files) == 1 else None


@dataclass(frozen=True)
class TableFiles:
    """Files of a snapshot, by run, oldest first. ``incomplete`` says why their visible columns are not the table's
    rows; empty if they are. ``hidden`` are the columns that a reader of rows must leave out.
    """

    snapshot_id: int | None
    files: Sequence[TableFile]
    next_token: str | None
    incomplete: Sequence[str]
    token_column: str
    live_column: str | None
    hidden: Sequence[str]

    @property
    def complete(self) -> bool:
        """Whether the visible columns of the live rows are the table's rows."""
        return not self.incomplete


def list_files(
    repository: Repository, warehouse: Warehouse, table: Table, version: str | None, request: PageRequest
) -> TableFiles:
    """Return a page of the files of a snapshot: the current one if ``version`` is None. Raise ``NotFound``."""
    snapshot = repository.snapshots.current_of(table) if version is None else find_snapshot(repository, table, version)
    runs = snapshot.runs if snapshot else ()
    files = [
        TableFile(warehouse.uri(*data_file(table.id, run.id, file.name)), run, file)
        for run in runs
        for file in run.files
    ]
    start = request.after_number or 0
    numbered = list(enumerate(files, 1))[start : start + request.and_one_more]
    page = page_of(numbered, request, lambda numbered_file: numbered_file[0])
    schemas = {number: compile_plan(schema) for number, schema in schemas_of(repository, table, snapshot).items()}
    hidden = dict.fromkeys(column.name for plan in schemas.values() for column in plan.hidden)
    incomplete = []
    if len({run.partition for run in runs}) < len(runs):
        incomplete.append("a partition has several runs, whose rows must be combined: POST …/compact leaves one")
    if any(not same_state(schemas[run.schema_id].schema, table.schema) for run in runs):
        incomplete.append("a run was written under other rules than the table has now: POST …/compact rewrites it")
    schema_now = table.schema
    names = [c.name for c in schema_now.value_columns if stored_otherwise(schema_now, schema_now.parsed, c.name)]
    if names:
        incomplete.append(f"columns hold the state of their function, not its value: {', '.join(names)}")
    return TableFiles(
        None if snapshot is None else snapshot.id,
        [file for _, file in page.items],
        page.next_token,
        incomplete,
        TOKEN_COLUMN,
        LIVE_COLUMN if LIVE_COLUMN in hidden else None,
        [TOKEN_COLUMN, *hidden],
    )
