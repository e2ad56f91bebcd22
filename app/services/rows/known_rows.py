"""What a table's rows are when records come in: some records are legal or not by what is there already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.core.table.keys import Key
from app.core.table.options.entries import Consistency
from app.services.rows.kept_views import Views
from app.services.rows.many_lookups import rows_exist
from app.storage.images import Images

# Of each key whether it has a row now, staged records included.
KnownRows = Callable[[Sequence[Key]], Sequence[bool]]


def known_rows(views: Views, images: Images, name: tuple[str, str]) -> KnownRows:
    """Return the rows of the table ``name``, at the moment of each question."""
    return lambda keys: rows_exist(views.current(name, Consistency.LATEST), images, keys)


def no_rows(keys: Sequence[Key]) -> Sequence[bool]:
    """Return that no key has a row."""
    return [False] * len(keys)
