"""What is fuzzed: a function of bytes that may end well or in an error of ours, and in nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from app.core.errors import KeyfoldError

CORPUS = Path(__file__).parent / "corpus"
Run = Callable[[bytes], object]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Target:
    """``opened`` gives what reads one input, and closes what that needs. What it raises besides ``ours`` is a finding.

    ``words`` are put into mutated inputs: what no chance would write. The suite tries ``mutations`` of them.
    """

    opened: Callable[[], AbstractContextManager[Run]]
    ours: tuple[type[Exception], ...] = (KeyfoldError,)
    words: Sequence[bytes] = ()
    mutations: int = 300

    @classmethod
    def of(cls, run: Run, *ours: type[Exception], words: Sequence[bytes] = (), mutations: int = 300) -> Target:
        """A target that needs nothing opened."""
        return cls(lambda: nullcontext(run), ours or (KeyfoldError,), words, mutations)


def chosen(body: bytes, kinds: Sequence[Kind]) -> tuple[Kind, bytes]:
    """One of ``kinds``, by the first byte (``a`` is the first of them), and the rest."""
    return kinds[((body[0] if body else 0) - ord("a")) % len(kinds)], body[1:]


def lines(body: bytes) -> list[str]:
    """The body as lines of text; lone halves of surrogate pairs as JSON can name them are possible."""
    return body.decode("utf-8", "surrogatepass").split("\n") if _is_text(body) else body.decode("latin-1").split("\n")


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True
