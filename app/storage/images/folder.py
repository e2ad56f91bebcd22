"""The images of this machine, memory-mapped for lookups; Parquet files are read where there is none."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.history import DataFile, Run
from app.core.table.keys import Key, same_key
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.files.layout import Warehouse
from app.files.named_files import file_of_run
from app.files.reading import Rows, rows_in
from app.files.tokens import Tokens, files_with, files_with_any
from app.storage.images.answers import STANDING, Known
from app.storage.images.asking import Asking
from app.storage.images.container import Container, Damaged, Earlier, Int64s
from app.storage.images.read_bytes import ReadBytes
from app.storage.images.requests import STATES, ImageName, ImageRequest, request_of
from app.storage.images.room import stored_images, touch
from app.storage.images.states import (
    Candidate,
    StateRow,
    columns_in_image,
    columns_in_parquet,
    rows_in_image,
    rows_in_parquet,
)
from app.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0
_TOUCH_SECONDS = 60.0
DEFAULT_BYTES = 16 * 2**30
Made = TypeVar("Made")


class Answer(NamedTuple):
    """The answer of one run for a key: a row's JSON; ``written``: the run has the key.

    ``standing`` are the values that decide against other runs' answers (``WholeRow.columns``), as a JSON array.
    """

    body: bytes | None
    written: bool
    standing: bytes = b""


ABSENT = Answer(None, False)
DELETED = Answer(None, True)


@dataclass(frozen=True)
class ImageProgress:
    """The number of a snapshot's data files, of those with an image, and the bytes of these images."""

    files: int
    made: int
    size_bytes: int


class Images:
    """The images of this machine, in ``folder``; a separate process makes them, all processes share the files.

    They take ``limit`` bytes of the disk at most. A data file without an image is served from the row groups of its
    Parquet file that can hold the token.
    """

    def __init__(
        self, folder: Path, warehouse: Warehouse, limit: int = DEFAULT_BYTES, metrics: Metrics | None = None
    ) -> None:
        self.folder = folder
        self.warehouse = warehouse
        self.metrics = metrics or Metrics()
        self.asking = Asking(folder, warehouse, limit, self.metrics)
        self._open: dict[tuple[str, str, str], Container] = {}  # by run, file, form
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop requesting images, and withdraw all requests."""
        self._closed.set()
        self.asking.close()

    def start_sweeping(self, live_runs: Callable[[], set[tuple[str, str]]]) -> None:
        """Start a thread: every minute it records the use of images; every few minutes it drops those of runs that no
        snapshot names. ``live_runs`` returns (table, run) ids.
        """

        def sweep() -> None:
            passed = 0.0
            while not self._closed.wait(_TOUCH_SECONDS):
                passed = (passed + _TOUCH_SECONDS) % SWEEP_SECONDS
                try:
                    self.note_use()
                    if not passed:
                        self.keep_only(live_runs())
                except Exception:
                    logger.warning("images could not be swept; retried later", exc_info=True)

        threading.Thread(target=sweep, name="image-sweep", daemon=True).start()

    def note_use(self) -> None:
        """Set the time of last use of the images that were used since the last call.

        Close the other images, and removed ones: each takes a file descriptor. A lookup opens them again.
        """
        for place, image in list(self._open.items()):
            if not image.used or not touch(image.path):
                self._open.pop(place, None)
            image.used = False

    def keep_only(self, live_runs: set[tuple[str, str]]) -> None:
        """Remove the images of all other runs; lookups that have one open can still use it."""
        for folder in self.folder.glob("*/*"):
            if folder.is_dir() and (folder.parent.name, folder.name) not in live_runs:
                shutil.rmtree(folder, ignore_errors=True)
        runs = {run for _, run in live_runs}
        for place in [place for place in list(self._open) if place[0] not in runs]:
            self._open.pop(place, None)

    def on_disk(self) -> tuple[int, int]:
        """Return how many images this machine has, of all runs, and their bytes."""
        sizes = [image.size_bytes for image in stored_images(self.folder)]
        return len(sizes), sum(sizes)

    def progress(self, table_id: str, runs: Sequence[Run], plan: MergePlan) -> ImageProgress:
        """Return the progress of the images of ``runs`` under ``plan``."""
        names = [ImageName(table_id, run.id, file.name, plan.answer_form) for run in runs for file in run.files]
        sizes = [path.stat().st_size for path in (name.path(self.folder) for name in names) if path.exists()]
        return ImageProgress(len(names), len(sizes), sum(sizes))

    def answer(
        self, table_id: str, run: Run, written: TableSchema, plan: MergePlan, token: int, key: bytes
    ) -> Answer | None:
        """Return the answer for ``key`` (``key_json``) in a run that was written under ``written``, as the equivalent
        ``plan`` shows it. None if no image has it: then read the state row.
        """
        for file in files_with(run, token):
            image = self._answers(table_id, run, file, written, plan)
            if image is None:
                return None
            try:
                stored = _answer_in(image, image.rows_of(token), key)
            except Damaged:
                self._drop(image)
                return None
            if stored is not ABSENT:
                return stored
        return ABSENT

    def answers(
        self,
        table_id: str,
        run: Run,
        written: TableSchema,
        plan: MergePlan,
        tokens: Tokens,
        keys: Sequence[bytes],
        read: ReadBytes | None = None,
    ) -> list[Answer | bytes | None]:
        """Return ``answer`` for many keys and their tokens; only the JSON of a row if nothing else decides.

        Raise ``TooMuchAtOnce`` for more than may be ``read``.
        """
        by_key: list[Answer | bytes | None] = [ABSENT] * len(keys)
        for file, places in files_with_any(run, tokens):
            image = self._answers(table_id, run, file, written, plan)
            rows = None if image is None else image.first_rows(tokens[places])
            held = (places if rows is None else places[rows >= 0]).tolist()
            answers = self._all_in(image, rows, [keys[place] for place in held], plan, read)
            for place, answer in zip(held, answers, strict=True):
                by_key[place] = answer
        return by_key

    def _all_in(
        self,
        image: Container | None,
        rows: Int64s | None,
        keys: Sequence[bytes],
        plan: MergePlan,
        read: ReadBytes | None,
    ) -> Sequence[Answer | bytes | None]:
        """Return the image's answer for each key. ``rows`` has the first row with the key's token, or a negative
        number. All are None if there is no image, or it is damaged.
        """
        if image is None or rows is None:
            return [None] * len(keys)
        held = rows[rows >= 0]
        stands = plan.whole is not None and bool(plan.whole.columns)
        try:
            heads = [key + _ROW for key in keys]
            bodies = [None] * len(keys) if stands else image.behind(held, heads, read)
            if None not in bodies:
                return bodies
            return [
                _answer_in(image, image.rows_from(row), key, read) if body is None else body
                for row, key, body in zip(held.tolist(), keys, bodies, strict=True)
            ]
        except Damaged:
            self._drop(image)
            return [None] * len(keys)

    def find(self, table_id: str, run: Run, token: int, key_names: tuple[str, ...], key: Key) -> StateRow | None:
        """Return the state row of ``key`` in a run; None if the run has none."""
        return self.find_all(table_id, run, [token], key_names, [key])[0]

    def find_all(
        self,
        table_id: str,
        run: Run,
        tokens: Sequence[int],
        key_names: tuple[str, ...],
        keys: Sequence[Key],
        read: ReadBytes | None = None,
    ) -> list[StateRow | None]:
        """Return ``find`` for many keys and their tokens; each part of a file is read once. Raise ``DamagedFile``, and
        ``TooMuchAtOnce`` for more than may be ``read``.
        """
        states: list[StateRow | None] = [None] * len(keys)
        for file, where in files_with_any(run, np.array(tokens, dtype=np.int64)):
            places = where.tolist()
            for nth, row in self._states_in(table_id, run, file, [tokens[place] for place in places], read):
                if same_key(tuple(row[name] for name in key_names), keys[places[nth]]):
                    states[places[nth]] = row
        return states

    def columns(self, table_id: str, run: Run, tokens: Tokens, read: ReadBytes | None = None) -> Rows | None:
        """Return the state rows of a run that have one of ``tokens``, which are ascending and each once; None for none.
        Raise as ``find_all``.
        """
        batches = [
            batch
            for file, where in files_with_any(run, tokens)
            for batch in self._columns_in(table_id, run, file, tokens[where], read)
        ]
        return rows_in(batches) if batches else None

    def _columns_in(
        self, table_id: str, run: Run, file: DataFile, tokens: Tokens, read: ReadBytes | None
    ) -> list[pa.RecordBatch]:
        return self._in_states(
            table_id,
            run,
            file,
            lambda image: columns_in_image(image, tokens, read),
            lambda stored: columns_in_parquet(self.warehouse, stored, tokens, read),
        )

    def _states_in(
        self, table_id: str, run: Run, file: DataFile, tokens: Sequence[int], read: ReadBytes | None
    ) -> list[Candidate]:
        return self._in_states(
            table_id,
            run,
            file,
            lambda image: rows_in_image(image, tokens, read),
            lambda stored: rows_in_parquet(self.warehouse, stored, tokens, read),
        )

    def _in_states(
        self,
        table_id: str,
        run: Run,
        file: DataFile,
        of_image: Callable[[Container], Iterator[Made]],
        of_file: Callable[[NamedFile], Iterator[Made]],
    ) -> list[Made]:
        """Return the values read from the image of a file's state rows, or from the file until it has an image."""
        image = self._states(table_id, run, file)
        if image is not None:
            try:
                return list(of_image(image))
            except Damaged:
                self._drop(image)
        return list(of_file(file_of_run(table_id, run.id, file)))

    def _answers(
        self, table_id: str, run: Run, file: DataFile, written: TableSchema, plan: MergePlan
    ) -> Container | None:
        image = self._open.get((run.id, file.name, plan.answer_form))
        if image is not None and image.is_whole:
            image.used = True
            return image
        name = ImageName(table_id, run.id, file.name, plan.answer_form)
        return self._opened(name, lambda: request_of(table_id, run.id, file, written, plan))

    def _opened(self, name: ImageName, request: Callable[[], ImageRequest]) -> Container | None:
        """Return the image, if there is one; else it is asked for."""
        place = (name.run_id, name.file, name.form)
        image = self._open.get(place)
        if image is not None and not image.is_whole:
            self._drop(image)
            image = None
        if image is None:
            image = _read(name.path(self.folder))
            if image is None:
                self.asking.ask(name, request)
                return None
            self._open[place] = image
        image.used = True
        return image

    def want(self, table_id: str, run: Run, written: TableSchema, plan: MergePlan) -> None:
        """Request the images of a run's answers under ``plan``, unless they exist."""
        for file in run.files:
            self._answers(table_id, run, file, written, plan)

    def want_states(self, table_id: str, run: Run) -> None:
        """Request the image of state rows, as ``want`` does."""
        for file in run.files:
            self._wanted_states(ImageName(table_id, run.id, file.name, STATES), file)

    def unwant(self, table_id: str, runs: Iterable[Run]) -> None:
        """Withdraw the requests for images of runs that lookups no longer need."""
        self.asking.withdraw(table_id, {run.id for run in runs})

    def _states(self, table_id: str, run: Run, file: DataFile) -> Container | None:
        """Return the image of state rows. If there is none, request it, unless the image of answers is being made."""
        name = ImageName(table_id, run.id, file.name, STATES)
        if self.asking.awaits_answers(run.id, file.name) and not name.path(self.folder).exists():
            return None
        return self._wanted_states(name, file)

    def _wanted_states(self, name: ImageName, file: DataFile) -> Container | None:
        return self._opened(name, lambda: ImageRequest(name, file))

    def _drop(self, image: Container) -> None:
        """Remove a damaged image, and request it again."""
        logger.warning("the image %s is damaged and is made again", image.path)
        image.path.unlink(missing_ok=True)
        for place in [place for place, opened in self._open.items() if opened is image]:
            self._open.pop(place, None)


def _answer_in(image: Container, rows: Iterable[int], key: bytes, read: ReadBytes | None = None) -> Answer | None:
    """Return the image's answer for ``key``, which may be at one of ``rows``."""
    for row in rows:
        entry = image.entry(row)
        if entry.startswith(key):
            if read is not None:
                read.add(len(entry))
            return _said(entry, len(key))
    return ABSENT


_ROW, _DELETED = (known.value.encode() for known in (Known.ROW, Known.DELETED))
_STANDING = STANDING.encode()
_CLOSED = ord("}")  # what ends a row's JSON


def _said(entry: bytes, behind: int) -> Answer | None:
    """Return the answer in an entry, after its key; None if only the state row has the answer."""
    known = entry[behind : behind + 1]
    if known == _ROW:
        if entry[-1] == _CLOSED:
            return Answer(entry[behind + 1 :], True)
        body, _, standing = entry[behind + 1 :].partition(_STANDING)
        return Answer(body, True, standing)
    if known != _DELETED:
        return None
    return DELETED if len(entry) == behind + 1 else Answer(None, True, entry[behind + 2 :])


def _read(path: Path) -> Container | None:
    """Return the image in the file; None if it is missing or damaged; a damaged file is removed."""
    try:
        return Container(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Damaged as error:
        if not isinstance(error, Earlier):
            logger.warning("the image %s is damaged and is made again", path, exc_info=True)
        path.unlink(missing_ok=True)
        return None
    except OSError:
        logger.warning("the image %s cannot be opened", path, exc_info=True)
        return None
