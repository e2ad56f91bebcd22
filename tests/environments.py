"""Virtual environments of tools that only some tests need: ``make`` makes them where they are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def made_by_make(target: str) -> Path:
    """Return a file of such an environment, once it is there. Raise ``CalledProcessError``."""
    subprocess.run(["make", "--silent", target, f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
    return ROOT / target
