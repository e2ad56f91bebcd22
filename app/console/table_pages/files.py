"""The files of a table: its runs by partition, what they cost, and how other engines read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from app.console.parts.courses import Course, course
from app.console.site.visits import Page, Visit
from app.console.table_pages.table import TABLE_PAGE, table_name, table_page
from app.core.quantities import counted, many, numbered, sized
from app.core.table.history import Run
from app.core.table.published import Format
from app.services.operating.stats import Amplified, TableStats, amplified, image_progress, table_stats
from app.services.publishing.files import list_files
from app.services.publishing.publication_state import Endpoint, publication_state
from app.services.shared.pages import PageRequest

# The plots show at most this many snapshots.
MOST_SNAPSHOTS: Final = 100
MOST_PARTITIONS: Final = 100
# At most this many runs of a partition are drawn one by one.
MOST_RUNS: Final = 60
PAGE_FILES: Final = 50
_PAGE: Final = f"{TABLE_PAGE}/files"


@dataclass(frozen=True)
class Piece:
    """One run in the bar of its partition: where it begins and how wide it is, in percent, and its description."""

    begin: float
    width: float
    description: str


@dataclass(frozen=True)
class Bar:
    """A partition and its runs, the oldest first, drawn in proportion to the largest of all partitions."""

    partition: str | None
    runs: Sequence[Run]
    largest: int

    @property
    def files(self) -> int:
        """Data files."""
        return sum(len(run.files) for run in self.runs)

    @property
    def rows(self) -> int:
        """State rows: a key counts once per run that has it."""
        return sum(run.rows for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(run.size_bytes for run in self.runs)

    @property
    def pieces(self) -> list[Piece]:
        """The runs as they are drawn; those beyond ``MOST_RUNS`` as one."""
        pieces, begin = [], 0.0
        parts = [[run] for run in self.runs[:MOST_RUNS]] + ([[*self.runs[MOST_RUNS:]]] if self.runs[MOST_RUNS:] else [])
        for part in parts:
            size = sum(run.size_bytes for run in part)
            width = 100.0 * size / self.largest
            words = f"run {part[0].id}" if len(part) == 1 else f"{counted(len(part))} newer runs"
            pieces.append(Piece(round(begin, 2), round(max(width, 0.3), 2), f"{words}, {sized(size)}"))
            begin += width
        return pieces

    @property
    def summary(self) -> str:
        """The bar in words."""
        sizes = ", ".join(sized(run.size_bytes) for run in self.runs[:10])
        return f"{many(len(self.runs), 'run')}, the oldest first: {sizes}{'…' if len(self.runs) > 10 else ''}"


def show_files(visit: Visit) -> Response:
    """Show runs by partition, amplifications, and the files themselves, a page at a time."""
    parts = visit.parts
    with parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        stats = table_stats(repository, table, spark_answers=visit.parts.spark_ready())
        files = list_files(
            repository, parts.warehouse, table, None, PageRequest(PAGE_FILES, visit.param("after") or None)
        )
        endpoint = Endpoint(str(visit.request.base_url), visit.signed_in)
        published = {form: publication_state(repository, parts.warehouse, table, form, endpoint) for form in Format}
        snapshots = repository.snapshots.page(table.id, after=None, limit=MOST_SNAPSHOTS)
        images = image_progress(parts.images, table, stats.snapshot)
    return table_page(
        visit,
        "files",
        table=table,
        stats=stats,
        files=files,
        published=published,
        images=images,
        bars=_bars(stats)[:MOST_PARTITIONS],
        plots=_courses(amplified([*reversed(snapshots)])),
    )


def _bars(stats: TableStats) -> list[Bar]:
    """Return a bar for each partition, the largest first."""
    sizes = {number: sum(run.size_bytes for run in runs) for number, runs in enumerate(stats.partitions)}
    largest = max([1, *sizes.values()])
    bars = [Bar(runs[0].partition, runs, largest) for runs in stats.partitions]
    return sorted(bars, key=lambda bar: (-bar.size_bytes, bar.partition or ""))


def _courses(steps: Sequence[Amplified]) -> list[Course]:
    numbers = [step.snapshot_id for step in steps]
    return [
        course(
            "Write amplification",
            "bytes written per byte merged",
            _times,
            "orange",
            numbers,
            [step.write for step in steps],
        ),
        course(
            "Read amplification", "runs that a lookup may read", _runs, "blue", numbers, [step.read for step in steps]
        ),
        course(
            "Space amplification",
            "bytes per byte of the oldest runs",
            _times,
            "green",
            numbers,
            [step.space for step in steps],
        ),
    ]


def _times(ratio: float) -> str:
    return f"{numbered(ratio)} ×"


def _runs(number: float) -> str:
    return f"{number:g}"


PAGES: Final = (Page("GET", _PAGE, show_files),)
