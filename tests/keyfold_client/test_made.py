"""The client without asyncio is what ``make client`` makes of the one with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path("clients/python/keyfold_client")


def test_the_modules_are_those_that_are_made(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "clients/python/make_sync.py", str(tmp_path)], check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {name: (SOURCE / "sync" / name).read_text() for name in made}, "run `make client`"
    assert sorted(made) == ["client.py", "table.py", "transport.py"]
