"""The existing rows of a table: some records are valid only if their key has a row, or has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.core.table.keys import Key
from app.core.table.options.entries import Consistency
from app.services.rows.kept_views import Views
from app.services.rows.many_lookups import rows_exist
from app.storage.images import Images

# For each key whether it has a row now, staged records included.
KnownRows = Callable[[Sequence[Key]], Sequence[bool]]


def known_rows(views: Views, images: Images, name: tuple[str, str]) -> KnownRows:
    """Return a function that looks up rows of the table ``name``, each time in its current state."""
    return lambda keys: rows_exist(views.current(name, Consistency.LATEST), images, keys)


def no_rows(keys: Sequence[Key]) -> Sequence[bool]:
    """Return False for each key: none has a row."""
    return [False] * len(keys)
