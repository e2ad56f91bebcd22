"""The language of the code, measured: banned words in names, docstrings and comments (docs/style.md).

Texts that users see are not looked at: tests of messages pin those. ``make check`` runs it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.language import BANNED, ROOT

CODE = ("app", "spark_jobs", "migrations", "bench", "lab", "clients/python/keyfold_client")
BANNED_IN_NAMES = {"told", "tells", "asked", "there", "whoever", "whatever", "nobody", "anew"}
_WHO = re.compile(r"(?:^|[.;]\s+)Who\b(?![^.]*\?)")  # begins a sentence that is no question: a subject without a noun
_WORDS = re.compile(r"[a-z]+|[A-Z][a-z]*")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_files() -> list[Path]:
    """Return the files that are looked at; ``sync`` is made from ``aio``."""
    found = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "sync" not in path.parts]


def code_faults(page: str, text: str) -> Iterator[str]:
    """Yield a line for each banned word of a file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            yield from _banned(page, line, token.string)
        elif token.type == tokenize.NAME:
            words = {word.lower() for word in _WORDS.findall(token.string)}
            yield from (f"{page}:{line}: banned in names: {word}" for word in sorted(words & BANNED_IN_NAMES))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and (prose := ast.get_docstring(node)):
            yield from _banned(page, node.body[0].lineno, prose)


def _banned(page: str, line: int, prose: str) -> Iterator[str]:
    plain = re.sub(r"``?[^`]*``?", "", prose)
    yield from (f"{page}:{line}: banned: {' '.join(word.split())}" for word in BANNED.findall(plain))
    if _WHO.search(plain.lstrip("# ")):
        yield f"{page}:{line}: a sentence begins with who: name the part of the program"


if __name__ == "__main__":
    found = [fault for path in code_files() for fault in code_faults(str(path.relative_to(ROOT)), path.read_text())]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.exit(bool(found))
