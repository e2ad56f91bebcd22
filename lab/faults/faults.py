"""The faults, each an entry: what it does while its block lasts. The block's text says what was struck."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab.faults.flips import flip
from lab.faults.places import Impossible
from lab.faults.system import LEASE_SECONDS, POSTGRES, SQLITE, Kept, System, children

Strike = Callable[[System, Random], AbstractContextManager[str]]


@dataclass(frozen=True)
class Fault:
    """A fault that lasts some seconds (0: it is over at once), on a system with one of these catalogs.

    ``damages``: batches may be set aside as damaged, for the time being.
    """

    strike: Strike
    seconds: float = 0
    catalogs: tuple[str, ...] = (SQLITE, POSTGRES)
    damages: bool = False


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _killed(choose: Callable[[System, Random], tuple[str, list[int]]]) -> Strike:
    @contextmanager
    def strike(system: System, random: Random) -> Iterator[str]:
        what, pids = choose(system, random)
        if not pids:
            raise Impossible(f"{what} does not run")
        _kill(pids)
        yield f"SIGKILL of {what} ({', '.join(map(str, pids))})"

    return strike


def _frozen(choose: Callable[[System, Random], tuple[str, list[int]]]) -> Strike:
    @contextmanager
    def strike(system: System, random: Random) -> Iterator[str]:
        what, pids = choose(system, random)
        if not pids:
            raise Impossible(f"{what} does not run")
        with ExitStack() as thaws:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    thaws.callback(_thaw, pid)
            yield f"SIGSTOP of {what} ({', '.join(map(str, pids))})"

    return strike


def _thaw(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _signalled(which: Callable[[System], list[Kept]]) -> Strike:
    @contextmanager
    def strike(system: System, random: Random) -> Iterator[str]:
        kept = random.choice(which(system))
        kept.send(kept.end_signal)
        yield f"{kept.end_signal.name} of {kept.name}"

    return strike


def _api(system: System, random: Random) -> tuple[str, list[int]]:
    """A process that answers requests."""
    kept = random.choice(system.apis)
    below = children(kept.pid)
    # A service of one process is that process; one of several has a parent that restarts what dies.
    return f"an API process of {kept.name}", [random.choice(below)] if system.catalog == SQLITE and below else [
        kept.pid
    ]


def _service(system: System, random: Random) -> tuple[str, list[int]]:
    kept = random.choice(system.apis)
    return kept.name, [kept.pid]


def _worker(system: System, random: Random) -> tuple[str, list[int]]:
    kept = random.choice(system.workers)
    return kept.name, [kept.pid]


def _workers(system: System, random: Random) -> tuple[str, list[int]]:
    return "both workers", [kept.pid for kept in system.workers]


def _jvm(system: System, random: Random) -> tuple[str, list[int]]:
    return "the JVM", [kept.pid for name, kept in system.kept.items() if name == "spark"]


def _postgres(system: System, random: Random) -> tuple[str, list[int]]:
    return "PostgreSQL's first process", [system.kept["postgres"].pid]


def _all_of_postgres(system: System, random: Random) -> tuple[str, list[int]]:
    return "PostgreSQL", system.kept["postgres"].family()


def _backend(system: System, random: Random) -> tuple[str, list[int]]:
    """One of its processes: PostgreSQL ends all others and restarts by itself."""
    below = children(system.kept["postgres"].pid)
    return "one process of PostgreSQL", [random.choice(below)] if below else []


def _everything(system: System, random: Random) -> tuple[str, list[int]]:
    return "everything", [pid for kept in system.kept.values() for pid in kept.family()]


@contextmanager
def _read_only_catalog(system: System, random: Random) -> Iterator[str]:
    """As some hosts make it when its disk is nearly full."""
    system.tell_postgres("ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        yield "PostgreSQL is read-only"
    finally:
        system.tell_postgres("ALTER SYSTEM RESET default_transaction_read_only")


@contextmanager
def _warehouse_gone(system: System, random: Random) -> Iterator[str]:
    with system.warehouse.gone() as details:
        yield details


def _damaged(pattern: str, how: Callable[[bytes, Random], bytes | None], newest: int = 20) -> Strike:
    """One of the newest files of a pattern is changed, or gone, and put back as it was."""

    @contextmanager
    def strike(system: System, random: Random) -> Iterator[str]:
        # While it is looked at files are swept.
        files = sorted(system.warehouse.path.glob(pattern), key=_changed)[-newest:]
        if not files:
            raise Impossible(f"there is no {pattern}")
        path = random.choice(files)
        try:
            whole = path.read_bytes()
        except FileNotFoundError:
            raise Impossible(f"{path} was swept") from None
        changed = how(whole, random)
        if changed is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(changed)
        try:
            yield f"{'gone' if changed is None else 'flipped'}: {path}"
        finally:
            with suppress(FileNotFoundError):  # its table was dropped
                path.write_bytes(whole)

    return strike


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextmanager
def _damaged_images(system: System, random: Random) -> Iterator[str]:
    """One image of each service is another one, one is gone."""
    images = [path for folder in system.folders for path in folder.glob("images/*/*/*.image")]
    if not images:
        raise Impossible("there is no image")
    chosen = random.sample(images, min(2, len(images)))
    for path, how in zip(chosen, (flip, None), strict=False):
        with suppress(FileNotFoundError):
            if how is None:
                path.unlink()
            else:
                path.write_bytes(how(path.read_bytes(), random))
    yield f"damaged: {', '.join(map(str, chosen))}"


def _gone(whole: bytes, random: Random) -> None:
    """Nothing is left of a file."""


def _clock(hours: int) -> Strike:
    def strike(system: System, random: Random) -> AbstractContextManager[str]:
        return system.clock.ahead(hours)

    return strike


@contextmanager
def _nothing(system: System, random: Random) -> Iterator[str]:
    yield "nothing is struck"


FAULTS: Mapping[str, Fault] = {
    "nothing": Fault(_nothing, 2),
    "kill an API process": Fault(_killed(_api)),
    "kill a service": Fault(_killed(_service)),
    "kill a worker": Fault(_killed(_worker)),
    "kill both workers": Fault(_killed(_workers)),
    "kill the JVM": Fault(_killed(_jvm)),
    "kill PostgreSQL's first process": Fault(_killed(_postgres), catalogs=(POSTGRES,)),
    "kill PostgreSQL": Fault(_killed(_all_of_postgres), catalogs=(POSTGRES,)),
    "kill a process of PostgreSQL": Fault(_killed(_backend), catalogs=(POSTGRES,)),
    "kill everything": Fault(_killed(_everything)),
    "freeze a worker": Fault(_frozen(_worker), 2.5 * LEASE_SECONDS),
    "freeze an API process": Fault(_frozen(_api), 4),
    "freeze the JVM": Fault(_frozen(_jvm), 2 * LEASE_SECONDS),
    "freeze PostgreSQL": Fault(_frozen(_all_of_postgres), 4, catalogs=(POSTGRES,)),
    "end a service": Fault(_signalled(lambda system: system.apis)),
    "end a worker": Fault(_signalled(lambda system: system.workers)),
    "end PostgreSQL": Fault(_signalled(lambda system: [system.kept["postgres"]]), catalogs=(POSTGRES,)),
    "full warehouse": Fault(lambda system, _: system.warehouse.full(), 4),
    "full data folder": Fault(lambda system, _: system.data.full(), 4),
    "full disk of PostgreSQL": Fault(lambda system, _: system.catalog_disk.full(), 4, catalogs=(POSTGRES,)),
    "read-only PostgreSQL": Fault(_read_only_catalog, 4, catalogs=(POSTGRES,)),
    "read-only warehouse": Fault(lambda system, _: system.warehouse.read_only(), 4),
    "warehouse not mounted": Fault(_warehouse_gone, 6),
    "staging file gone": Fault(_damaged("*/staging/*.parquet", _gone, 2), 4, damages=True),
    "staging file flipped": Fault(_damaged("*/staging/*.parquet", flip, 2), 4, damages=True),
    "data file gone": Fault(_damaged("*/runs/**/*.parquet", _gone), 4),
    "data file flipped": Fault(_damaged("*/runs/**/*.parquet", flip), 4),
    "changelog gone": Fault(_damaged("*/changelog/**/*.parquet", _gone), 2),
    "images damaged": Fault(_damaged_images, 2),
    "clocks an hour ahead": Fault(_clock(1), 4),
    "clocks an hour back": Fault(_clock(-1), 4),
}
