"""One system in its own process: reads the same Parquet files as the others, prints its seconds as one line of JSON."""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.meaning import digests


@dataclass
class Answer:
    """What one system did. ``cpu`` are the CPU seconds, all processes together, of the batches and of what was left to
    do after them; ``images`` and ``images_cpu`` are of what lookups need built besides, None where nothing is;
    ``extras`` are further seconds by name; ``digests`` by part of the meaning.
    """

    version: str
    load: float = 0.0
    batches: list[float] = field(default_factory=list)
    settle: float = 0.0
    cpu: float = 0.0
    images: float | None = None
    images_cpu: float = 0.0
    read: float = 0.0
    rows: int = 0
    megabytes: float = 0.0
    digests: dict[str, str] = field(default_factory=dict)
    extras: dict[str, float] = field(default_factory=dict)


class System(ABC):
    """A table of one system in ``folder``. Reading the input is not in its time; making it durable is."""

    version: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def load(self, base: pa.Table) -> None:
        """Make the table, filled with complete rows."""

    @abstractmethod
    def update(self, batch: pa.Table) -> None:
        """Fold one batch of partial updates into the table, durably."""

    def settle(self) -> None:  # noqa: B027  # most systems have nothing to do
        """Do what is left to do before others can read the table."""

    @abstractmethod
    def read(self) -> pa.Table:
        """Every row as it is now."""

    def build_images(self) -> bool:
        """Build what lookups need besides the table; return whether there is such a thing. Taken after ``read``."""
        return False

    def extras(self) -> dict[str, float]:
        """Further seconds worth telling, by name; taken after the images."""
        return {}

    def close(self) -> None:  # noqa: B027  # the same
        """End the system's processes."""


def run(system: Callable[[Path], System]) -> None:
    """``python -m bench.peers.<system> <input folder> <own folder>``: load, every batch, read, print."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    opened = system(folder)
    answer = Answer(opened.version)
    answer.load, _ = _timed(partial(opened.load, pq.read_table(source / "base.parquet")))
    for file in sorted(source.glob("batch-*.parquet")):
        seconds, cpu = _timed(partial(opened.update, pq.read_table(file)))
        answer.batches.append(seconds)
        answer.cpu += cpu
    answer.settle, cpu = _timed(opened.settle)
    answer.cpu += cpu
    began = time.perf_counter()
    rows = opened.read()
    answer.read = time.perf_counter() - began
    answer.rows, answer.digests = len(rows), digests(rows)
    built: list[bool] = []
    seconds, cpu = _timed(lambda: built.append(opened.build_images()))
    if built[0]:
        answer.images, answer.images_cpu = seconds, cpu
    answer.extras = opened.extras()
    opened.close()
    answer.megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    print(json.dumps(asdict(answer)), flush=True)


def _timed(act: Callable[[], None]) -> tuple[float, float]:
    """The seconds by the clock, and the CPU seconds of this process and its children."""
    before, began = _cpu_seconds(), time.perf_counter()
    act()
    return time.perf_counter() - began, _cpu_seconds() - before


def _cpu_seconds() -> float:
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def parse_answer(printed: str) -> Answer:
    """Return the answer that ``run`` printed, after everything that the system printed."""
    return Answer(**json.loads(printed.strip().splitlines()[-1]))
