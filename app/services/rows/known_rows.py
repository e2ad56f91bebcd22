"""What a table's rows are when records come in: some records are legal or not by what is there already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.table.keys import Key
from app.core.table.options.entries import Consistency
from app.services.rows.kept_views import Views
from app.services.rows.lookups import states_of
from app.services.rows.many_lookups import rows_found
from app.storage.images import Images


@dataclass(frozen=True)
class KnownRows:
    """The rows of one table, staged records included: of each key ``there`` says whether it has a row now, ``states``
    its state row, None where there is none.
    """

    there: Callable[[Sequence[Key]], Sequence[bool]]
    states: Callable[[Sequence[Key]], Iterator[Mapping[str, Any] | None]]


def known_rows(views: Views, images: Images, name: tuple[str, str]) -> KnownRows:
    """The rows of the table ``name``, at the moment of each question."""
    return KnownRows(
        lambda keys: rows_found(views.current(name, Consistency.LATEST), images, keys),
        lambda keys: states_of(views.current(name, Consistency.LATEST), images, keys),
    )


NO_ROWS = KnownRows(lambda keys: [False] * len(keys), lambda keys: iter([None] * len(keys)))
"""Where no row is known of."""
