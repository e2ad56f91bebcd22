"""Permissions of a folder: which other users may enter it, and how that is ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from app.cli.modes import how_to_close


@pytest.mark.parametrize(
    ("mode", "umask", "change"),
    [
        (0o755, 0o077, "g-rwx,o-rwx"),
        (0o710, 0o077, "g-rwx,o-rwx"),
        (0o770, 0o027, "g-w,o-rwx"),
        (0o701, 0o007, "o-rwx"),
    ],
)
def test_a_folder_that_is_open_is_closed_by_the_command_that_is_reported(
    tmp_path: Path, mode: int, umask: int, change: str
) -> None:
    folder = tmp_path / "it's data"
    folder.mkdir()
    (folder / "file").touch(0o644)
    folder.chmod(mode)
    command = how_to_close(folder, umask)
    assert command is not None
    assert f" {change} " in command
    subprocess.run(command, shell=True, check=True)  # noqa: S602  # it is meant for a shell
    assert how_to_close(folder, umask) is None
    assert (folder / "file").stat().st_mode & umask == 0


def test_a_folder_that_is_closed_or_not_there_needs_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    assert how_to_close(tmp_path, 0o027) is None
    assert how_to_close(tmp_path / "none", 0o077) is None
