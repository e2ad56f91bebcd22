"""``make check-mutants``: removes or swaps one entry of a table in a copy of the project, and asks the tests whether
they notice. A sample, outside CI; its last result stands in docs/mutants.md. Its tests must pass in an unchanged copy.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("app", "bench", "docs", "lab", "migrations", "spark_jobs", "tests")
COPIED_FILES = (
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
    "Dockerfile",
    "requirements.lock",
    "requirements-serve.lock",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
# Those that look at a table, first, so that most mutants cost seconds; then what `make quick` runs.
FIRST: Mapping[str, tuple[str, ...]] = {
    "options": (
        *("tests/test_semantics_document.py", "tests/test_entries_everywhere.py", "tests/core/table"),
        *(
            "tests/core/alter",
            "tests/core/plan/checks/test_option_checks.py",
            "tests/core/plan/test_altered_options.py",
        ),
        "tests/api/routes/tables/test_misspelt_options.py",
    ),
    "functions": (
        *("tests/test_semantics_document.py", "tests/test_entries_everywhere.py"),
        *(
            "tests/core/plan/checks/test_option_checks.py",
            "tests/core/functions",
            "tests/core/plan/merging/test_fold.py",
        ),
    ),
    "types": ("tests/test_types_everywhere.py", "tests/core/types", "tests/core/table", "tests/core/plan"),
    "faults": ("tests/test_semantics_document.py", "tests/api/test_fault_codes.py"),
}
TESTS = (
    *("tests/test_entries_everywhere.py", "tests/test_types_everywhere.py", "tests/test_semantics_document.py"),
    *("tests/core", "tests/storage", "tests/catalog", "tests/services", "tests/api"),
)
MARKS = "not spark and not postgres and not slow"


@dataclass(frozen=True)
class Mutant:
    """``old`` at ``start`` of a file replaced by ``new``; ``what`` describes it."""

    path: str
    start: int
    old: str
    new: str
    what: str

    def apply(self, folder: Path) -> None:
        """Writes it into the copy of the project in ``folder``."""
        path = folder / self.path
        source = path.read_bytes()
        end = self.start + len(self.old.encode())
        assert source[self.start : end] == self.old.encode()
        path.write_bytes(source[: self.start] + self.new.encode() + source[end:])


class Source:
    """A file's syntax tree with the bytes of its nodes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = (ROOT / path).read_text()
        self.tree = ast.parse(self.text)
        self._lines = [0]
        for line in self.text.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def calls(self, name: str) -> list[ast.Call]:
        """The calls of ``name``, in the order of the file."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        named = [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id == name]
        return sorted(named, key=lambda node: node.lineno)

    def text_of(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """The text of a node."""
        return ast.get_source_segment(self.text, node) or ""

    def replaced(self, node: ast.expr | ast.stmt | ast.keyword, new: str, what: str, *, comma: bool = False) -> Mutant:
        """The file with other text for ``node``; with ``comma`` the one behind it goes, too."""
        start, old = self._lines[node.lineno - 1] + node.col_offset, self.text_of(node)
        after = self.text.encode()[start + len(old.encode()) :].decode()
        return Mutant(self.path, start, old + ("," if comma and after.startswith(",") else ""), new, what)


def options() -> Iterator[Mutant]:
    """Options without an entry, entries without one of the things they say, entries that read like the next one."""
    source = Source("app/core/table/options/entries.py")
    entries = [call for call in source.calls("Option") if call.args]
    for entry, following in zip(entries, [*entries[1:], entries[0]], strict=True):
        name = source.text_of(entry.args[0])
        yield source.replaced(entry, "", f"no option {name}", comma=True)
        for said in entry.keywords:
            yield source.replaced(said, "", f"option {name} without {source.text_of(said)}", comma=True)
        if source.text_of(entry.args[1]) != source.text_of(following.args[1]):
            yield source.replaced(
                entry.args[1], source.text_of(following.args[1]), f"option {name} read as the next one"
            )


def functions() -> Iterator[Mutant]:
    """Functions without an entry, and entries with a part of the next one."""
    source = Source("app/core/functions/entries.py")
    entries = [call for call in source.calls("AggregateFunction") if call.args]
    for entry, following in zip(entries, [*entries[1:], entries[0]], strict=True):
        name = source.text_of(entry.args[0])
        yield source.replaced(entry, "", f"no function {name}", comma=True)
        for place, (part, other) in enumerate(zip(entry.args[1:], following.args[1:], strict=False), 1):
            if source.text_of(part) != source.text_of(other):
                what = f"function {name}: part {place} of {source.text_of(following.args[0])}"
                yield source.replaced(part, source.text_of(other), what)


def types() -> Iterator[Mutant]:
    """Types with something that another type of the same file says."""
    for path in sorted((ROOT / "app/core/types").glob("*.py")):
        source = Source(str(path.relative_to(ROOT)))
        said = [(entry.lineno, part) for entry in source.calls("Entry") for part in entry.keywords]
        for line, part in said:
            others = {source.text_of(one.value) for _, one in said if one.arg == part.arg} - {
                source.text_of(part.value)
            }
            for other in sorted(others):
                what = f"type entry of {path.name}:{line} with {part.arg}={' '.join(other.split())}"
                yield source.replaced(part.value, other, what)


def faults() -> Iterator[Mutant]:
    """Codes of faults that are gone, or mean what the next one means."""
    source = Source("app/core/faults.py")
    [codes] = [n for n in source.tree.body if isinstance(n, ast.ClassDef) and n.name == "FaultCode"]
    members = [node for node in codes.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)]
    for member, following in zip(members, [*members[1:], members[0]], strict=True):
        name = source.text_of(member.targets[0])
        yield source.replaced(member, "pass", f"no fault {name}")
        assert isinstance(member.value, ast.Tuple)
        assert isinstance(following.value, ast.Tuple)
        new = source.text_of(following.value.elts[1])
        yield source.replaced(member.value.elts[1], new, f"fault {name} with the next one's meaning")


TABLES: Mapping[str, Callable[[], Iterator[Mutant]]] = {
    "options": options,
    "functions": functions,
    "types": types,
    "faults": faults,
}


def noticed(mutant: Mutant | None, *stages: Sequence[str]) -> str | None:
    """What fails with the mutant in one of the stages, None if no test does; without one, what fails anyhow."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in COPIED:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in COPIED_FILES:
            shutil.copy(ROOT / file, folder / file)
        if mutant is not None:
            mutant.apply(folder)
        return next((by for tests in stages if (by := failing(folder, tests))), None)


def failing(folder: Path, tests: Sequence[str]) -> str | None:
    """The first of the tests that fails in the copy of the project in ``folder``; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", MARKS, *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": "quick"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    said = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return said[0].partition(" - ")[0] if said else "the tests do not start"


def report(tables: Sequence[str], each: int, seed: int) -> Iterator[str]:
    """The result, as lines of Markdown."""
    yield f"Seed {seed}, {each} of each table.\n"
    yield "| table | mutant | noticed by |\n|---|---|---|"
    survivors = total = 0
    for table in tables:
        every: Sequence[Mutant] = list(TABLES[table]())
        for mutant in random.Random(seed).sample(every, min(each, len(every))):
            by = noticed(mutant, FIRST[table], TESTS)
            total += 1
            survivors += by is None
            yield f"| {table} (of {len(every)}) | {mutant.what.replace('|', '/')} | {by or '**nothing**'} |"
    yield f"\n{total - survivors} of {total} were noticed."


def main() -> None:
    """Prints the result; ends with 1 when a mutant was not noticed or the tests fail without one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one; may be repeated")
    parser.add_argument("--each", type=int, default=6, help="mutants of each table")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    wanted = parser.parse_args()
    tables: Sequence[str] = wanted.table or list(TABLES)
    if broken := noticed(None, TESTS):
        sys.exit(f"without a mutant the tests must pass: {broken}")
    lines = []
    for line in report(tables, wanted.each, wanted.seed):
        lines.append(line)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    sys.exit(1 if "**nothing**" in "\n".join(lines) else 0)


if __name__ == "__main__":
    main()
