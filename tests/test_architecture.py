"""The shape of the code: arrows, sizes, names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("app", "spark_jobs", "migrations", "clients", "tests", "lab", "bench")
MOST_LINES = 400
# Names that say nothing of what is inside.
FORBIDDEN = {
    *("util", "utils", "helper", "helpers", "manager", "managers", "handler", "handlers", "data", "info"),
    *("common", "misc", "base", "tools", "stuff", "lib"),
}
# Each step of an upsert is the file of its noun.
STEPS = {
    "POST …/batches": [
        "app/api/routes/batches/batches.py",
        "app/services/batches/batches.py",
        "app/core/plan/records/record_decoder.py",
    ],
    "staging file": ["app/storage/staging/staging.py"],
    "catalog: batch n": ["app/catalog/batches/batches.py"],
    "worker: claim a merge": ["app/worker.py", "app/services/merging/merges.py", "app/catalog/tasks/claimed_tasks.py"],
    "tasks": ["app/kernel/tasks.py", "app/kernel/plan_tasks.py"],
    "one Spark Connect job": ["spark_jobs/executor.py", "spark_jobs/parcels.py", "spark_jobs/session.py"],
    "a task: fold, write a run": ["app/kernel/run.py", "app/kernel/fold.py", "app/kernel/write.py"],
    "catalog: compare-and-swap": ["app/catalog/snapshots/snapshots.py", "app/catalog/tasks/claimed_tasks.py"],
    "compaction": ["app/services/merging/compactions.py", "app/kernel/runs.py"],
    "GET …/rows": [
        "app/api/routes/rows/rows.py",
        "app/services/rows/lookups.py",
        "app/core/table/keys.py",
        "app/storage/images/folder.py",
    ],
}
MOST_FILES = 15  # of a folder, its docstring apart
FOLDERS_OF_APP = sorted({path.parent for kind in ("py", "html") for path in (ROOT / "app").rglob(f"*.{kind}")})
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} >= {"app", "spark_jobs", "migrations", "tests"}


def test_imports_point_one_way() -> None:
    program = Path(sys.executable).parent / "lint-imports"
    checked = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 broken" in checked.stdout


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("folder", FOLDERS_OF_APP, ids=relative)
def test_a_folder_has_at_most_15_files(folder: Path) -> None:
    files = [path.name for path in folder.iterdir() if path.is_file() and path.name != "__init__.py"]
    assert len(files) <= MOST_FILES, files


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_and_its_folders_are_named_after_what_is_inside(path: Path) -> None:
    words = {word for part in path.relative_to(ROOT).with_suffix("").parts for word in part.split("_")}
    assert not words & FORBIDDEN


@pytest.mark.parametrize("step", STEPS)
def test_each_step_of_an_upsert_has_its_file(step: str) -> None:
    assert [path for path in STEPS[step] if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("noun", ["databases", "tables", "batches", "merges", "snapshots", "tags", "stats"])
def test_a_noun_is_the_file_of_every_layer(noun: str) -> None:
    # The catalog keeps merges and compactions alike, as tasks.
    layers = ("api", "services") if noun == "merges" else ("api", "services", "catalog")
    assert [layer for layer in layers if not list((ROOT / "app" / layer).rglob(f"{noun}.py"))] == []
