"""The body of ``POST T``: every action of ``app.core.alter.changes``, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union

from pydantic import Field, create_model
from pydantic.alias_generators import to_snake
from typing_extensions import TypeAliasType

from app.api.document.components import DataType
from app.api.document.payloads import described_as
from app.api.shared.answers import Payload
from app.core.alter import changes
from app.core.alter.changes import ACTIONS, Action
from app.core.alter.draft import Place


class ColumnMove(Payload):
    """A column's new place; AFTER and BEFORE need ``referenceFieldName``."""

    field_name: str | None = None
    reference_field_name: str | None = None
    type: Place


# What JSON each reader of a member takes.
_TAKEN: Mapping[Callable[[object], Any], Any] = {
    changes.read_text: str,
    changes.read_text_or_null: str | None,
    changes.read_option_value: str,
    changes.read_truth: bool,
    changes.read_path: list[str],
    changes.read_type: DataType,
    changes.read_move: ColumnMove,
    changes.read_move_or_null: ColumnMove | None,
}


def _payload(name: str, action: Action) -> type[Payload]:
    members: dict[str, Any] = {"action": (Literal[name], ...)}
    for member in action.members:
        members[to_snake(member.name)] = (_TAKEN[member.read], ... if member.needed else member.absent)
    return create_model(name[0].upper() + name[1:], __base__=Payload, __doc__=action.meaning, **members)


_PAYLOADS: Any = tuple(_payload(name, action) for name, action in ACTIONS.items())
_ONE_OF: Any = Annotated[Union[_PAYLOADS], Field(discriminator="action")]  # noqa: UP007  # of a tuple made above
SchemaChange = TypeAliasType("SchemaChange", _ONE_OF)


class AlterTable(Payload):
    """Changes of a table, applied in order, all or nothing."""

    changes: list[Annotated[Any, described_as(SchemaChange)]]
