"""``python -m bench.peers --python .venv-peers/bin/python``: every system on the same batches, as Markdown."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from bench.figures import table
from bench.machine import machine_facts
from bench.peers.meaning import PARTS
from bench.peers.spark_environment import NO_PACKAGES, lacks_packages, missing, variables
from bench.peers.system import Answer, parse_answer
from bench.wide_table import base_records, batch_records

ROWS, RECORDS, BATCHES = 1_000_000, 100_000, 10
SMALLER = (1, 10, 100)  # what is divided by, in turn, for a system that does not finish
OURS = "keyfold"
SPARK_PYTHON = ".venv-spark-readers/bin/python"
NO_IMAGES = "–"


class Runs(Enum):
    """The Python that a system runs with."""

    HERE = auto()  # this one
    PEERS = auto()  # of bench/requirements-peers.txt
    SPARK = auto()  # of tests/acceptance/spark_readers/requirements.txt


@dataclass(frozen=True)
class Peer:
    """A system to run; ``cannot`` says which part of the meaning it has no words for."""

    name: str
    how: str
    cannot: Mapping[str, str] = field(default_factory=dict)
    runs: Runs = Runs.PEERS


PEERS = (
    Peer(OURS, "in process, default options", runs=Runs.HERE),
    Peer("keyfold_http", "by HTTP, default options, nothing looked up", runs=Runs.HERE),
    Peer("delta", "`merge` with CASE and coalesce"),
    Peer("delta_spark", "`MERGE INTO`", runs=Runs.SPARK),
    Peer("duck_upsert", "`INSERT … ON CONFLICT DO UPDATE`, own file"),
    Peer("duck_rewrite", "full join, Parquet file rewritten"),
    Peer("iceberg", "`upsert`", {"plain": "whole rows only", "groups": "whole rows only", "sum": "whole rows only"}),
    Peer("iceberg_spark", "`MERGE INTO`, merge-on-read, data files rewritten after", runs=Runs.SPARK),
    Peer("iceberg_spark_cow", "`MERGE INTO`, copy-on-write", runs=Runs.SPARK),
    Peer("clickhouse", "CoalescingMergeTree, `FINAL` read", {"groups": "no order but arrival"}),
    Peer("paimon", "aggregation engine, merged on read", {"groups": "its Python reader refuses sequence groups"}),
)


HEAD = (
    *("system", "how", "rows + records a batch", "load", "batches", "after", "total", "ratio"),
    *("images, s", "total with images", "ratio", "read", "ratio", "CPU s a million records", "MB on disk"),
)


@dataclass(frozen=True)
class Outcome:
    """What a peer did at which size, or why it did not: ``fault`` has the reason."""

    peer: Peer
    rows: int
    records: int
    answer: Answer | None
    fault: str = ""
    too_large: bool = False  # it may finish with less
    skipped: bool = False  # it could not start

    @property
    def seconds(self) -> float:
        """All batches, and what was left to do after them."""
        assert self.answer is not None
        return sum(self.answer.batches) + self.answer.settle

    @property
    def seconds_with_images(self) -> float:
        """The same, and what lookups need built."""
        assert self.answer is not None
        return self.seconds + (self.answer.images or 0.0)

    @property
    def why_not(self) -> str:
        """Why there is no answer."""
        return f"{'skipped' if self.skipped else 'failed'}: {self.fault}"


def main() -> None:
    """Run every system, largest size first, and print what each did."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python that has requirements-peers.txt")
    parser.add_argument("--spark-python", default=SPARK_PYTHON, help="the Python that has Spark for other formats")
    parser.add_argument("--only", nargs="*", default=[peer.name for peer in PEERS], help="systems to run")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a system may take at one size")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1 only to try the benchmark itself")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table before the first batch")
    parser.add_argument("--batches", type=int, default=BATCHES, help="batches, one after the other")
    wanted = parser.parse_args()
    print(*table(("machine", ""), list(machine_facts())), "", sep="\n", flush=True)
    peers = [peer for peer in PEERS if peer.name in wanted.only]
    outcomes: list[Outcome] = []
    for divisor in SMALLER:
        rows, records = round(wanted.rows * wanted.scale / divisor), round(RECORDS * wanted.scale / divisor)
        latest = _at_size(peers, rows, records, wanted)
        outcomes += latest
        smaller = {outcome.peer.name for outcome in latest if outcome.too_large}
        if not smaller:
            break
        # Ours runs at every size that another one needs.
        peers = [peer for peer in peers if peer.name in smaller | {OURS}]
    _print(outcomes, wanted.batches)


def _at_size(peers: Sequence[Peer], rows: int, records: int, wanted: argparse.Namespace) -> list[Outcome]:
    with TemporaryDirectory(prefix="keyfold-bench-") as folder:
        source = Path(folder) / "input"
        _write_input(source, rows, records, wanted.batches)
        outcomes = []
        for peer in peers:
            with TemporaryDirectory(prefix="keyfold-bench-") as own:
                outcomes.append(_run(peer, rows, records, wanted, source, Path(own)))
                print(_progress(outcomes[-1]), file=sys.stderr, flush=True)
        return outcomes


def _write_input(source: Path, rows: int, records: int, batches: int) -> None:
    source.mkdir()
    with pq.ParquetWriter(source / "base.parquet", next(base_records(1)).schema) as writer:
        for chunk in base_records(rows):
            writer.write_table(chunk)
    for number in range(1, batches + 1):
        pq.write_table(batch_records(number, rows, records), source / f"batch-{number:02}.parquet")


def _run(peer: Peer, rows: int, records: int, wanted: argparse.Namespace, source: Path, own: Path) -> Outcome:
    python = {Runs.HERE: sys.executable, Runs.PEERS: wanted.python, Runs.SPARK: wanted.spark_python}[peer.runs]
    on_spark = peer.runs is Runs.SPARK
    if on_spark and (lacking := missing(Path(python))):
        return Outcome(peer, rows, records, None, lacking, skipped=True)
    command = [python, "-m", f"bench.peers.{peer.name}", str(source), str(own)]
    given = variables() if on_spark else None
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=wanted.timeout, check=False, env=given)
    except subprocess.TimeoutExpired:
        return Outcome(peer, rows, records, None, f"not done in {wanted.timeout:.0f} s", too_large=True)
    if ended.returncode and on_spark and lacks_packages(ended.stderr):
        return Outcome(peer, rows, records, None, NO_PACKAGES, skipped=True)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        killed = ended.returncode < 0  # by the system, which had no memory left
        return Outcome(peer, rows, records, None, last[:200], too_large=killed)
    return Outcome(peer, rows, records, parse_answer(ended.stdout))


def _progress(outcome: Outcome) -> str:
    state = f"{outcome.seconds:.1f} s" if outcome.answer else outcome.why_not
    return f"{outcome.peer.name} at {outcome.rows:,} rows: {state}"


def _print(outcomes: Sequence[Outcome], batches: int) -> None:
    print(
        f"{batches} successive batches of partial updates, half of each new keys, 60 % nulls. Ratios: how many times "
        "as long as Keyfold at the same size; below 1 Keyfold loses.\n"
    )
    ours = {outcome.rows: outcome for outcome in outcomes if outcome.peer.name == OURS}
    lines = [_times(outcome, ours[outcome.rows], batches) for outcome in outcomes]
    print(*table(HEAD, lines), sep="\n")
    print("\nThe answers, on a sample of keys, compared with Keyfold's:\n")
    rows = [_parts(outcome, ours[outcome.rows]) for outcome in outcomes if outcome.answer]
    print(*table(("system", "at rows", "rows in the end", *PARTS), rows), sep="\n")
    for outcome in ours.values():
        if outcome.answer is None:
            continue
        print(f"\nKeyfold at {outcome.rows:,} rows: images: {_images_cpu(outcome.answer):.2f} CPU s a million rows")
        for name, seconds in outcome.answer.extras.items():
            print(f"\nKeyfold at {outcome.rows:,} rows: {name}: {seconds:.4f} s")


def _images_cpu(answer: Answer) -> float:
    return answer.images_cpu * 1e6 / answer.rows


def _times(outcome: Outcome, ours: Outcome, batches: int) -> tuple[str, ...]:
    size = f"{outcome.rows:,} + {outcome.records:,}"
    answer = outcome.answer
    if answer is None:
        cells = (outcome.peer.name, outcome.peer.how, size, outcome.why_not)
        return (*cells, *[""] * (len(HEAD) - len(cells)))
    compared = ours.answer is not None
    return (
        answer.version,
        outcome.peer.how,
        size,
        f"{answer.load:.1f}",
        f"{sum(answer.batches):.1f}",
        f"{answer.settle:.1f}",
        f"{outcome.seconds:.1f}",
        f"{outcome.seconds / ours.seconds:.2f}" if compared else "",
        NO_IMAGES if answer.images is None else f"{answer.images:.1f}",
        f"{outcome.seconds_with_images:.1f}",
        f"{outcome.seconds_with_images / ours.seconds_with_images:.2f}" if compared else "",
        f"{answer.read:.2f}",
        f"{answer.read / ours.answer.read:.2f}" if ours.answer else "",
        f"{answer.cpu * 1e6 / (outcome.records * batches):.1f}",
        f"{answer.megabytes:.0f}",
    )


def _parts(outcome: Outcome, ours: Outcome) -> tuple[str, ...]:
    answer, expected = outcome.answer, ours.answer
    assert answer is not None
    compared = [_compared(outcome.peer, part, answer, expected) for part in PARTS]
    return answer.version, f"{outcome.rows:,}", f"{answer.rows:,}", *compared


def _compared(peer: Peer, part: str, answer: Answer, expected: Answer | None) -> str:
    if expected is None:
        return "not compared: Keyfold failed"
    if answer.digests[part] == expected.digests[part]:
        return "same"
    return f"other: {peer.cannot[part]}" if part in peer.cannot else "OTHER, unexpected"


if __name__ == "__main__":
    main()
