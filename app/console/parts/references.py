"""Addresses of options and functions on the page that describes them all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from markupsafe import Markup, escape

from app.core.functions.entries import AggregateFunction, find_function
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS, option_of
from app.core.table.options.option import Option

REFERENCE_PATH: Final = "/console/reference"


def option_anchor(option: Option) -> str:
    """Return the id of the option's row."""
    return f"option-{option.key}"


def function_anchor(function: AggregateFunction) -> str:
    """Return the id of the function's row."""
    return f"function-{function.name}"


def option_link(key: str) -> str | None:
    """Return where the option that ``key`` sets is described; None for a key that the page does not list."""
    option = option_of(key)
    listed = option is not None and (option.key in TABLE_OPTIONS or option.key in FIELD_OPTIONS)
    return f"{REFERENCE_PATH}#{option_anchor(option)}" if option is not None and listed else None


def function_link(name: str) -> str | None:
    """Return where the function is described; None if there is none of this name."""
    function = find_function(name)
    return None if function is None else f"{REFERENCE_PATH}#{function_anchor(function)}"


def with_option_links(ddl: str, keys: Iterable[str]) -> Markup:
    """Return a statement for a page, in which the quoted ``keys`` of options lead to what they mean."""
    links = {f"'{key}'": link for key in keys if (link := option_link(key)) is not None}
    if not links:
        return escape(ddl)
    parts = re.split(f"({'|'.join(map(re.escape, links))})", ddl)
    return Markup("").join(  # the parts are escaped
        Markup('<a href="{}">{}</a>').format(links[part], part) if part in links else part for part in parts
    )
