"""Answers by declaration: a payload declares the source of each member in a value of the services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from app.services.shared.pages import Page

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_millis(time: datetime) -> int:
    """Return ``time`` as whole milliseconds since 1970-01-01 UTC."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _millis(time: object) -> object:
    return epoch_millis(time) if isinstance(time, datetime) else time


EpochMillis = Annotated[int, BeforeValidator(_millis)]


class Payload(BaseModel):
    """A JSON object. Unknown members are ignored: Paimon's newer clients may send more."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class OwnBody(Payload):
    """The body of a route that only Keyfold has: unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class From:
    """The source of a member that is not the attribute of the same name: the path of another one, or a function."""

    source: str | Callable[[Any], object]

    def read(self, value: object) -> object:
        """Return the member's value, read from ``value``."""
        return attrgetter(self.source)(value) if isinstance(self.source, str) else self.source(value)


@cache
def _sources(answer: type[Answer]) -> Mapping[str, From]:
    """Return the sources of an answer's members."""
    fields: Mapping[str, FieldInfo] = answer.model_fields
    stated = {name: [source for source in field.metadata if isinstance(source, From)] for name, field in fields.items()}
    return {name: of_member[0] if of_member else From(name) for name, of_member in stated.items()}


class Answer(Payload):
    """A payload made from a value of the services; members are read from their declared sources,
    and checked by type.
    """

    @classmethod
    def from_value(cls, value: object, **members: object) -> Self:
        """Return the answer that shows ``value``; ``members`` are those that it does not have itself."""
        return cls.model_validate(cls._members(value, members))

    @classmethod
    def _members(cls, value: object, members: Mapping[str, object]) -> dict[str, object]:
        sources = _sources(cls).items()
        return {name: source.read(value) for name, source in sources if name not in members} | dict(members)

    @model_validator(mode="before")
    @classmethod
    def _inside(cls, value: object) -> object:
        """Return the value of a member; one that is itself an answer is made in the same way."""
        return value if isinstance(value, (Mapping, BaseModel)) else cls._members(value, {})


# The token of a ``Page``, null on its last one.
NextPageToken = Annotated[str | None, From("next_token")]


def names_of(page: Page[Any]) -> list[str]:
    """Return the names of a page's items."""
    return [item.name for item in page.items]
