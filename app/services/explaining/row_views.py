"""All that a page about one row shows: its history, its row at some time, and the effect of trial records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Invalid, KeyfoldError, NotFound
from app.core.plan.explaining.story_lanes import StoryLane, story_lanes
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import BatchState, Table
from app.core.table.keys import key_from_text, key_to_json
from app.core.table.schema import Column
from app.core.types.kinds import Family
from app.core.types.values import ValueFault
from app.services.bodies.json_bodies import parse_json
from app.services.explaining.explain import Question, explain_row
from app.services.explaining.explained import ExplainedRow
from app.services.explaining.simulations import SimulatedStep, simulate_on_rows
from app.services.rows.lookups import get_row, view_at
from app.storage.images import Images


@dataclass(frozen=True)
class Trial:
    """The effect of trial records on the present row; ``error`` if they cannot be folded."""

    records: Sequence[Mapping[str, Any]]
    steps: Sequence[SimulatedStep] = ()
    after: Mapping[str, Any] | None = None
    error: KeyfoldError | None = None


@dataclass(frozen=True)
class RowView:
    """``now`` is the row with staged records; ``then`` is the row at the requested time, by default the same.
    ``lanes`` are those of ``then``; ``snapshots`` are those that still exist. ``staged``: some of its records are;
    ``merged`` is the row without them.
    """

    now: ExplainedRow
    then: ExplainedRow
    lanes: Sequence[StoryLane]
    snapshots: frozenset[int]
    trial: Trial | None
    staged: bool = False
    merged: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NoRow:
    """A key without any known record, and the effect of trial records."""

    key: Mapping[str, Any]
    lanes: Sequence[StoryLane]
    trial: Trial | None


def view_row(
    database: CatalogDatabase, images: Images, table: Table, question: Question, tried: Sequence[Mapping[str, Any]] = ()
) -> RowView:
    """Return the view of the row; ``tried`` are trial records without their key, which are not stored.

    Raise as ``explain_row`` does.
    """
    name = (table.database, table.name)
    then = now = explain_row(database, images, name, question)
    if question.as_of is not None:
        now = explain_row(database, images, name, replace(question, as_of=None, before=None))
    with database.reading() as repository:
        shown = table if question.as_of is None else view_at(repository, table, str(then.snapshot)).table
        snapshot_ids = frozenset(commit.snapshot_id for commit in repository.commits.every(table.id))
        trial = try_records(repository, images, table, then.key, tried)
        staged = any(step.record is not None and step.record.state is BatchState.STAGED for step in now.steps)
        merged = _merged(repository, images, table, question.texts) if staged else None
    return RowView(now, then, story_lanes(compile_plan(shown.schema)), snapshot_ids, trial, staged, merged)


def view_no_row(
    database: CatalogDatabase, images: Images, table: Table, texts: Sequence[str], tried: Sequence[Mapping[str, Any]]
) -> NoRow:
    """Return the view of a key of which no record is known. Raise ``Invalid`` if the texts are not a key."""
    key = key_to_json(table.schema, key_from_text(table.schema, texts))
    with database.reading() as repository:
        trial = try_records(repository, images, table, key, tried)
    return NoRow(key, story_lanes(compile_plan(table.schema)), trial)


def _merged(repository: Repository, images: Images, table: Table, texts: Sequence[str]) -> Mapping[str, Any] | None:
    try:
        return get_row(repository, images, table, texts).row
    except NotFound:
        return None


def try_records(
    repository: Repository,
    images: Images,
    table: Table,
    key: Mapping[str, Any],
    tried: Sequence[Mapping[str, Any]],
) -> Trial | None:
    """Return the effect of records of ``key``, also on a row that does not exist yet; None without records."""
    if not tried:
        return None
    records = [{**key, **record, **key} for record in tried]
    try:
        (row,) = simulate_on_rows(repository, images, table, records)
    except KeyfoldError as error:
        return Trial(records, error=error)
    return Trial(records, row.steps, row.after)


def typed(column: Column, text: str) -> Any:
    """Return the text of a field of ``column`` as JSON; the text itself if it is not a value of that column, so that
    the fault is reported like that of any record.
    """
    try:
        value = _read(column, text)
        json.dumps(
            value, allow_nan=False, default=str
        )  # a number that JSON lacks would make the whole record unreadable
    except (ValueError, RecursionError, ValueFault, Invalid):
        return text
    return value


def _read(column: Column, text: str) -> Any:
    if column.type.family is Family.INTEGER:
        return int(text)
    return parse_json(text.encode()) if column.type.nested else column.type.entry.from_text(text)
