"""The side-by-side table: what each system's line says, and why a system is skipped."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.peers.__main__ import HEAD, NO_IMAGES, OURS, PEERS, Outcome, Peer, Runs, _run, _times
from bench.peers.spark_environment import has_java, lacks_packages, missing, variables
from bench.peers.system import Answer


def answered(peer: Peer, images: float | None = None) -> Outcome:
    answer = Answer(peer.name, load=1, batches=[1, 2], settle=1, images=images, read=0.5, rows=10)
    return Outcome(peer, 10, 2, answer)


def line(outcome: Outcome, ours: Outcome) -> dict[str, str]:
    """A line by its heads; of the three ratios the last."""
    cells = _times(outcome, ours, 2)
    assert len(cells) == len(HEAD)
    return dict(zip(HEAD, cells, strict=True))


OURS_ONE, OTHER = PEERS[0], next(peer for peer in PEERS if peer.runs is Runs.SPARK)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_system_has_its_module(peer: Peer) -> None:
    assert find_spec(f"bench.peers.{peer.name}") is not None


def test_images_count_in_a_total_next_to_the_total_without_them() -> None:
    ours = answered(OURS_ONE, images=6.0)
    assert OURS_ONE.name == OURS
    reported, other = line(ours, ours), _times(answered(OTHER), ours, 2)
    assert (reported["total"], reported["images, s"], reported["total with images"]) == ("4.0", "6.0", "10.0")
    assert other[HEAD.index("images, s")] == NO_IMAGES
    first = HEAD.index("ratio")
    assert (other[first], other[HEAD.index("ratio", first + 1)]) == ("1.00", "0.40")


def test_a_system_on_spark_whose_python_is_missing_is_skipped_and_its_line_says_why(tmp_path: Path) -> None:
    absent = tmp_path / "bin" / "python"
    wanted = argparse.Namespace(python=sys.executable, spark_python=str(absent), timeout=60)
    outcome = _run(OTHER, 10, 2, wanted, tmp_path, tmp_path)
    assert outcome.skipped
    assert not outcome.too_large
    reason = f"skipped: {absent} does not exist: make .venv-spark-readers/.installed"
    assert reason in _times(outcome, answered(OURS_ONE), 2)


def test_spark_is_missing_a_jdk_where_the_path_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not has_java()
    assert "openjdk" in missing(Path(sys.executable))


def test_a_package_that_cannot_be_had_is_seen_in_sparks_log() -> None:
    assert lacks_packages(":: io.delta#delta-spark_4.1_2.13;4.3.1: unresolved dependency: not found")
    assert not lacks_packages("java.lang.OutOfMemoryError")


def test_spark_starts_without_the_variables_of_another_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/elsewhere")
    assert "JAVA_HOME" not in variables()
