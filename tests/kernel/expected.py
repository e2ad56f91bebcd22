"""The rows that a history comes to, and those that a site shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests import oracle
from tests.site import Rows, Site


def expected_rows(table: oracle.TableCase, history: Sequence[oracle.Change]) -> Rows:
    """Return the row of each key of a history, folded by the oracle."""
    keys: dict[tuple[Any, ...], list[oracle.Change]] = defaultdict(list)
    for change in history:
        keys[tuple(change.values[name] for name in table.primary_key)].append(change)
    return {key: oracle.fold(table, changes) for key, changes in keys.items()}


def visible(rows: Rows) -> Rows:
    """Return the rows of the keys that have one."""
    return {key: row for key, row in rows.items() if row is not None}


def shown(table: oracle.TableCase, site: Site) -> Rows:
    """Return the rows that lookups in the site's runs find."""
    return {key: oracle.meant(table, row) for key, row in visible(site.rows()).items()}
