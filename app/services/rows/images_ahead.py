"""Images made before they are asked for: of the new runs of tables that are being looked up (decision 17)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Table
from app.services.rows.kept_views import Name, Views
from app.services.rows.views import View, schemas_of
from app.services.shared.background import Repeated
from app.services.shared.each_table import faults_kept
from app.storage.images import RECENT_SECONDS, Images
from app.telemetry.entries import Upkeep

LOOK_SECONDS = 0.5


class ImagesAhead(Repeated):
    """Looks for commits to the tables that this process has lately been asked for, and has the images of their new runs
    made, so that the first lookups after a merge find them.

    Tables that nothing asks for take no room and no turn of the builder: an image that is made for such a table could
    push out one that is used. "Lately" is as long as a used image leaves for no other. What a table has when it is
    first asked for is left to lookups, which ask for the files that they need.
    """

    def __init__(
        self, database: CatalogDatabase, views: Views, images: Images, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("images-ahead", self.look, lambda: LOOK_SECONDS)
        self._database = database
        self._views = views
        self._images = images
        self._clock = clock
        self._used: dict[Name, float] = {}
        self._marks: Mapping[str, int] = {}
        self._seen: dict[str, View] = {}

    def look(self) -> None:
        """Ask for the images of what was committed since; the catalog is read only if marks show a change."""
        now = self._clock()
        self._used.update(dict.fromkeys(self._views.take_used(), now))
        self._used = {name: at for name, at in self._used.items() if at >= now - RECENT_SECONDS}
        known = [view for name in self._used if (view := self._views.known(name)) is not None]
        marks = {view.table.id: self._database.marks.of(view.table.id) for view in known}
        for view in self._changed([one for one, mark in marks.items() if mark != self._marks.get(one)]):
            before = self._seen.get(view.table.id)
            if before is not None:
                with faults_kept(self._database.metrics, Upkeep.IMAGES, view.table.full_name):
                    kept = {run.id for run in view.runs}
                    self._images.unwant(view.table.id, [run for run in before.runs if run.id not in kept])
                    want_images(self._images, before, view)
            self._seen[view.table.id] = view
        self._marks = marks
        self._seen = {table_id: view for table_id, view in self._seen.items() if table_id in marks}

    def _changed(self, table_ids: Sequence[str]) -> list[View]:
        """Return the tables whose current snapshot, or schema, is another one than when they were last seen."""
        if not table_ids:
            return []
        with self._database.reading() as repository:
            tables = [table for one in table_ids if (table := repository.tables.find(one)) is not None]
            return [_merged_view(repository, one) for one in tables if _head(one) != _head_of(self._seen.get(one.id))]


def _merged_view(repository: Repository, table: Table) -> View:
    snapshot = repository.snapshots.of(table)
    return View(table, compile_plan(table.schema), snapshot, schemas_of(repository, table, snapshot))


def _head(table: Table) -> tuple[int, int | None]:
    return table.schema_id, table.snapshot_id


def _head_of(view: View | None) -> tuple[int, int | None] | None:
    return None if view is None else _head(view.table)


def want_images(images: Images, before: View, view: View) -> None:
    """Have the images made that lookups in ``view`` need and those in ``before``, the same table's, did not: of new
    runs, and of those whose answers were made under another form; of state rows where several are combined.
    """
    of_partition = Counter(run.partition for run in view.runs)
    known = {run.id for run in before.runs}
    renewed = view.plan.answer_form != before.plan.answer_form
    for run in view.runs:
        written = view.readable[run.schema_id]
        new = run.id not in known
        if written is not None and (new or (renewed and images.progress(view.table.id, [run], before.plan).made)):
            images.want(view.table.id, run, written, view.plan)
        if new and (written is None or (view.plan.whole is None and of_partition[run.partition] > 1)):
            images.want_states(view.table.id, run)
