"""Which records of merged batches are kept, and which snapshots to explain them from (docs/decisions/0034)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.core.table.history import Base, HistoryFile

MOST_BASES = 3
# Packed history files are joined into files of at most this size.
JOINED_BYTES = 2**24
JOINED_RECORDS = 500_000


@dataclass(frozen=True)
class Retention:
    """The retention that a table's options set: everything of the last ``window`` can be explained, up to
    ``most_bytes``; nothing if it is 0.
    """

    window: timedelta
    most_bytes: int


@dataclass(frozen=True)
class Kept:
    """The history to keep: the records of all snapshots after number ``since``, and the snapshots ``bases``, oldest
    first. ``since`` is the first of them, or 0, the empty table.
    """

    since: int = 0
    bases: tuple[Base, ...] = ()


def kept_next(
    kept: Kept,
    current: Base,
    begun: datetime,
    now: datetime,
    retention: Retention,
    size_after: Callable[[int], int],
    restored: Sequence[Base] = (),
) -> Kept:
    """Return the history to keep from ``now`` on, if the table shows the snapshot ``current``, which was made at
    ``begun``.

    ``size_after`` says how many bytes came into snapshots after a number. A base is taken after each half of the
    window, or of the bytes, so that what is kept reaches back between one and one and a half windows. ``restored`` are
    snapshots that show what was there before anything that is kept: they are additional bases.
    """
    if not retention.window:
        return Kept(current.snapshot_id)
    since, bases = kept.since, [base for base in kept.bases if base not in restored or base.snapshot_id == kept.since]
    if since and since not in {base.snapshot_id for base in bases}:
        since, bases = current.snapshot_id, [current]  # what it could be explained from is gone
    elif _is_due(bases[-1] if bases else Base(0, begun), current, now, retention, size_after):
        bases.append(current)
    old = [base.snapshot_id for base in bases if now - base.committed_at >= retention.window]
    since = max([since, *old])
    while since < current.snapshot_id and size_after(since) > retention.most_bytes:
        since = min((base.snapshot_id for base in bases if base.snapshot_id > since), default=current.snapshot_id)
    if since == current.snapshot_id and current not in bases:
        bases.append(current)
    few = _few([base for base in bases if base.snapshot_id >= since])
    more = [base for base in restored if base.snapshot_id > since]
    return Kept(since, tuple(sorted({*few, *more}, key=lambda base: base.snapshot_id)))


def _is_due(last: Base, current: Base, now: datetime, retention: Retention, size_after: Callable[[int], int]) -> bool:
    if current.snapshot_id <= last.snapshot_id:
        return False
    return 2 * (now - last.committed_at) >= retention.window or 2 * size_after(last.snapshot_id) >= retention.most_bytes


def _few(bases: Sequence[Base]) -> tuple[Base, ...]:
    """Return the first, from which all is explained, and the last ones: those between are to begin from later."""
    return tuple(bases) if len(bases) <= MOST_BASES else (bases[0], *bases[1 - MOST_BASES :])


def joined(
    files: Sequence[HistoryFile], bases: Sequence[int], unpacked: Callable[[HistoryFile], int], most_bytes: int
) -> Iterator[Sequence[HistoryFile]]:
    """Yield which of ``files`` (oldest first) become one: neighbours of one schema, none of which came before a base
    that another came after, and that take ``most_bytes`` at most as they are ``unpacked`` in memory.

    A file is joined with the one before it once it has half as many records, so that each record is written again a few
    times only, and there are few files.
    """

    def fits(parts: Sequence[HistoryFile]) -> bool:
        return _is_small(parts) and sum(map(unpacked, parts)) <= most_bytes

    alike: dict[tuple[int, int], list[HistoryFile]] = defaultdict(list)
    for file in files:
        alike[file.schema_id, bisect_left(bases, file.last_snapshot)].append(file)
    for same in alike.values():
        yield from _joined(same, fits)


def _joined(
    files: Sequence[HistoryFile], fits: Callable[[Sequence[HistoryFile]], bool]
) -> Iterator[Sequence[HistoryFile]]:
    groups: list[list[HistoryFile]] = []
    for file in files:
        groups.append([file])
        while len(groups) > 1 and _records(groups[-2]) <= 2 * _records(groups[-1]) and fits(groups[-2] + groups[-1]):
            later = groups.pop()
            groups[-1] += later
    yield from (parts for parts in groups if len(parts) > 1)


def _records(files: Sequence[HistoryFile]) -> int:
    return sum(file.records for file in files)


def _is_small(files: Sequence[HistoryFile]) -> bool:
    return sum(file.size_bytes for file in files) <= JOINED_BYTES and _records(files) <= JOINED_RECORDS
