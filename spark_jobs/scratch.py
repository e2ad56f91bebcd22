"""Scratch folders of the embedded server: one for each process that starts one."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path


def new_scratch(folder: Path) -> Path:
    """Return a fresh scratch folder named after this process; remove those of processes that have ended."""
    parent = folder / "scratch"
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.iterdir():
        if not _is_other_running_process(old.name.partition("-")[0]):
            shutil.rmtree(old, ignore_errors=True)
    scratch = parent / f"{os.getpid()}-{secrets.token_hex(4)}"
    scratch.mkdir()
    return scratch


def _is_other_running_process(pid: str) -> bool:
    if not pid.isdigit() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
