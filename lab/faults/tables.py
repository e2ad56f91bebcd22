"""The tables of the campaign, one for each way of merging, and the batches that are drawn for them: a batch that is
lost, doubled or half is seen in the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.core.table.published import Format
from lab.faults.ledger import SERIALS, Row
from tests.oracle import TableCase

Draw = Callable[[Random, int], list[Row]]
SHARED_KEYS = 12  # of each table: hit by many batches
OWN = 1000  # above this a key is of one batch alone
PARTS = 3
KEPT = {"snapshot.time-retained": "1 d", "snapshot.num-retained.max": "100000"}
# What a compaction has replaced is garbage soon: a sweep of a file that is needed shows.
SWEPT = {"snapshot.time-retained": "1 s", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}


@dataclass(frozen=True)
class Drawn:
    """A table, and the records of its batch of a serial, which ``collected`` of its rows collect. ``rolled_back``: at
    times it is; ``changes``: its changelog, applied, is its rows. ``kept``: options of what is kept.
    """

    case: TableCase
    draw: Draw
    partitioned_by: tuple[str, ...] = ()
    rolled_back: bool = False
    collected: int = 0
    kept: Mapping[str, str] = field(default_factory=lambda: KEPT)

    @property
    def publishes(self) -> bool:
        """Whether it has a Delta log."""
        return self.case.options.get("delta.publish") == "true"

    @property
    def changes(self) -> bool:
        """Whether it has a changelog."""
        return "changelog-producer" in self.case.options

    def schema(self) -> dict[str, Any]:
        """As it is created."""
        return {
            "fields": [
                {"id": place, "name": name, "type": kind} for place, (name, kind) in enumerate(self.case.columns)
            ],
            "primaryKeys": list(self.case.primary_key),
            "partitionKeys": list(self.partitioned_by),
            "options": {"merge.max-staleness": "500 ms", **self.kept, **self.case.options},
        }


def _shared(random: Random, serial: int) -> list[int]:
    """Two keys that others write, too."""
    return random.sample(range(SHARED_KEYS), 2)


def _summed(random: Random, serial: int) -> list[Row]:
    keys = [*_shared(random, serial), OWN + serial]
    return [{"part": key % PARTS, "id": key, "n": serial, SERIALS: [serial]} for key in keys]


def _rolled(random: Random, serial: int) -> list[Row]:
    return [{"id": key, "n": serial, SERIALS: [serial]} for key in (*_shared(random, serial), OWN + serial)]


def _assembled(random: Random, serial: int) -> list[Row]:
    """One key's left half, another one's right half, each its own; all times differ, and many are late."""
    left, right = _shared(random, serial)
    at = random.randrange(1000) * 10**6 + serial
    own: Row = {"id": OWN + serial, "left_at": at, "said": f"l{serial}"}
    right_half = {"right_at": at, "told": f"r{serial}", "n": serial, SERIALS: [serial]}
    return [{"id": left, "left_at": at, "said": f"l{serial}"}, {"id": right, **right_half}, {**own, **right_half}]


def _latest(random: Random, serial: int) -> list[Row]:
    gone, written = _shared(random, serial)
    delete = {"id": gone, "n": serial, "text": "", "_kind": "-D"}
    return [delete, *({"id": key, "n": serial, "text": f"{key} of {serial}"} for key in (written, OWN + serial))]


def _first(random: Random, serial: int) -> list[Row]:
    return [{"id": key, "n": serial} for key in (OWN + serial, *_shared(random, serial), 500 + serial % 500)]


_ID = ("id", "BIGINT NOT NULL")
_N = ("n", "BIGINT")
_LIST = (SERIALS, "ARRAY<BIGINT>")
_SUMS = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "fields.serials.aggregate-function": "collect",
}
_PUBLISHED = {one.publish: "true" for one in Format} | {one.retained: "1 s" for one in Format}

TABLES: Mapping[str, Drawn] = {
    "summed": Drawn(
        TableCase((("part", "INT NOT NULL"), _ID, _N, _LIST), ("part", "id"), _SUMS | _PUBLISHED),
        _summed,
        ("part",),
        collected=3,
        kept=SWEPT,
    ),
    "assembled": Drawn(
        TableCase(
            (_ID, ("left_at", "BIGINT"), ("said", "STRING"), ("right_at", "BIGINT"), ("told", "STRING"), _N, _LIST),
            ("id",),
            {
                "merge-engine": "partial-update",
                "fields.left_at.sequence-group": "said",
                "fields.right_at.sequence-group": "told,n,serials",
                "fields.n.aggregate-function": "sum",
                "fields.serials.aggregate-function": "collect",
            },
        ),
        _assembled,
        collected=2,
    ),
    "latest": Drawn(
        TableCase(
            (_ID, _N, ("text", "STRING")),
            ("id",),
            {"merge-engine": "deduplicate", "changelog-producer": "lookup", **_PUBLISHED},
        ),
        _latest,
    ),
    "first": Drawn(TableCase((_ID, _N), ("id",), {"merge-engine": "first-row"}), _first, kept=SWEPT),
    "rolled": Drawn(TableCase((_ID, _N, _LIST), ("id",), _SUMS), _rolled, rolled_back=True, collected=3),
}
