"""``T/tags``: names that keep a snapshot, with the members of Paimon's REST catalog."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.routes.snapshots.snapshots import Number, Snapshot
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, Payload, names_of
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, TagName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import Reading, TableDep, Writing
from app.core.table import history
from app.services.snapshots import tags as service

router = Router(route_class=JsonRoute, prefix=f"{TABLE_PATH}/tags", tags=["tags"], responses=PROBLEM_RESPONSES)


class NewTag(Payload):
    """A tag to create, on the current snapshot unless ``snapshotId`` names another."""

    tag_name: str
    snapshot_id: Number | None = None
    time_retained: str | None = Field(
        None,
        description="as `12 h` or `30 d`; default: the table's tag.default-time-retained, else until it is deleted",
    )
    ignore_if_exists: bool = Field(False, description="answer the tag of this name, if there is one, instead of 409")


class Tag(Answer):
    """A tag and the snapshot that it keeps. ``tagTimeRetained`` is ISO 8601, null if the tag never expires."""

    tag_name: Annotated[str, From("tag.name")]
    snapshot: Annotated[Snapshot, From("kept")]
    tag_create_time: Annotated[EpochMillis, From("tag.created_at")]
    tag_time_retained: Annotated[str | None, From(lambda described: _retained(described.tag))]
    expires_at: Annotated[EpochMillis | None, From("tag.expires_at")]


def _retained(tag: history.Tag) -> str | None:
    return None if tag.expires_at is None else iso_duration(tag.expires_at - tag.created_at)


class TagNames(Answer):
    """A page of tag names; ``nextPageToken`` is null on the last page."""

    tags: Annotated[list[str], From(names_of)]
    next_page_token: NextPageToken


Prefix = Annotated[str, Query(alias="tagNamePrefix", description="Only tags whose names begin with it.")]


def iso_duration(duration: timedelta) -> str:
    """Return a duration in ISO 8601 as Java spells it: hours, minutes and seconds, no days (``PT36H``, ``PT0.5S``)."""
    minutes, seconds = divmod(duration, timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    fraction = f"{seconds.total_seconds():.6f}".rstrip("0").rstrip(".")
    parts = [(str(hours), "H"), (str(minutes), "M"), (fraction, "S")]
    return "PT" + ("".join(number + unit for number, unit in parts if number != "0") or "0S")


@router.post("", operation_id="createTag", responses=problems(409))
def create_tag(table: TableDep, body: NewTag, repository: Writing, notes: NotesDep) -> Tag:
    """Create a tag, which keeps a snapshot and its files from expiring.

    409 if the name is in use, also on the same snapshot.
    """
    tag = service.create_tag(
        repository,
        table,
        body.tag_name,
        body.snapshot_id,
        body.time_retained,
        ignore_if_exists=body.ignore_if_exists,
    )
    notes.add(tag=body.tag_name, snapshot=tag.kept.snapshot.id)
    return Tag.from_value(tag)


@router.get("", operation_id="listTags")
def list_tags(
    table: TableDep,
    repository: Reading,
    wanted: WantedPage,
    prefix: Prefix = "",
) -> TagNames:
    """List the names of the table's tags in order, a page at a time."""
    return TagNames.from_value(service.list_tags(repository, table, wanted, prefix))


@router.get("/{tag}", operation_id="getTag")
def get_tag(table: TableDep, tag: TagName, repository: Reading) -> Tag:
    """Return a tag and its snapshot."""
    return Tag.from_value(service.get_tag(repository, table, tag))


@router.delete("/{tag}", operation_id="deleteTag", response_class=Response)
def delete_tag(table: TableDep, tag: TagName, repository: Writing, notes: NotesDep) -> Response:
    """Delete a tag; its snapshot expires by the table's options again."""
    notes.add(tag=tag)
    repository.tags.delete(table.id, tag)
    return Response()
