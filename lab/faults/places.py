"""What a fault may take away from processes besides their lives: the room and the writing of a disk, and the time."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_SECONDS = struct.Struct("l")
BUSY_SECONDS = 5  # how long a disk is asked to become read-only while somebody writes


class Impossible(Exception):
    """This fault cannot be made here; the text says why."""


@dataclass(frozen=True)
class Disk:
    """A folder, on its own small disk where that may be mounted (``why_not``: why it could not). The disk is there
    under another name as well, from where it comes back.
    """

    path: Path
    size_bytes: int
    why_not: str = ""

    @classmethod
    def opened(cls, path: Path, size_bytes: int, exits: ExitStack, mode: int = 0o700) -> Disk:
        """An empty folder; the disk goes with ``exits``."""
        disk = cls(path, size_bytes)
        for folder in (path, disk.itself):
            folder.mkdir(mode=mode)
        done = _mount("-t", "tmpfs", "-o", f"size={size_bytes},mode={mode:o}", "tmpfs", str(disk.itself))
        if done:
            return cls(path, size_bytes, f"a small disk cannot be mounted: {done}")
        exits.callback(_unmount, disk.itself)
        assert not _mount("--bind", str(disk.itself), str(path))
        exits.callback(_unmount, path)
        return disk

    @property
    def itself(self) -> Path:
        """The disk under its other name."""
        return self.path.with_name(f"{self.path.name}-disk")

    @contextmanager
    def full(self) -> Iterator[str]:
        """There is no room but for a few files."""
        self._check()
        filesystem = os.statvfs(self.path)
        used = (filesystem.f_blocks - filesystem.f_bfree) * filesystem.f_frsize
        self._remount(f"size={used + 16384}")
        try:
            yield f"{self.path.name} has 16 KiB left"
        finally:
            self._remount(f"size={self.size_bytes}")

    @contextmanager
    def read_only(self) -> Iterator[str]:
        """No process may write; the system grants that in a moment in which none does."""
        self._check()
        deadline = time.monotonic() + BUSY_SECONDS
        while refused := _mount("-o", "remount,ro", str(self.itself)):
            if time.monotonic() > deadline:
                raise Impossible(f"something writes all the time: {refused}")
            time.sleep(0.002)
        try:
            yield f"{self.path.name} is read-only"
        finally:
            self._remount("rw")

    @contextmanager
    def gone(self) -> Iterator[str]:
        """An empty folder is in its place, or what was written to that the last time."""
        self._check()
        _unmount(self.path)
        try:
            yield f"{self.path.name} is not mounted"
        finally:
            failed = _mount("--bind", str(self.itself), str(self.path))
            assert not failed, failed

    def _check(self) -> None:
        if self.why_not:
            raise Impossible(self.why_not)

    def _remount(self, how: str) -> None:
        failed = _mount("-o", f"remount,{how}", str(self.itself))
        assert not failed, failed


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], check=False)


def _mount(*arguments: str) -> str:
    """What ``mount`` says when it fails, else nothing."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no mount"
    return done.stderr.strip() if done.returncode else ""


@dataclass(frozen=True)
class Clock:
    """The clock of processes that load ``clock.c``: ahead of the machine's by some hours. What they wait for, and the
    times of files, are the machine's. ``why_not``: why there is none.
    """

    library: Path
    files: list[Path] = field(default_factory=list)
    why_not: str = ""

    @classmethod
    def made(cls, folder: Path) -> Clock:
        """The library, compiled into ``folder``."""
        library = folder / "clock.so"
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(Path(__file__).with_name("clock.c"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return cls(library, why_not="there is no C compiler (cc)")
        return cls(library, why_not=done.stderr.strip())

    def environment(self, folder: Path) -> Mapping[str, str]:
        """What processes must have, whose clock is then read from a file in ``folder``."""
        if self.why_not:
            return {}
        file, library = folder / "clock", folder / "clock.so"
        if file not in self.files:
            file.write_bytes(_SECONDS.pack(0))
            file.chmod(0o644)
            if library != self.library:
                shutil.copy(self.library, library)
            self.files.append(file)
        return {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(file)}

    @contextmanager
    def ahead(self, hours: int) -> Iterator[str]:
        """All clocks are set, and set back afterwards."""
        if self.why_not:
            raise Impossible(self.why_not)
        self._set(hours * 3600)
        try:
            yield f"clocks are set by {hours:+d} h"
        finally:
            self._set(0)

    def _set(self, seconds: int) -> None:
        for file in self.files:
            with open(file, "r+b", buffering=0) as shared:  # those who have it in memory see it at once
                shared.write(_SECONDS.pack(seconds))
