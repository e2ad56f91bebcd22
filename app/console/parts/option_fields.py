"""The options of a table as fields of a form: one for each entry of the option table, with what it is now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from app.core.table.options.entries import TABLE_OPTIONS, option_of
from app.core.table.options.option import Change, Option
from app.core.table.schema import TableSchema

# The prefix of an option's key in the name of its field.
SET: Final = "set."
_BREAKS: Final = re.compile("[\r\n]")
GROUPS: Final = (
    "How it runs",
    "What records make of a row",
    "Options of columns",
    "Paimon's own, without effect here",
)


@dataclass(frozen=True)
class OptionField:
    """One option: ``key`` as the table spells it, ``text`` as it is set, None if it is not. ``fixed`` says why it
    cannot change; ``submitted`` is what the form says instead of ``text``.
    """

    number: int
    key: str
    option: Option
    text: str | None
    fixed: str | None
    submitted: str | None = None

    @property
    def shown(self) -> str:
        """The text in the field."""
        return _BREAKS.sub("", self.text or "") if self.submitted is None else self.submitted

    @property
    def choices(self) -> Sequence[str]:
        """The values to choose from, with the present one if it is spelled otherwise."""
        known = self.option.choices
        return known if not known or self.shown in ("", *known) else (self.shown, *known)

    @property
    def change(self) -> dict[str, str] | None:
        """The change that the form asks for; None for none. A browser leaves out ends of lines."""
        if self.submitted is None or self.fixed is not None or self.submitted == _BREAKS.sub("", self.text or ""):
            return None
        if self.submitted == "":
            return {"action": "removeOption", "key": self.key}
        return {"action": "setOption", "key": self.key, "value": self.submitted}


@dataclass(frozen=True)
class OptionGroup:
    """Some of the fields under one heading."""

    title: str
    fields: Sequence[OptionField]


@dataclass(frozen=True)
class OptionFilter:
    """Which of the fields are shown: those with ``part`` in their key or meaning, or those that are ``changed``."""

    part: str = ""
    changed: bool = False

    def takes(self, field: OptionField) -> bool:
        """Return whether the field is shown."""
        words = self.part.lower()
        named = words in field.key.lower() or words in field.option.meaning.lower()
        return named and (field.text is not None or not self.changed)

    @property
    def query(self) -> str:
        """The query of this filter's address, with its question mark; empty if all fields are shown."""
        parameters = {"q": self.part, "changed": "1" if self.changed else ""}
        query = urlencode({name: text for name, text in parameters.items() if text})
        return f"?{query}" if query else ""


def option_fields(schema: TableSchema, form: Mapping[str, str], filled: bool) -> list[OptionField]:
    """Return all options that the table has or could have; ``filled``: records were posted, so some cannot change any
    more.
    """
    return [
        OptionField(number, key, option, text, _fixed(schema, option, filled), form.get(SET + key))
        for number, (key, option, text) in enumerate(_entries(schema.options))
    ]


def _entries(options: Mapping[str, str]) -> Iterator[tuple[str, Option, str | None]]:
    """Yield the options of the table by the keys that it spells them with, and all others that have an effect."""
    rest = dict(options)
    for option in TABLE_OPTIONS.values():
        given = [key for key in (option.key, *option.aliases) if key in options]
        for key in given or ([option.key] if option.effect else []):
            yield key, option, rest.pop(key, None)
    for key, text in rest.items():
        yield key, option_of(key) or _unknown(key), text


def _is_of_column(key: str) -> bool:
    return key.startswith("fields.") and key not in TABLE_OPTIONS


def _unknown(key: str) -> Option:
    return Option(key, str, None, "not known to this version", effect=False)


def _fixed(schema: TableSchema, option: Option, filled: bool) -> str | None:
    """Return why the option cannot change; None if it can."""
    if option.key == "primary-key":
        return "the primary key is part of the schema: " + option.instead
    if not filled or option.change is Change.FREE:
        return None
    if option.change is Change.NEVER:
        return f"records were posted, and stored rows were folded under it: {option.instead}"
    if schema.parsed[option.key] != option.default:
        return "it can be turned on, never off: the values that it left out of rows are lost"
    return None


def grouped(fields: Sequence[OptionField]) -> list[OptionGroup]:
    """Return the fields that can change, under their headings; those that are set stand first."""
    groups: dict[str, list[OptionField]] = {title: [] for title in GROUPS}
    for field in fields:
        if field.fixed is None:
            groups[group_of(field.option, of_column=_is_of_column(field.key))].append(field)
    return [OptionGroup(title, sorted(members, key=_unset)) for title, members in groups.items() if members]


def group_of(option: Option, *, of_column: bool) -> str:
    """Return the heading that the option stands under."""
    if of_column:
        return GROUPS[2]
    if not option.effect:
        return GROUPS[3]
    return GROUPS[1] if option.folds else GROUPS[0]


def _unset(field: OptionField) -> bool:
    return field.text is None


def changes_of(fields: Sequence[OptionField], form: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the option changes of the form, in the order of its fields; an option typed by name comes last."""
    changes = [change for field in fields if (change := field.change) is not None]
    key, value = form.get("new-key", "").strip(), form.get("new-value", "")
    if key:
        changes.append({"action": "setOption", "key": key, "value": value})
    return changes
