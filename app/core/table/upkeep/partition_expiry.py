"""When a partition is outdated: ``partition.expiration-time`` and how a partition's time is read (Paimon's options)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from app.core.table.calendar import earlier
from app.core.table.options.entries import ExpirationStrategy
from app.core.table.options.parsed import TableOptions


def expired(
    options: TableOptions,
    partition_keys: Sequence[str],
    values: Mapping[str, Any],
    changed_at: datetime | None,
    now: datetime,
) -> bool:
    """Return whether a partition with these values (as JSON), last merged into at ``changed_at``, is outdated at
    ``now``.

    One whose values say no time is kept.
    """
    by_update = options["partition.expiration-strategy"] is ExpirationStrategy.UPDATE_TIME
    time = changed_at if by_update else _time_of(options, partition_keys, values)
    return time is not None and time < earlier(now, options["partition.expiration-time"])


def _time_of(options: TableOptions, partition_keys: Sequence[str], values: Mapping[str, Any]) -> datetime | None:
    pattern = options["partition.timestamp-pattern"] or f"${partition_keys[0]}"
    # The longest name first: $dt must not be read inside $dt_hour.
    names = "|".join(re.escape(name) for name in sorted(partition_keys, key=len, reverse=True))
    text = re.sub(rf"\$({names})", lambda match: str(values[match[1]]), pattern)
    formatter = options["partition.timestamp-formatter"]
    try:
        time = datetime.strptime(text, formatter) if formatter else datetime.fromisoformat(text)  # noqa: DTZ007  # UTC below
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
