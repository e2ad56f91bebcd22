"""Images built before lookups need them: of the new runs of tables in use (decision 17)."""

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
    """Watches for commits to the tables that this process used recently, and requests images of their new runs, so
    that the first lookups after a merge find them.

    Other tables get no images, which could evict images in use. "Recently" is the time for which a used image is not
    evicted. When a table is first used, its lookups request the images that they need.
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
        """Request the images for commits since the last call; the catalog is read only if marks show a change."""
        now = self._clock()
        self._used.update(dict.fromkeys(self._views.take_used(), now))
        self._used = {name: at for name, at in self._used.items() if at >= now - RECENT_SECONDS}
        known = [view for name in self._used if (view := self._views.known(name)) is not None]
        marks = {view.table.id: self._database.marks.mark(view.table.id) for view in known}
        for view in self._changed([table_id for table_id, mark in marks.items() if mark != self._marks.get(table_id)]):
            before = self._seen.get(view.table.id)
            if before is not None:
                with faults_kept(self._database.metrics, Upkeep.IMAGES, view.table.full_name):
                    run_ids = {run.id for run in view.runs}
                    self._images.unwant(view.table.id, [run for run in before.runs if run.id not in run_ids])
                    want_images(self._images, before, view)
            self._seen[view.table.id] = view
        self._marks = marks
        self._seen = {table_id: view for table_id, view in self._seen.items() if table_id in marks}

    def _changed(self, table_ids: Sequence[str]) -> list[View]:
        """Return the tables whose current snapshot, or schema, has changed since the last call."""
        if not table_ids:
            return []
        with self._database.reading() as repository:
            tables = [table for table_id in table_ids if (table := repository.tables.find(table_id)) is not None]
            return [
                _merged_view(repository, table)
                for table in tables
                if _head(table) != _head_of(self._seen.get(table.id))
            ]


def _merged_view(repository: Repository, table: Table) -> View:
    snapshot = repository.snapshots.current_of(table)
    return View(table, compile_plan(table.schema), snapshot, schemas_of(repository, table, snapshot))


def _head(table: Table) -> tuple[int, int | None]:
    return table.schema_id, table.snapshot_id


def _head_of(view: View | None) -> tuple[int, int | None] | None:
    return None if view is None else _head(view.table)


def want_images(images: Images, before: View, view: View) -> None:
    """Request the images that lookups in ``view`` need and those in ``before``, an older view of the table, did not:
    of new runs, of runs whose answers have another form, and of state rows if several are combined.
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
