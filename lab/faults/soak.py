"""``python -m lab.faults.soak --seconds 3600 --seed 1 --catalog sqlite``: faults strike a real system by chance, and
after each every row is compared with what clients were answered.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from lab.faults.checks import PATIENCE_SECONDS, PROBE, PROBE_SCHEMA, Auditor, NotBack, Recovery, until_back
from lab.faults.clients import Generation, Poster, Seen
from lab.faults.faults import FAULTS
from lab.faults.ledger import Comparison
from lab.faults.operations import OPERATIONS, Operator
from lab.faults.places import Impossible
from lab.faults.readers import Reader
from lab.faults.system import POSTGRES, SQLITE, System
from lab.faults.tables import TABLES
from lab.faults.testimony import testimony

CLIENTS, READERS = 4, 2
FAULTS_A_GENERATION = 8  # then the tables are dropped, and new ones made
BUSY_SECONDS = 2.0  # how long clients post before a fault


class Tally:
    """What came of the faults."""

    def __init__(self) -> None:
        self.struck: Counter[str] = Counter()
        self.under: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.recovered: dict[str, list[Recovery]] = defaultdict(list)
        self.rows = self.batches = self.lost = self.doubled = self.wrong = 0
        self.faults: list[str] = []

    def add(self, name: str, comparison: Comparison) -> None:
        """A comparison after a fault."""
        self.rows += comparison.rows
        self.lost += len(comparison.lost)
        self.doubled += len(comparison.doubled)
        self.wrong += len(comparison.wrong)
        self.faults += [f"after {name}: {fault}" for fault in comparison.faults()]

    def lines(self, seen: Seen) -> Iterator[str]:
        """For people."""
        every = [recovery for recoveries in self.recovered.values() for recovery in recoveries]
        yield f"{sum(self.struck.values())} faults, {self.batches} batches acknowledged"
        yield f"{self.rows} rows compared, {seen.rows_read} read while faults struck"
        yield f"{self.lost} lost, {self.doubled} doubled, {self.wrong} wrong, {len(self.faults)} faults in all"
        yield "under " + ", ".join(f"{name}: {count}" for name, count in self.under.items())
        yield ", ".join(f"{name}: {count}" for name, count in sorted(seen.manners.items()))
        yield ", ".join(f"{name}: {count}" for name, count in sorted(seen.answers.items()))
        yield f"{'seconds until it goes on: median, max':36} {'write':>12} {'lookup':>12} {'merge':>12}"
        for name, recoveries in [*self.recovered.items(), ("all", every)]:
            parts = ([getattr(recovery, part) for recovery in recoveries] for part in ("write", "lookup", "merge"))
            yield f"{name:32} {len(recoveries):3} " + " ".join(
                f"{statistics.median(part):5.1f} {max(part):6.1f}" for part in parts if part
            )
        yield from (f"skipped: {name}: {why}" for name, why in self.skipped.items())
        yield from self.faults[:40]


class Campaign:
    """Clients that post to a system all the time, faults that strike it one after the other, by seed."""

    def __init__(self, system: System, seed: int, names: Sequence[str] = ()) -> None:
        self.system = system
        self.random = Random(seed)
        self.seen = Seen()
        self.tally = Tally()
        self.auditor = Auditor(system, self.seen, Random(seed + 1))
        self.names = names or [name for name, fault in FAULTS.items() if system.catalog in fault.catalogs]
        self.posters = [Poster(system, place, seed, self.seen) for place in range(CLIENTS)]
        self.readers = [Reader(system, place, seed, self.seen) for place in range(READERS)]
        self.ended = threading.Event()  # set, it ends after the fault under way
        self._deck: list[str] = []
        self._number = 0
        self.generation = Generation(0)

    def run(self, seconds: float) -> Tally:
        """Strike until the time is over; each fault at least once if ``seconds`` is 0."""
        deadline = time.monotonic() + seconds
        with self.system.client(0) as client:
            client.create_database("shop")
            client.create_table("shop", PROBE, PROBE_SCHEMA).raise_for_status()
        try:
            until_back(self.system, self.seen, 0, time.monotonic())  # the first merge takes longest
            self._begin_generation()
            for thread in (*self.posters, *self.readers):
                thread.start()
            while not self.ended.is_set() and (
                time.monotonic() < deadline or (not seconds and self._number < len(self.names))
            ):
                self._strike(self._next())
                if self._number % FAULTS_A_GENERATION == 0:
                    self._begin_generation()
            self.tally.faults += self.system.verify()  # everything was put back
        except NotBack as error:
            self.tally.faults.append(f"NOT BACK: {error}\n{testimony(self.system)}")
        finally:
            self._end()
        return self.tally

    def _next(self) -> str:
        """Each fault before any a second time."""
        if not self._deck:
            self._deck = self.random.sample(self.names, len(self.names))
        return self._deck.pop()

    def _begin_generation(self) -> None:
        """The tables of before are dropped, new ones made, by each of the services."""
        self.tally.batches += sum(ledger.accepted() for ledger in self.generation.ledgers.values())
        generation = Generation(self.generation.number + 1)
        with self.system.client(generation.number, timeout=30) as client:
            operator = Operator(client, self.seen, self.random)
            for name, drawn in TABLES.items():
                if self.generation.number:
                    operator.ask("DELETE", self.generation.path(name))
                client.create_table("shop", f"{name}_{generation.number}", drawn.schema()).raise_for_status()
        self.generation = generation
        for poster in self.posters:
            poster.generation = generation
            poster.go.set()
        for reader in self.readers:
            reader.generation = generation

    def _strike(self, name: str) -> None:
        """One fault, under some operation; then everything is compared."""
        under = self.random.choice(list(OPERATIONS))
        time.sleep(self.random.random() * BUSY_SECONDS)
        self._number += 1
        client = self.system.client(self.random.randrange(9))
        operator = Operator(client, self.seen, Random(self.random.random()))
        operating = threading.Thread(target=OPERATIONS[under], args=(operator, self.generation), daemon=True)
        operating.start()
        time.sleep(self.random.random() * 0.5)
        fault, began, before = FAULTS[name], time.monotonic(), len(self.seen.faults)
        try:
            with fault.strike(self.system, self.random) as details:
                began = time.monotonic()  # of what is over at once
                time.sleep(fault.seconds)
                ended = time.monotonic()
        except Impossible as error:
            self.tally.skipped[name] = str(error)
            details = ""
        if details:
            recovery = until_back(self.system, self.seen, self._number, ended if fault.seconds else began)
            self.tally.recovered[name].append(recovery)
            self.tally.struck[name] += 1
            self.tally.under[under] += 1
        operating.join()
        client.close()
        with self._held_still():
            comparison = self.auditor.audit(self.generation, damages=fault.damages)
        self.tally.add(f"{self._number} {name}", comparison)
        self.tally.faults += [f"during {self._number} {name}: {fault}" for fault in self.seen.faults[before:]]
        self._say(
            f"{self._number:4} {name}, under {under}: {details or self.tally.skipped[name]}; {comparison.rows} rows",
            recovery if details else None,
        )
        for one in comparison.faults()[:10] + self.seen.faults[before : before + 10]:
            self._say(f"     {one}")

    def _say(self, text: str, recovery: Recovery | None = None) -> None:
        seconds = (
            f"; write {recovery.write:.1f} lookup {recovery.lookup:.1f} merge {recovery.merge:.1f} s"
            if recovery
            else ""
        )
        print(f"{time.strftime('%H:%M:%S')} {text}{seconds}", flush=True)  # noqa: T201

    @contextmanager
    def _held_still(self) -> Iterator[None]:
        for poster in self.posters:
            poster.still.clear()
            poster.go.clear()
        for poster in self.posters:
            if not poster.still.wait(PATIENCE_SECONDS):
                raise NotBack(f"{poster.name} was not answered within {PATIENCE_SECONDS:.0f} s")
        yield
        for poster in self.posters:
            poster.go.set()

    def _end(self) -> None:
        self.tally.batches += sum(ledger.accepted() for ledger in self.generation.ledgers.values())
        for poster in self.posters:
            poster.ended.set()
            poster.go.clear()
        for reader in self.readers:
            reader.ended.set()
        for thread in (*self.posters, *self.readers):
            if thread.is_alive():  # else it was never started, or is over
                thread.join(30)


@contextmanager
def campaign(
    folder: Path, catalog: str, seed: int, names: Sequence[str] = (), *, spark: bool = True
) -> Iterator[Campaign]:
    """A system that is ready; none of its processes outlives the block."""
    with ExitStack() as exits:
        system = System(folder, catalog, exits, spark=spark)
        system.wait_ready()
        yield Campaign(system, seed, names)


def main() -> None:
    """Print what came of it; status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--catalog", choices=[SQLITE, POSTGRES], default=SQLITE)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), default=[], help="this one alone; repeatable")
    parser.add_argument("--no-spark", action="store_true", help="workers fold in Python: more faults an hour")
    parser.add_argument("--keep", type=Path, help="a folder for what processes said, if anything was wrong")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left
    with (
        tempfile.TemporaryDirectory(prefix="keyfold-soak-") as folder,
        campaign(Path(folder), options.catalog, options.seed, options.fault, spark=not options.no_spark) as one,
    ):
        signal.signal(signal.SIGTERM, lambda *_: one.ended.set())
        tally = one.run(options.seconds)
        lines = list(tally.lines(one.seen))
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            text = "\n".join(f"{name}: {line}" for name, line in one.system.said())
            (options.keep / f"said-{options.catalog}-{options.seed}.log").write_text(text)
    print("\n".join([*lines, f"seed {options.seed}, {options.catalog}"]))  # noqa: T201
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
