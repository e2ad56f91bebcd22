"""Runs one input of a target, and reports what is wrong with it."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.fuzz.bounds import in_memory
from lab.fuzz.target import CORPUS, Run, Target


def corpus(target: str) -> Sequence[Path]:
    """The stored inputs of a target, in order."""
    return sorted(path for path in (CORPUS / target).iterdir() if path.is_file())


def tried(target: Target, run: Run, body: bytes) -> Exception | None:
    """What an input raises that is none of the target's own errors; None if all is well."""
    try:
        with in_memory():
            run(body)
    except target.ours:
        return None
    except Exception as error:  # any error is what is looked for
        return error
    return None


def place_of(error: BaseException) -> str:
    """What distinguishes one fault from another: its type, and where of our own it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/app/" in frame.filename or "/tests/fuzz/" in frame.filename]
    last = own[-1] if own else None
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}" if last else type(error).__name__


@dataclass
class Findings:
    """The faults found in a run, each with the first input that showed it, kept in a folder."""

    folder: Path
    by_place: dict[str, Path] = field(default_factory=dict)

    def add(self, error: BaseException, body: bytes) -> Path | None:
        """The file of the input, if the fault is a new one."""
        place = place_of(error)
        if place in self.by_place:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.by_place[place] = self.folder / hashlib.sha1(body, usedforsecurity=False).hexdigest()[:12]
        self.by_place[place].write_bytes(body)
        return self.by_place[place]
