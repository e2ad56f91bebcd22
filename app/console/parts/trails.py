"""Where a page is: the links that lead to it from the tables on."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from app.console.parts.words import segment

Step = tuple[str, str]  # what it is called, and its address


def trail(here: str, *names: str, more: Sequence[Step] = ()) -> list[Step]:
    """Return the steps to a page that is called ``here``, which is the last one and has no address; ``names`` are its
    database and its table, and ``more`` what is between those and the page.
    """
    steps = [("Tables", "/")]
    if names:
        steps.append((names[0], f"/?{urlencode({'database': names[0]})}"))
    if len(names) > 1:
        steps.append((names[1], f"/console/tables/{segment(names[0])}/{segment(names[1])}"))
    return [*steps, *more, (here, "")]
