"""What a storm of lookups is checked against: every state that a table may be in, in order, while it is written,
merged, compacted, altered and rolled back.

The keys of a group are written together, each batch counting all of them up by one: the row of count n has n, the sum
of n ones, and a text that names its key, its generation (rollbacks so far) and n. A state is a generation and a count.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

State = tuple[int, int]  # the generation and the count


@dataclass
class Group:
    """The keys that one writer counts up together.

    ``states`` are those that were asked for so far; from ``acknowledged`` on they may be seen by ``latest``, from
    ``merged`` on by ``merged``, up to the last one. ``writing`` is held by whoever changes them.
    """

    keys: Sequence[int]
    states: list[State] = field(default_factory=lambda: [(0, 0)])
    acknowledged: int = 0
    merged: int = 0
    generation: int = 0
    text: str = "said"  # what the column of the text is called
    writing: threading.Lock = field(default_factory=threading.Lock)

    def next_records(self) -> list[dict[str, Any]]:
        """The records that count up; their state may be seen from now on."""
        state = (self.generation, self.states[-1][1] + 1)
        self.states.append(state)
        return [{"id": key, "n": state[1], "ones": 1, self.text: said(key, state)} for key in self.keys]

    def roll_back(self, to: int) -> None:
        """A rollback to the state at place ``to`` may be seen from now on; what comes is of the next generation."""
        self.states.append(self.states[to])
        self.generation += 1

    def settle(self) -> None:
        """Everything that was asked for is there and merged."""
        self.acknowledged = self.merged = len(self.states) - 1


def said(key: int, state: State) -> str:
    """What the text of a row says."""
    return f"{key} {state[0]} {state[1]}"


@dataclass(frozen=True)
class Seen:
    """When a request began: the earliest state of each group that may answer it."""

    groups: Sequence[Group]
    earliest: Sequence[int]

    @classmethod
    def at_start(cls, groups: Sequence[Group], *, merged: bool) -> Seen:
        """To be taken before the request is sent."""
        return cls(groups, [group.merged if merged else group.acknowledged for group in groups])

    def faults(self, rows: Mapping[int, Mapping[str, Any] | None]) -> list[str]:
        """What is wrong with rows that one answer holds; keys of one group have one state."""
        found = []
        for group, earliest in zip(self.groups, self.earliest, strict=True):
            asked = [key for key in group.keys if key in rows]
            states = {state_of(key, rows[key]) for key in asked}
            legal = group.states[earliest:]
            if len(states) > 1:
                found.append(f"one answer, several states: {[rows[key] for key in asked]}")
            found += [
                f"{[rows[key] for key in asked]}: not among the states from {legal[0]} to {legal[-1]}"
                for state in states
                if state not in legal
            ]
        return found


def state_of(key: int, row: Mapping[str, Any] | None) -> State | None:
    """The state of a row; None where its columns contradict each other, or are none of the table's."""
    if row is None:
        return (0, 0)
    name = "told" if "told" in row else "said"
    parts = str(row.get(name)).split(" ")
    state = (int(parts[1]), int(parts[2])) if len(parts) == 3 else (0, 0)
    expected = {"id": key, "n": state[1], "ones": state[1], name: said(key, state)}
    rest = {other: value for other, value in row.items() if other not in expected}
    return (
        state if {**expected, **rest} == row and rest.keys() <= {"note", "remark"} and not any(rest.values()) else None
    )


class Answers:
    """How long each kind of request took, in seconds, and what was wrong with the answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: dict[tuple[str, ...], Any] = {}
        self.seconds: dict[str, list[float]] = {}
        self.faults: list[str] = []

    def pin(self, versions: Sequence[str], rows: Mapping[int, Mapping[str, Any] | None]) -> list[str]:
        """Rows of one snapshot and batch are always the same."""
        found = []
        for key, row in rows.items():
            state = state_of(key, row)
            with self._lock:
                first = self._pinned.setdefault((*versions, str(key)), state)
            if state != first:
                found.append(f"key {key} at {versions}: {state} after {first}")
        return found

    def add(self, kind: str, seconds: float, faults: Sequence[str]) -> None:
        """One answer."""
        with self._lock:
            self.seconds.setdefault(kind, []).append(seconds)
            self.faults += [f"{kind}: {fault}" for fault in faults]

    def report(self) -> str:
        """Per kind: how many, the median, the 99th percentile, the longest, in milliseconds."""
        lines = []
        for kind, seconds in sorted(self.seconds.items()):
            ordered = [1000 * second for second in sorted(seconds)]
            middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
            lines.append(f"{kind}: {len(ordered)}, p50 {middle:.1f} ms, p99 {late:.1f} ms, max {ordered[-1]:.1f} ms")
        return "\n".join(lines)
