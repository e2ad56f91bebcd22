"""Every option of a table and every aggregate function, as their entries say, each with an address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from app.console.parts.option_fields import GROUPS, group_of
from app.console.parts.references import REFERENCE_PATH, function_anchor, option_anchor
from app.console.site.visits import Page, Visit
from app.core.functions.entries import ALIASES, FUNCTIONS, AggregateFunction
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS, MergeEngine
from app.core.table.options.option import Option
from app.services.explaining.fold_examples import FoldExample, function_example


@dataclass(frozen=True)
class OptionEntry:
    """A row of the page: an option, its key as a table spells it, and the merge engines that have it."""

    option: Option
    key: str
    group: str
    engines: Sequence[str]

    @property
    def anchor(self) -> str:
        """The id of the row."""
        return option_anchor(self.option)


@dataclass(frozen=True)
class FunctionEntry:
    """A row of the page: a function, its other names, and an example."""

    function: AggregateFunction
    aliases: Sequence[str]
    example: FoldExample

    @property
    def anchor(self) -> str:
        """The id of the row."""
        return function_anchor(self.function)


def show_reference(visit: Visit) -> Response:
    """Show all options under the headings of the settings, then the functions."""
    entries = [*_options()]
    groups = [(title, [entry for entry in entries if entry.group == title]) for title in GROUPS]
    return visit.page("pages/reference.html", groups=groups, functions=_functions())


def _options() -> list[OptionEntry]:
    known = [(option, option.key, False) for option in TABLE_OPTIONS.values()]
    known += [(option, f"fields.<column>.{option.key}", True) for option in FIELD_OPTIONS.values()]
    return [
        OptionEntry(option, key, group_of(option, of_column=of_column), _engines(option))
        for option, key, of_column in known
    ]


def _engines(option: Option) -> list[str]:
    """Return the names of the engines; none if all have the option."""
    return [engine.value for engine in MergeEngine if option.of_engine(engine)] if option.engines else []


def _functions() -> list[FunctionEntry]:
    return [
        FunctionEntry(
            function, [old for old, name in ALIASES.items() if name == function.name], function_example(function)
        )
        for function in FUNCTIONS.values()
    ]


PAGES: Final = (Page("GET", REFERENCE_PATH, show_reference),)
