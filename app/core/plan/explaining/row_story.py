"""The story of one key: its state row through merges under one schema after the other, and where its values came from.

The sources of a value are followed through changes of the schema: a value that enters new rules as a first record
keeps its sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.core.plan.explaining.explained_fold import Shown, ShownFold
from app.core.plan.explaining.sources import Sources, sources, sources_at_start
from app.core.plan.merging.evolution import combined_row
from app.core.plan.merging.fold import combine_all, lift
from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.records import Record


class RowStory(ShownFold):
    """The story of a key from the state row ``state`` on, under ``plan``: records, changes of the schema, removals."""

    def __init__(self, plan: MergePlan, state: Mapping[str, Any] | None, shown: Shown) -> None:
        super().__init__(plan, state, shown, strict=False)
        self._known: set[int] = set()
        self._begin(plan, state, sources_at_start(plan, state))

    def _begin(self, plan: MergePlan, state: Mapping[str, Any] | None, origin: Sources) -> None:
        self.plan, self.state = plan, state
        self._before, self._origin = state, origin
        self._records: list[Record] = []

    @property
    def hidden(self) -> bool:
        """Whether the key has a state row that is no visible row."""
        return self.state is not None and not self.plan.row.is_live(self.state)

    def fold(self, record: Record) -> None:
        """Fold one record, without an explanation."""
        self.fold_all([record])

    def fold_all(self, records: Sequence[Record]) -> None:
        """Fold ``records`` at once, without an explanation."""
        lifted = [lift(self.plan, record) for record in records]
        self.state = combine_all(self.plan, lifted if self.state is None else [self.state, *lifted])
        self._records += records
        self._known.update(record.arrival for record in records)

    def enter(self, plan: MergePlan) -> None:
        """Go on under another plan of the same table."""
        known = self.sources()
        state = None if self.state is None else combined_row(plan, [(self.plan, self.state)])
        at_start = sources_at_start(plan, state)
        self._begin(plan, state, {number: known.get(number, source) for number, source in at_start.items()})

    def forget(self) -> None:
        """Go on from nothing."""
        self._begin(self.plan, None, {})

    def sources(self) -> Sources:
        """Return where the values came from that the state row holds."""
        return sources(self.plan, self._before, self._records, self.state, self._origin, self._known)
