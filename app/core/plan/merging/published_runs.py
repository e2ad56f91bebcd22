"""The runs of a published version, and those of them that other engines can read unchanged (decision 31)."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.plan.merging.evolution import same_state
from app.core.rules.widening import same_type
from app.core.table.history import Run
from app.core.table.options.entries import ChangelogProducer
from app.core.table.published import Format
from app.core.table.schema import Column, TableSchema


def readable_as(written: TableSchema, now: TableSchema) -> bool:
    """Return whether files written under ``written`` can be read with the names and types of ``now``.

    Columns are found by name: one that was added is null if its name is new, one that was dropped is not asked for;
    one that was renamed or widened, or took the name of another, must be written again.
    """
    return same_state(written, now) and all(_is_readable(written, column) for column in now.columns)


def _is_readable(written: TableSchema, column: Column) -> bool:
    stored = written.by_name.get(column.name)
    if stored is None:
        return all(other.id != column.id for other in written.columns)
    return stored.id == column.id and same_type(stored.type, column.type)


def whole_runs(runs: Sequence[Run]) -> tuple[Run, ...] | None:
    """Return the runs of a snapshot that are the whole of it: one of each partition; None if one has several."""
    return tuple(runs) if len({run.partition for run in runs}) == len(runs) else None


def full_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the oldest run of each partition that a full compaction wrote, without the runs that were merged on top
    since.
    """
    oldest: dict[str | None, Run] = {}
    for run in runs:
        oldest.setdefault(run.partition, run)
    return tuple(run for run in oldest.values() if run.full)


def says_all_changes(written: TableSchema) -> bool:
    """Return whether the changelogs of merges under this schema have every changed row, with all of its columns:
    changes are looked up, and no column is ignored.
    """
    options = written.parsed
    ignored = options["changelog-producer.row-deduplicate-ignore-fields"]
    return options["changelog-producer"] is ChangelogProducer.LOOKUP and not ignored


def follows_merges(schema: TableSchema, form: Format) -> bool:
    """Return whether versions in this form come of merges, not of full compactions alone."""
    return bool(schema.parsed[form.publish]) and says_all_changes(schema)
